//go:build ipvs

package deadnode

import (
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// An emulated processor makes few connections, and the daemon needs up to five times as long for each step. So everything
// has more time, and still no connection may fail.
const (
	defaultRate     = 10
	defaultPatience = 20 * time.Second
	soon            = 3 * time.Second // after a death, a refusing endpoint gets nothing any more
	slowest         = 10 * time.Second
	solicits        = 15 // questions for a neighbor before the kernel says "no route to host": 15 s instead of 3
)

var engines = []engine{
	{name: "ipvs", flags: []string{"--backend=ipvs", "--ipvs-fallback=false"}, lateness: slowest},
	{
		name: "hybrid", flags: []string{"--backend=hybrid"}, annotation: `, verdict-proxy.github.io/scheduler: "lc"`,
		lateness: slowest,
	},
}

// modes: one control is enough to show that the test can fail.
func (e *engine) modes(f lab.Family) []string {
	switch {
	case e.name == "ipvs" && f == lab.IPv4:
		return []string{"eject", "observe"}
	case e.name == "ipvs" || f == lab.IPv6:
		return []string{"eject"}
	}
	return nil
}

func (e *engine) refusals() []string {
	if e.name == "ipvs" {
		return []string{"eject,refusals", "eject"}
	}
	return []string{"eject,refusals"}
}
