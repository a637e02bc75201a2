package plan

import (
	"slices"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// hints turns the hints of an endpoint into flags.
func (p *Planner) hints(h *state.Hints) (f flags) {
	if len(h.Nodes) > 0 {
		f |= nodeHinted
		if p.env.NodeName != "" && slices.Contains(h.Nodes, p.env.NodeName) {
			f |= forThisNode
		}
	}
	if len(h.Zones) > 0 {
		f |= zoneHinted
		if p.env.Zone != "" && slices.Contains(h.Zones, p.env.Zone) {
			f |= forThisZone
		}
	}
	return f
}

// topology decides which ready endpoints of the present port the Cluster pool is limited to: those for this node, those
// for this zone, or all of them (0).
//
// Hints are followed only when every ready endpoint carries them and one of them is meant for us. With a single hint
// missing the controller is in the middle of a change or gave up, and following the rest could leave an overloaded few
// or none. The way out is always the next wider choice, never no endpoint.
func (p *Planner) topology() flags {
	all, some := nodeHinted|zoneHinted, flags(0)
	for i := range p.candidates {
		if f := p.candidates[i].flags; f&ready != 0 {
			all &= f
			some |= f
		}
	}
	switch {
	case all&nodeHinted != 0 && some&forThisNode != 0:
		return forThisNode
	case all&zoneHinted != 0 && some&forThisZone != 0:
		return forThisZone
	}
	return 0
}
