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

// topology decides to which ready endpoints of the current port the Cluster pool is limited: those for this node, those
// for this zone, or all of them (0).
//
// Hints count only if every ready endpoint has them and at least one names this node or zone. If a single hint is
// missing, the controller is in the middle of a change or has given up, and the remaining hints could overload a few
// endpoints or leave none. When hints do not count, the next wider choice is used, so a pool never becomes empty
// because of hints.
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
