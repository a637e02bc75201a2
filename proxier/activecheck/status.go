package activecheck

import (
	"maps"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Note is a change of an endpoint.
type Note struct {
	Failing  bool // otherwise it passes again
	At       time.Time
	Target   Target
	Kind     state.CheckKind
	Why      string
	Services []state.Name // that ask for the check, sorted
}

// Notes returns what happened since the last call.
func (c *Checker) Notes() []Note {
	notes := c.notes
	c.notes = nil
	return notes
}

// Changed returns the Services that have to be planned again, sorted, and forgets them.
func (c *Checker) Changed() []state.Name {
	if len(c.changed) == 0 {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(c.changed), state.Name.Compare)
	c.changed = map[state.Name]struct{}{}
	return names
}

// WantsPlans reports whether Changed has names.
func (c *Checker) WantsPlans() bool { return len(c.changed) > 0 }

// Counts returns how many checks there are, and how many of them fail.
func (c *Checker) Counts() (all, failing int) { return len(c.checks), c.failing }
