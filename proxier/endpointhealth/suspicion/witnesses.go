package suspicion

import (
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
)

// Witnesses is what endpoints of other Services on other nodes answered.
type Witnesses uint8

// The answers of the witnesses.
const (
	NoWitness  Witnesses = iota // there is nobody to ask
	SomeAnswer                  // the network of this node works
	AllSilent                   // this node has lost its network
)

// freshWitness is how long an answer of the witnesses counts.
const freshWitness = time.Second

// witness is what the detector knows of the network of this node.
type witness struct {
	wanted, asking bool
	latest         Witnesses
	at             time.Time // of the latest answer
	lost           bool      // a note said that the network is lost
}

func (w *witness) fresh(now time.Time) bool { return !w.at.IsZero() && now.Sub(w.at) < freshWitness }

// hold returns why an endpoint is not ejected, by what the witnesses say.
func (w *witness) hold(e *endpoint, now time.Time) Hold {
	switch {
	case !w.fresh(now):
		return Asking
	case w.latest == AllSilent, w.latest == NoWitness && e.Answer == probe.NoRoute:
		return Uplink
	}
	return None
}

// Witnessed records what the witnesses answered.
func (d *Detector) Witnessed(w Witnesses, now time.Time) {
	d.witness.asking, d.witness.wanted = false, false
	d.witness.latest, d.witness.at = w, now
	for e := range d.all {
		if e.Phase == Failed && e.Hold == Asking {
			d.setHold(e, d.witness.hold(e, now), now)
		}
	}
	if lost := w == AllSilent; lost != d.witness.lost {
		d.witness.lost = lost
		kind := NetworkBack
		if lost {
			kind = NetworkLost
		}
		d.Note(Note{Kind: kind, At: now})
	}
}

// askWitnesses asks others than the endpoints under suspicion, on other nodes.
func (d *Detector) askWitnesses() *Inquiry {
	q := &Inquiry{Witnesses: true, Suspects: map[netip.Addr]bool{}}
	for e := range d.all {
		if q.Suspects[e.At.Addr()] = true; e.Phase != Calm && e.Word.Node != "" {
			q.Nodes = append(q.Nodes, e.Word.Node)
		}
	}
	slices.Sort(q.Nodes)
	q.Nodes = slices.Compact(q.Nodes)
	return q
}
