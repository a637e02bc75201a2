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
	if d.mass(service) {
		return nil, true
	}
	var bad []*endpoint
	for _, at := range pool {
		if e := d.services[service][at]; e != nil && e.phase == failed && e.hold == None {
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
// same time. Then the cause is more likely between this node and the others than at each of them.
func (d *Detector) mass(service state.Name) bool {
	fell := map[string][]time.Time{}
	nodes := 0
	for _, e := range d.services[service] {
		m := e.member(service)
		if e.phase == failed && e.fell && m.Word.Node != "" {
			fell[m.Word.Node] = append(fell[m.Word.Node], e.since)
			nodes = max(nodes, m.Nodes)
		}
	}
	if len(fell) < 2 || 2*len(fell) < nodes {
		return false
	}
	var first []time.Time
	for times := range maps.Values(fell) {
		first = append(first, slices.MinFunc(times, time.Time.Compare))
	}
	slices.SortFunc(first, time.Time.Compare)
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
