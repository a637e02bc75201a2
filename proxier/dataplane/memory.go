package dataplane

import (
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Memory is a Dataplane over engines in memory. It needs no privileges and changes nothing on the host. It serves those
// who want to see what would be written: "verdict render", and tests.
type Memory struct {
	*Dataplane
	Ruleset *nft.Memory
	Servers *ipvsctl.Memory // nil when IPVS is not used

	journal *strings.Builder
}

// MemoryOptions configure a Memory.
type MemoryOptions struct {
	Scheduling Scheduling
	// Families that the host has; empty: both.
	Families []program.Family
	// IPVS configures the IPVS engine; nil: IPVS is not used.
	IPVS *ipvsctl.Options
}

// OpenMemory returns a Dataplane over empty engines in memory.
func OpenMemory(o MemoryOptions) *Memory {
	m := &Memory{Ruleset: nft.OpenMemory(nft.Options{Families: o.Families}), journal: &strings.Builder{}}
	m.Ruleset.Record(func(text string) { m.journal.WriteString(text) })
	options := Options{Ruleset: m.Ruleset, Scheduling: o.Scheduling}
	if o.IPVS != nil {
		m.Servers = ipvsctl.OpenMemory(*o.IPVS)
		options.Balancer = recorded{Memory: m.Servers, journal: m.journal}
	}
	m.Dataplane = New(options)
	return m
}

// String prints what both kernels in memory hold: the tables as nft lists them, then virtual servers as ipvsadm
// commands in comments. "nft -f" reads the whole.
func (m *Memory) String() string {
	text := m.Ruleset.String()
	if m.Servers != nil {
		for line := range strings.Lines(m.Servers.String()) {
			text += "# " + line
		}
	}
	return text
}

// Changes returns what the kernels took since the last call, in order: transactions in nft syntax, and changes of IPVS
// as commands of ipvsadm and ip.
func (m *Memory) Changes() string {
	text := m.journal.String()
	m.journal.Reset()
	return text
}

// recorded writes down what IPVS did.
type recorded struct {
	*ipvsctl.Memory
	journal *strings.Builder
}

func (r recorded) Add(now time.Time) (ipvsctl.Result, error) { return r.note(r.Memory.Add(now)) }

func (r recorded) Remove(now time.Time) (ipvsctl.Result, error) { return r.note(r.Memory.Remove(now)) }

func (r recorded) Tick(now time.Time) (ipvsctl.Result, error) { return r.note(r.Memory.Tick(now)) }

func (r recorded) note(done ipvsctl.Result, err error) (ipvsctl.Result, error) {
	r.journal.WriteString(done.Operations.String())
	return done, err
}
