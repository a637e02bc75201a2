//go:build e2e && !ipvs

package deadnode

import (
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

const defaultRate = 200

var engines = []engine{{name: "nft", lateness: 2 * time.Second}}

func (e *engine) modes(lab.Family) []string { return []string{"eject", "observe"} }
