package proxier

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/outlier"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// An endpoint that returns may be cold. With slow start, its weight grows in slowSteps steps over the time that its
// Service asks for. Each step is a change of the rules.
const (
	slowSteps = 5
	// maxSlow is how many Services can have endpoints in slow start. One namespace can have a quarter of them. Endpoints
	// of others return at once.
	maxSlow         = 1024
	maxSlowOfTenant = maxSlow / 4
)

// slowStarts are the endpoints whose weight grows. It has no clock.
type slowStarts struct {
	of map[state.Name]*slowService
}

type slowService struct {
	takes time.Duration
	began map[netip.AddrPort]time.Time
	next  time.Time // of the next step
	due   bool
}

func newSlowStarts() slowStarts { return slowStarts{of: map[state.Name]*slowService{}} }

func (s *slowStarts) forget(name state.Name) { delete(s.of, name) }

// begin begins the slow start of an endpoint, unless it has begun.
func (s *slowStarts) begin(name state.Name, at netip.AddrPort, takes time.Duration, now time.Time) {
	is := s.of[name]
	if is == nil {
		if !s.hasRoom(name.Namespace) {
			return
		}
		is = &slowService{began: map[netip.AddrPort]time.Time{}}
		s.of[name] = is
	}
	is.takes = takes
	if _, begun := is.began[at]; !begun {
		is.began[at] = now
	}
}

func (s *slowStarts) hasRoom(namespace string) bool {
	own := 0
	for name := range s.of {
		if name.Namespace == namespace {
			own++
		}
	}
	return len(s.of) < maxSlow && own < maxSlowOfTenant
}

// step returns how many of slowSteps an endpoint has done, and when that changes.
func (is *slowService) step(at netip.AddrPort, now time.Time) (done int, next time.Time) {
	began, slow := is.began[at]
	if !slow {
		return slowSteps, next
	}
	each := is.takes / slowSteps
	done = int(now.Sub(began)/each) + 1
	return min(done, slowSteps), began.Add(time.Duration(done) * each)
}

// plan begins the plan of a Service, whose pools weigh sees one after the other.
func (s *slowStarts) plan(name state.Name) {
	if is := s.of[name]; is != nil {
		is.due, is.next = false, time.Time{}
	}
}

// weigh sets the weights of a pool, and returns the endpoints that are in slow start.
func (s *slowStarts) weigh(name state.Name, pool []plan.Endpoint, now time.Time) (slow []netip.AddrPort) {
	is := s.of[name]
	if is == nil {
		return nil
	}
	steps := make([]int, len(pool))
	for i := range pool {
		var next time.Time
		if steps[i], next = is.step(pool[i].Addr, now); steps[i] == slowSteps {
			delete(is.began, pool[i].Addr)
			continue
		}
		slow = append(slow, pool[i].Addr)
		if is.next.IsZero() || next.Before(is.next) {
			is.next = next
		}
	}
	if len(slow) > 0 {
		scale(pool, steps)
	}
	return slow
}

// scale makes room for the steps in the weights: each endpoint has steps of slowSteps of its share.
func scale(pool []plan.Endpoint, steps []int) {
	heaviest := uint64(1)
	for i := range pool {
		heaviest = max(heaviest, uint64(pool[i].Weight))
	}
	for i := range pool {
		w := uint64(pool[i].Weight) * uint64(steps[i])
		if heaviest*slowSteps > math.MaxUint16 {
			w = w * math.MaxUint16 / (heaviest * slowSteps)
		}
		pool[i].Weight = uint16(max(w, 1))
	}
}

// grow notes which Services have a step to do, and reports whether any has.
func (s *slowStarts) grow(now time.Time) (wanted bool) {
	for name, is := range s.of {
		if len(is.began) == 0 {
			delete(s.of, name)
			continue
		}
		if !is.due && (is.next.IsZero() || !now.Before(is.next)) {
			is.due = true
		}
		wanted = wanted || is.due
	}
	return wanted
}

// changed lists the Services that have a step to do, sorted.
func (s *slowStarts) changed() (names []state.Name) {
	for name, is := range s.of {
		if is.due {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, state.Name.Compare)
	return names
}

// drop ends the slow start of endpoints that are gone or bad again.
func (s *slowStarts) drop(name state.Name, pools []netip.AddrPort, out []netip.AddrPort) {
	is := s.of[name]
	if is == nil {
		return
	}
	maps.DeleteFunc(is.began, func(at netip.AddrPort, _ time.Time) bool { return !has(pools, at) || has(out, at) })
}

// slowly gives endpoints that have returned their weights.
func (c *choice) slowly(chosen []plan.Endpoint) []plan.Endpoint {
	name, takes := c.svc.Name, c.svc.SlowStart
	if takes == 0 {
		c.slow.forget(name)
		return chosen
	}
	for i := range chosen {
		if has(c.out[name], chosen[i].Addr) && !chosen[i].Backup {
			c.slow.begin(name, chosen[i].Addr, takes, c.now)
		}
	}
	for _, at := range c.slow.weigh(name, chosen, c.now) {
		c.row(outlier.StateSlowStart, at, c.slow.of[name].began[at], fmt.Sprintf("its weight grows over %s", takes))
	}
	return chosen
}

// grow has Services planned again whose weights grow.
func (o *Outliers) grow(now time.Time) {
	o.mu.Lock()
	wanted := o.slow.grow(now)
	o.mu.Unlock()
	if wanted {
		o.signal()
	}
}
