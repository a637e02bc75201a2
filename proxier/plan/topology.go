package plan

import (
	"slices"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// hints turns the hints of an endpoint into flags.
func (env *Environment) hints(h *state.Hints) (f flags) {
	if len(h.Nodes) > 0 {
		f |= nodeHinted
		if env.NodeName != "" && slices.Contains(h.Nodes, env.NodeName) {
			f |= forThisNode
		}
	}
	if len(h.Zones) > 0 {
		f |= zoneHinted
		if env.Zone != "" && slices.Contains(h.Zones, env.Zone) {
			f |= forThisZone
		}
	}
	return f
}

// findLevels finds to which endpoints the Cluster pool of the port may be limited: those for this node, and those
// for this zone.
//
// Hints count only if every ready endpoint has them and at least one names this node or zone. If a single hint is
// missing, the controller is in the middle of a change or has given up, and the remaining hints could overload a few
// endpoints or leave none. When hints do not count, the next wider level is used, so a pool never becomes empty
// because of hints.
func (c *candidates) findLevels() {
	all, some := nodeHinted|zoneHinted, flags(0)
	for i := range c.list {
		if f := c.list[i].flags; f&ready != 0 {
			all &= f
			some |= f
		}
	}
	c.levels = c.levels[:0]
	if all&nodeHinted != 0 && some&forThisNode != 0 {
		c.levels = append(c.levels, forThisNode)
	}
	if all&zoneHinted != 0 && some&forThisZone != 0 {
		c.levels = append(c.levels, forThisZone)
	}
}
