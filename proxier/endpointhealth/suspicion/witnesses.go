package suspicion

import (
	"maps"
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
	for _, at := range slices.SortedFunc(maps.Keys(d.tracked), netip.AddrPort.Compare) {
		if e := d.tracked[at]; e.Phase == Failed && e.Hold == Asking {
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
