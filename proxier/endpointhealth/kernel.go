package endpointhealth

import (
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"
)

// Suspicion is an endpoint that the kernel noticed.
type Suspicion struct {
	Endpoint netip.AddrPort
	Refusing bool
	Packets  uint64 // since it was noticed first
}

// kernel reads what the kernel noticed. But for refusals, it is for the goroutine of Run.
type kernel struct {
	read     func(refusing bool) ([]Suspicion, error)
	permit   *permit
	log      *slog.Logger
	refusals atomic.Bool // a Service has asked for it
	seen     map[Suspicion]bool
	failing  bool // the latest reading failed
}

// elementTime is how long it takes to read one suspicion: 25 ms for 16,384, and to judge it.
const elementTime = 2 * time.Microsecond

// look returns what the kernel noticed since the last call, and about how much processor time that took. The time is not measured:
// on a busy node, a look waits for a processor more often than it has one.
func (k *kernel) look() ([]Suspicion, time.Duration) {
	list, err := k.read(k.refusals.Load())
	if failed := err != nil; failed != k.failing {
		k.failing = failed
		if failed {
			k.log.Error("cannot read which endpoints do not answer; trying again", "every", lookPeriod, "error", err)
		} else {
			k.log.Info("reading which endpoints do not answer works again")
		}
	}
	return k.fresh(list), time.Duration(len(list)) * elementTime
}

// fresh returns those of the suspicions that are new, or have more packets, since the last call.
func (k *kernel) fresh(list []Suspicion) (out []Suspicion) {
	before := k.seen
	k.seen = make(map[Suspicion]bool, len(list))
	for _, s := range list {
		if k.permit.refuses(s.Endpoint) {
			continue
		}
		if k.seen[s] = true; !before[s] {
			out = append(out, s)
		}
	}
	return out
}
