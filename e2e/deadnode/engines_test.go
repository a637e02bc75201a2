//go:build e2e && !ipvs

package deadnode

import (
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

const (
	defaultRate     = 200
	defaultPatience = 5 * time.Second
	soon            = time.Second // after a death, a refusing endpoint gets nothing any more
	solicits        = 3           // questions for a neighbor before the kernel says "no route to host": its default
)

// A client sends its first packet again after 1 and 3 seconds. Endpoints are left out before the second time.
var engines = []engine{{name: "nft", lateness: 3 * time.Second, holdsBack: true}}

func (e *engine) modes(lab.Family) []string { return []string{"eject", "observe"} }

func (e *engine) refusals() []string { return []string{"eject,refusals", "eject", "observe,refusals"} }
