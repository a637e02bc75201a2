package dataplane

import (
	"slices"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Totals count what one engine serves.
type Totals struct {
	Frontends [plan.NodePort + 1]int // by plan.FrontendKind
	Endpoints int                    // each once for every service port and family that it serves
	Pools     [maxSchedulers]int     // by the index of the scheduler; see Schedulers
}

// maxSchedulers is more than the number of schedulers: those of IPVS, and random.
const maxSchedulers = 24

var allSchedulers = append([]string{schedulerRandom}, ipvsctl.Schedulers()...)

// Schedulers returns the names of all schedulers. The index of a name is the one in Totals.Pools.
func Schedulers() []string { return slices.Clone(allSchedulers) }

// index is that of the scheduler of a port in Schedulers. What nft serves has the scheduler that fits the method.
func (m *method) index(served program.Method) uint8 {
	name := schedulerRandom
	switch {
	case m.ipvs:
		name = m.scheduler
	case served == program.InTurn:
		name = "rr"
	case served.Hashes():
		name = "mh"
	}
	return uint8(max(0, slices.Index(allSchedulers, name)))
}

// NoLocal counts service ports with endpoints, none of which a policy Local allows.
type NoLocal struct{ Internal, External int }

// portCount counts what the engines serve for one port. It is small, because every port has one.
type portCount struct {
	frontends  [IPVS + 1][plan.NodePort + 1]uint32
	endpoints  uint32
	engine     Engine // that counts the endpoints and the pools
	scheduler  uint8  // index in Schedulers
	pools      uint8
	noInternal bool // the internal policy leaves no endpoint
	noExternal bool
}

// countOf counts the endpoints of a port for IPVS if it serves a frontend of the port.
func countOf(port *plan.Port, scheduler uint8) portCount {
	c := portCount{endpoints: uint32(max(len(port.Cluster), len(port.Local))), scheduler: scheduler}
	for _, pool := range [][]plan.Endpoint{port.Cluster, port.Local} {
		c.pools += uint8(min(len(pool), 1))
	}
	for i := range port.Frontends {
		fe := &port.Frontends[i]
		engine := engineOf(fe)
		c.engine = max(c.engine, engine)
		c.frontends[engine][fe.Kind]++
		if fe.Unserved == plan.Drop {
			c.noInternal = c.noInternal || fe.Kind == plan.ClusterIP
			c.noExternal = c.noExternal || fe.Kind != plan.ClusterIP
		}
	}
	return c
}

// withoutRules takes out what nft would serve. IPVS may serve the rest.
func (c *portCount) withoutRules() {
	c.frontends[NFT] = [plan.NodePort + 1]uint32{}
	if c.engine == NFT {
		c.endpoints, c.pools = 0, 0
	}
}

// Engine names an engine.
type Engine uint8

// The engines.
const (
	NFT Engine = iota
	IPVS
)

func (e Engine) String() string {
	if e == IPVS {
		return "ipvs"
	}
	return "nft"
}

// AllTotals are the totals of both engines, and what both leave out alike.
type AllTotals struct {
	Engines [IPVS + 1]Totals
	NoLocal [state.IPv6 + 1]NoLocal // by state.Family
}

// add counts the ports of a Service; a negative sign takes them out again.
func (t *AllTotals) add(s *served, sign int) {
	for i := range s.ports {
		c := &s.ports[i].count
		for engine := range t.Engines {
			for kind, n := range c.frontends[engine] {
				t.Engines[engine].Frontends[kind] += sign * int(n)
			}
		}
		serving := &t.Engines[c.engine]
		serving.Endpoints += sign * int(c.endpoints)
		serving.Pools[c.scheduler] += sign * int(c.pools)
		t.NoLocal[stateFamily(s.ports[i].family)].count(c, sign)
	}
}

func (n *NoLocal) count(c *portCount, sign int) {
	if c.noInternal {
		n.Internal += sign
	}
	if c.noExternal {
		n.External += sign
	}
}

// engineOf returns the engine that serves a frontend.
func engineOf(f *plan.Frontend) Engine {
	if f.IPVS {
		return IPVS
	}
	return NFT
}
