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
		for kind, names := range map[string][]string{
			"table": n.tables, "chain": n.chains, "ipset": n.sets, "device": n.devices, "process": n.processes,
		} {
			for _, name := range names {
				have := map[string]map[string]bool{kind: {name: true}}
				traces := Traces{Tables: have["table"], Chains: have["chain"], Sets: have["ipset"], Devices: have["device"], Processes: have["process"]}
				list := Neighbors(traces, nil)
				if len(list) != 1 || list[0].Check != n.name || !strings.Contains(list[0].Detail, kind+" "+name+": ") ||
					(list[0].Status == OK) != (n.remedy == "") || list[0].Remedy != n.remedy {
					t.Errorf("%s %s: %+v, want only %s", kind, name, list, n.name)
				}
			}
		}
	}
	if list := Neighbors(Traces{Devices: map[string]bool{"eth0": true}}, nil); len(list) != 1 || list[0].Status != OK {
		t.Errorf("nobody: %+v", list)
	}
	if list := Neighbors(Traces{}, errors.New("refused")); len(list) != 1 || list[0].Status != Warning || list[0].Remedy == "" {
		t.Errorf("cannot look: %+v", list)
	}
}
