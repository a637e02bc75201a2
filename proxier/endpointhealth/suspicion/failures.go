package suspicion

import (
	"maps"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Failures returns the endpoints of a Service that have failed and are not held. Silent ones are left out of it while too
// many of the Service fell at once; while that is in doubt, only those that were in it before are in it.
func (d *Detector) Failures(service state.Name, before state.Health, now time.Time) (list state.Health) {
	of := d.services[service]
	if of == nil {
		return nil
	}
	mass, maybe := of.mass()
	if mass && !of.fallen {
		d.Note(Note{Kind: FellAtOnce, At: now, Record: Record{Member: Member{Service: service}}})
	}
	of.fallen, of.doubtful = mass, maybe && !mass
	for at, e := range of.endpoints {
		if e.Phase != Failed || e.Hold != None {
			continue
		}
		f := state.Failure{Protocol: state.TCP, At: at, Since: e.Since, Sure: !e.fell}
		_, had := slices.BinarySearchFunc(before, f, state.Failure.Compare)
		if f.Sure || !mass && (!maybe || had) {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, state.Failure.Compare)
	return list
}

// massWindow is how close in time endpoints fail that fall at once: all are asked within it.
const massWindow = 10 * time.Second

// mass reports whether endpoints of a Service on two or more nodes, and on at least half of its nodes, failed at the
// same time. Then the cause is more likely between this node and the others than at each of them. Maybe reports whether this
// is so if the endpoints fail that have given one bad answer: the next answer decides, and until then no other endpoint is
// ejected.
func (s *suspects) mass() (sure, maybe bool) {
	fell, doubted := map[string]time.Time{}, map[string]time.Time{} // by node; the second one also has those of the first
	nodes := 0
	for _, e := range s.endpoints {
		failed := e.Phase == Failed && e.fell
		if e.Word.Node == "" || !failed && (e.Phase != Suspected || e.fails == 0 || e.Answer == probe.Refused) {
			continue
		}
		nodes = max(nodes, e.Nodes)
		if earliest(doubted, e.Word.Node, e.Since); failed {
			earliest(fell, e.Word.Node, e.Since)
		}
	}
	sure = isMass(fell, nodes)
	return sure, sure || len(fell) > 0 && isMass(doubted, nodes)
}

func earliest(times map[string]time.Time, node string, at time.Time) {
	if before, known := times[node]; !known || at.Before(before) {
		times[node] = at
	}
}

// isMass judges when endpoints of each node first failed. Nodes is how many the Service has.
func isMass(fell map[string]time.Time, nodes int) bool {
	if len(fell) < 2 || 2*len(fell) < nodes {
		return false
	}
	first := slices.SortedFunc(maps.Values(fell), time.Time.Compare)
	n := max(2, (nodes+1)/2)
	for i := range len(first) - n + 1 {
		if first[i+n-1].Sub(first[i]) <= massWindow {
			return true
		}
	}
	return false
}

// Withheld returns why a failed endpoint is not among the failures of its Service.
func (d *Detector) Withheld(r *Record) Hold {
	switch of := d.services[r.Service]; {
	case of.fallen:
		return Mass
	case of.doubtful:
		return Doubtful
	}
	return None
}
