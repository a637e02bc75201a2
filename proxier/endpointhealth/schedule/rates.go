package schedule

import (
	"maps"
	"time"

	"github.com/verdict-proxy/verdict/proxier/threadtime"
)

// Rates bound how much of something the namespaces of a node use in the long run, such as processor time.
type Rates struct {
	// Even: while the limit of all together is reached, each namespace has an even part of it. Otherwise nobody has anything.
	Even bool
	// Pays is called with the cost of what a namespace has; nil: nobody asks.
	Pays         func(namespace string, cost time.Duration)
	node, tenant float64 // how much may be used in each unit of time; node 0: there is no limit for all together
	burst        time.Duration
	all          threadtime.Bucket
	of           map[string]*threadtime.Bucket // by namespace; those of which nothing is used are missing
	swept        time.Time
}

// NewRates returns rates for a namespace, and for all together (0: without a limit). What is not used for burst is lost.
func NewRates(node, tenant float64, burst time.Duration) *Rates {
	return &Rates{node: node, tenant: tenant, burst: burst, of: map[string]*threadtime.Bucket{}}
}

// Left reports whether a namespace has something left.
func (r *Rates) Left(namespace string, now time.Time) bool {
	rate, b := r.rate(now), r.of[namespace]
	return rate > 0 && (b == nil || !b.Spent(rate, r.burst, now))
}

// rate is what each namespace may use at present.
func (r *Rates) rate(now time.Time) float64 {
	switch {
	case r.node == 0 || !r.all.Spent(r.node, r.burst, now):
		return r.tenant
	case r.Even:
		return min(r.tenant, r.node/float64(len(r.of)+1))
	}
	return 0
}

// Take takes the cost of something for a namespace; false: there is nothing left.
func (r *Rates) Take(namespace string, cost time.Duration, now time.Time) bool {
	if !r.Left(namespace, now) {
		return false
	}
	b := r.of[namespace]
	if b == nil {
		b = &threadtime.Bucket{At: now}
		r.of[namespace] = b
	}
	b.Used += cost
	r.all.Used += cost
	if r.Pays != nil {
		r.Pays(namespace, cost)
	}
	if now.Sub(r.swept) >= r.burst {
		r.swept = now
		maps.DeleteFunc(r.of, func(_ string, b *threadtime.Bucket) bool { b.Refill(r.tenant, now); return b.Used == 0 })
	}
	return true
}

// Room is how much there can be of something at once. A namespace can have a part of what the others leave: with two parts,
// half of the room, and the next namespace half of the rest. So a few greedy namespaces do not fill it.
type Room struct {
	Size        int
	parts, used int
	of          map[string]int // by namespace
}

// NewRoom returns an empty room.
func NewRoom(size, parts int) *Room { return &Room{Size: size, parts: parts, of: map[string]int{}} }

// Used returns how much there is, of all namespaces and of one.
func (r *Room) Used(namespace string) (all, own int) { return r.used, r.of[namespace] }

// Full reports whether a namespace can have no more.
func (r *Room) Full(namespace string) bool {
	own := r.of[namespace]
	left := r.Size - (r.used - own)
	return r.used >= r.Size || own >= (left+r.parts-1)/r.parts
}

// Take takes one place for a namespace; false: it is full.
func (r *Room) Take(namespace string) bool {
	if r.Full(namespace) {
		return false
	}
	r.of[namespace]++
	r.used++
	return true
}

// Leave gives one place of a namespace back.
func (r *Room) Leave(namespace string) {
	r.used--
	if r.of[namespace]--; r.of[namespace] == 0 {
		delete(r.of, namespace)
	}
}
