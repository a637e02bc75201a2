package outlier

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Eject returns the endpoints of a pool that get no new connections, sorted by the time at which they failed. The pool
// has each endpoint once. Mass tells that none is ejected because too many fell at once.
//
// At most MaxEjected percent of a pool are ejected, but at least one of two, and never the last one. If every endpoint
// has failed, none is ejected: a bad answer is wrong more often than that.
func (d *Detector) Eject(service state.Name, pool []netip.AddrPort) (out []netip.AddrPort, mass bool) {
	if !d.Has(service) {
		return nil, false
	}
	mass, maybe := d.mass(service)
	if mass {
		return nil, true
	}
	if delete(d.doubtful, service); maybe {
		d.doubtful[service] = true
	}
	var bad []*endpoint
	for _, at := range pool {
		e := d.services[service][at]
		if e != nil && e.phase == failed && e.hold == None && (!maybe || d.planned[service].has(at)) {
			bad = append(bad, e)
		}
	}
	if len(bad) == len(pool) {
		return nil, false
	}
	slices.SortFunc(bad, func(a, b *endpoint) int {
		if c := a.since.Compare(b.since); c != 0 {
			return c
		}
		return a.at.Compare(b.at)
	})
	for _, e := range bad[:min(len(bad), d.room(len(pool)))] {
		out = append(out, e.at)
	}
	return out, false
}

// AllFailed reports whether all endpoints of a pool have failed, and none is held.
func (d *Detector) AllFailed(service state.Name, pool []netip.AddrPort) bool {
	for _, at := range pool {
		if e := d.services[service][at]; e == nil || e.phase != failed || e.hold != None {
			return false
		}
	}
	return len(pool) > 0
}

// room is how many endpoints of a pool may be ejected.
func (d *Detector) room(pool int) int {
	if d.settings.MaxEjected == 0 || pool < 2 {
		return 0
	}
	return min(max(1, pool*d.settings.MaxEjected/100), pool-1)
}

// massWindow is how close in time endpoints fail that fall at once: all are asked within it.
const massWindow = 10 * time.Second

// mass reports whether endpoints of a Service on two or more nodes, and on at least half of its nodes, failed at the
// same time. Then the cause is more likely between this node and the others than at each of them. Maybe tells that this
// is so if the endpoints fail that have given one bad answer: the next answer decides, and until then no other endpoint is
// ejected.
func (d *Detector) mass(service state.Name) (sure, maybe bool) {
	fell, doubted := map[string]time.Time{}, map[string]time.Time{}
	nodes := 0
	for _, e := range d.services[service] {
		m := e.member(service)
		if m.Word.Node == "" {
			continue
		}
		switch {
		case e.phase == failed && e.fell:
			earliest(fell, m.Word.Node, e.since)
		case e.phase == suspected && e.fails > 0 && e.latest != Refused:
			earliest(doubted, m.Word.Node, e.since)
		default:
			continue
		}
		nodes = max(nodes, m.Nodes)
	}
	if isMass(fell, nodes) {
		return true, true
	}
	if len(fell) == 0 || len(doubted) == 0 {
		return false, false
	}
	for node, at := range fell {
		earliest(doubted, node, at)
	}
	return false, isMass(doubted, nodes)
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
	return together(first, max(2, (nodes+1)/2))
}

// together reports whether n of the times, which are sorted, are within massWindow.
func together(times []time.Time, n int) bool {
	for i := range len(times) - n + 1 {
		if times[i+n-1].Sub(times[i]) <= massWindow {
			return true
		}
	}
	return false
}
