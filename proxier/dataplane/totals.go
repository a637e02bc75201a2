package dataplane

import "github.com/verdict-proxy/verdict/proxier/plan"

// Totals count what one engine serves.
type Totals struct {
	Frontends [plan.NodePort + 1]int // by plan.FrontendKind
	Endpoints int                    // each once for every service port and family that it serves
}

// portCount counts what the engines serve for one port. It is small, because every port has one.
type portCount struct {
	frontends [IPVS + 1][plan.NodePort + 1]uint32
	endpoints uint32
	engine    Engine // that counts the endpoints
}

// countOf counts the endpoints of a port for IPVS if it serves a frontend of the port.
func countOf(port *plan.Port) portCount {
	c := portCount{endpoints: uint32(max(len(port.Cluster), len(port.Local)))}
	for i := range port.Frontends {
		engine := engineOf(&port.Frontends[i])
		c.engine = max(c.engine, engine)
		c.frontends[engine][port.Frontends[i].Kind]++
	}
	return c
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

// TotalsByEngine are the totals of both engines.
type TotalsByEngine [IPVS + 1]Totals

// add counts the ports of a Service; a negative sign takes them out again.
func (t *TotalsByEngine) add(s *served, sign int) {
	for i := range s.ports {
		c := &s.ports[i].count
		for engine := range t {
			for kind, n := range c.frontends[engine] {
				t[engine].Frontends[kind] += sign * int(n)
			}
		}
		t[c.engine].Endpoints += sign * int(c.endpoints)
	}
}

// engineOf returns the engine that serves a frontend.
func engineOf(f *plan.Frontend) Engine {
	if f.IPVS {
		return IPVS
	}
	return NFT
}
