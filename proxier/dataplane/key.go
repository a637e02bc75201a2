package dataplane

import (
	"strings"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

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

// family returns the family of the table that serves an address family.
func family(f state.Family) program.Family {
	if f == state.IPv6 {
		return program.IPv6
	}
	return program.IPv4
}

// idOf returns what identifies a planned port.
func idOf(p *plan.Port) contents.PortID {
	return contents.PortID{Family: family(p.Family), Name: p.Name}
}

// ipvsName is how IPVS knows a port.
func ipvsName(id contents.PortID) string { return id.Family.String() + " " + id.Name }

// serviceOf returns the Service of a service port. The port may be gone.
func serviceOf(port string) state.Name {
	name, _, _ := strings.Cut(port, ":")
	namespace, name, _ := strings.Cut(name, "/")
	return state.Name{Namespace: namespace, Name: name}
}
