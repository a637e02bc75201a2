package endpointhealth

import (
	"maps"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Witnesses is what endpoints of other Services on other nodes answered.
type Witnesses uint8

// The answers of the witnesses.
const (
	NoWitness  Witnesses = iota // there is nobody to ask
	SomeAnswer                  // the network of this node works
	AllSilent                   // this node has lost its network
)

// witness is what the detector knows of the network of this node.
type witness struct {
	wanted, asking bool
	latest         Witnesses
	at             time.Time // of the latest answer
	lost           bool      // a note said that the network is lost
}

// wantWitnesses asks witnesses as soon as an endpoint gives its first bad answer, so that both questions take time
// together.
func (d *detector) wantWitnesses(e *endpoint, now time.Time) {
	if e.latest != Refused && !d.witness.fresh(now) {
		d.witness.wanted = true
	}
}

func (w *witness) fresh(now time.Time) bool { return !w.at.IsZero() && now.Sub(w.at) < freshWitness }

// hold returns why an endpoint is not ejected, by what the witnesses say.
func (w *witness) hold(e *endpoint, now time.Time) Hold {
	switch {
	case !w.fresh(now):
		return Asking
	case w.latest == AllSilent, w.latest == NoWitness && e.latest == NoRoute:
		return Uplink
	}
	return None
}

// Witnessed records what the witnesses answered.
func (d *detector) Witnessed(w Witnesses, now time.Time) {
	d.witness.asking, d.witness.wanted = false, false
	d.witness.latest, d.witness.at = w, now
	for _, e := range sorted(d.tracked) {
		if e.phase == failed && e.hold == Asking {
			d.setHold(e, d.witness.hold(e, now), now)
		}
	}
	if lost := w == AllSilent; lost != d.witness.lost {
		d.witness.lost = lost
		kind := NetworkBack
		if lost {
			kind = NetworkLost
		}
		d.notes = append(d.notes, Note{Kind: kind, At: now})
	}
}

// failingNodes are the nodes of the endpoints under suspicion. None of them can be a witness.
func (d *detector) failingNodes() (nodes []string) {
	for _, e := range d.tracked {
		if e.phase != calm && e.node() != "" {
			nodes = append(nodes, e.node())
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// massWindow is how close in time endpoints fail that fall at once: all are asked within it.
const massWindow = 10 * time.Second

// mass reports whether endpoints of a Service on two or more nodes, and on at least half of its nodes, failed at the
// same time. Then the cause is more likely between this node and the others than at each of them. Maybe reports whether this
// is so if the endpoints fail that have given one bad answer: the next answer decides, and until then no other endpoint is
// ejected.
func (d *detector) mass(service state.Name) (sure, maybe bool) {
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
