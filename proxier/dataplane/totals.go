package dataplane

import "github.com/verdict-proxy/verdict/proxier/plan"

// Totals count what one engine serves.
type Totals struct {
	Frontends [plan.NodePort + 1]int // by plan.FrontendKind
	Endpoints int                    // each once for every service port and family that it serves
}

func (t *Totals) count(port *plan.Port) {
	for i := range port.Frontends {
		t.Frontends[port.Frontends[i].Kind]++
	}
	t.Endpoints += max(len(port.Cluster), len(port.Local))
}

func (t *Totals) add(o *Totals, sign int) {
	for kind, n := range o.Frontends {
		t.Frontends[kind] += sign * n
	}
	t.Endpoints += sign * o.Endpoints
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

func (t *TotalsByEngine) add(o *TotalsByEngine, sign int) {
	for engine := range t {
		t[engine].add(&o[engine], sign)
	}
}

// engineOf returns the engine that serves a port.
func engineOf(port *plan.Port) Engine {
	if port.IPVS {
		return IPVS
	}
	return NFT
}
