package preflight

import (
	"errors"
	"strings"
	"testing"
)

// TestNeighbors: each trace names the one neighbor that leaves it. The tests of e2e/neighbors look at real ones.
func TestNeighbors(t *testing.T) {
	for i := range neighbors {
		n := &neighbors[i]
		for _, trace := range n.traces {
			list := Neighbors(Traces{trace: true}, nil)
			if len(list) != 1 || list[0].Check != n.name || !strings.Contains(list[0].Detail, trace+": ") ||
				(list[0].Status == OK) != (n.remedy == "") || list[0].Remedy != n.remedy {
				t.Errorf("%s: %+v, want only %s", trace, list, n.name)
			}
		}
	}
	if list := Neighbors(Traces{"device eth0": true}, nil); len(list) != 1 || list[0].Status != OK {
		t.Errorf("nobody: %+v", list)
	}
	if list := Neighbors(Traces{}, errors.New("refused")); len(list) != 1 || list[0].Status != Warning || list[0].Remedy == "" {
		t.Errorf("cannot look: %+v", list)
	}
}
