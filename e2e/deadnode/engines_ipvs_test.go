//go:build ipvs

package deadnode

import (
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// An emulated processor makes few connections, and the daemon needs longer for each step.
const defaultRate = 20

var engines = []engine{
	{name: "ipvs", flags: []string{"--backend=ipvs", "--ipvs-fallback=false"}, lateness: 4 * time.Second},
	{
		name: "hybrid", flags: []string{"--backend=hybrid"}, annotation: `, verdict-proxy.github.io/scheduler: "lc"`,
		lateness: 4 * time.Second,
	},
}

// modes: one control is enough to show that the test can fail.
func (e *engine) modes(f lab.Family) []string {
	if e.name == "ipvs" && f == lab.IPv4 {
		return []string{"eject", "observe"}
	}
	return []string{"eject"}
}
