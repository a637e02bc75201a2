package checks

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// rig drives a detector at random, and keeps a model of its own of what may be ejected.
type rig struct {
	t       *testing.T
	rnd     *rand.Rand
	d       *detector
	now     time.Time
	pools   map[state.Name][]netip.AddrPort
	words   map[netip.AddrPort]Word
	dead    map[netip.AddrPort]bool
	bad     map[pair]int           // bad answers in a row
	good    map[pair]int           // good answers in a row
	asked   map[netip.AddrPort]int // answers
	planned map[state.Name][]netip.AddrPort
	asking  []Question
	changed map[state.Name]bool
	ejected int
}

// pair is an endpoint of a Service.
type pair struct {
	service state.Name
	at      netip.AddrPort
}

func newRig(t *testing.T, seed uint64) *rig {
	r := &rig{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1e9, 0), pools: map[state.Name][]netip.AddrPort{},
		words: map[netip.AddrPort]Word{}, dead: map[netip.AddrPort]bool{}, bad: map[pair]int{}, asked: map[netip.AddrPort]int{},
		good: map[pair]int{}, planned: map[state.Name][]netip.AddrPort{}, changed: map[state.Name]bool{},
	}
	r.d = detectorWith(r.rnd.Float64)
	for i := range 12 {
		r.words[endpointNo(i)] = Word{Ready: true, Node: fmt.Sprint("node-", i%4)}
	}
	for i := range 4 {
		name := state.Name{Namespace: fmt.Sprint("ns-", i%2), Name: fmt.Sprint("svc-", i)}
		for e := range 12 {
			if r.rnd.IntN(3) > 0 || i == 0 && e == 0 {
				r.pools[name] = append(r.pools[name], endpointNo(e))
			}
		}
	}
	return r
}

func endpointNo(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8080)
}

func (r *rig) members(at netip.AddrPort) (list []Member) {
	for i := range 4 {
		name := state.Name{Namespace: fmt.Sprint("ns-", i%2), Name: fmt.Sprint("svc-", i)}
		if slices.Contains(r.pools[name], at) {
			list = append(list, Member{Service: name, Word: r.words[at], Nodes: 4, Refusals: true})
		}
	}
	return list
}

func (r *rig) step() {
	at := endpointNo(r.rnd.IntN(12))
	switch r.rnd.IntN(12) {
	case 0, 1, 2:
		r.d.Suspect(at, Reason(r.rnd.IntN(2)), r.members(at), r.now)
	case 3:
		r.dead[at] = !r.dead[at]
	case 4:
		r.word(at)
	case 5, 6, 7:
		r.now = r.now.Add(time.Duration(r.rnd.IntN(1500)) * time.Millisecond)
		r.asking = append(r.asking, r.d.Due(r.now)...)
	default:
		if len(r.asking) > 0 {
			i := r.rnd.IntN(len(r.asking))
			q := r.asking[i]
			r.asking = slices.Delete(r.asking, i, i+1)
			r.answer(q)
		}
	}
	r.d.notes = nil
	maps.Copy(r.changed, r.d.changed)
	clear(r.d.changed)
	if r.rnd.IntN(3) == 0 {
		r.plan()
	}
	r.check()
}

// word changes what the EndpointSlices say of an endpoint, or takes it away from a Service.
func (r *rig) word(at netip.AddrPort) {
	w := r.words[at]
	w.Ready = r.rnd.IntN(2) == 0
	fresh := w != r.words[at] && w.Ready
	r.words[at] = w
	for _, m := range r.members(at) {
		if r.rnd.IntN(8) == 0 {
			r.pools[m.Service] = slices.DeleteFunc(slices.Clone(r.pools[m.Service]), func(o netip.AddrPort) bool { return o == at })
			r.changed[m.Service] = true
		}
		r.refresh(m.Service)
		if fresh {
			r.bad[pair{m.Service, at}] = 0
		}
	}
}

func (r *rig) refresh(service state.Name) {
	has := map[netip.AddrPort]Member{}
	for _, at := range r.pools[service] {
		has[at] = Member{Service: service, Word: r.words[at], Nodes: 4, Refusals: true}
		if of := r.d.services[service]; r.d.Knows(at) && (of == nil || of.endpoints[at] == nil) {
			r.good[pair{service, at}] = 0 // it joins others, whose answers count
		}
	}
	r.d.Refresh(service, has, r.now)
}

func (r *rig) answer(q Question) {
	if q.Doubts != nil {
		r.d.Witnessed(Witnesses(r.rnd.IntN(3)), r.now)
		return
	}
	a := probe.NoFault
	if r.dead[q.At] {
		a = []probe.Fault{probe.NoAnswer, probe.NoAnswer, probe.Refused, probe.NoRoute, probe.HostAnswers}[r.rnd.IntN(5)]
	}
	if r.rnd.IntN(8) == 0 { // it could not be asked
		r.d.Answered(q, probe.OtherFault, true, r.now)
		return
	}
	r.asked[q.At]++
	if is := (pair{q.Suspect.Service, q.At}); a == probe.NoFault {
		r.bad[is], r.good[is] = 0, r.good[is]+1
	} else {
		r.bad[is], r.good[is] = r.bad[is]+1, 0
	}
	r.d.Answered(q, a, r.rnd.IntN(8) > 0, r.now)
}

func (r *rig) plan() {
	for name := range r.changed {
		r.refresh(name)
		r.planned[name] = r.failures(name)
		r.ejected += len(r.planned[name])
	}
	clear(r.changed)
	maps.Copy(r.changed, r.d.changed)
	clear(r.d.changed)
}

func (r *rig) failures(name state.Name) (out []netip.AddrPort) {
	for _, f := range r.d.failures(name, r.now) {
		out = append(out, f.At)
	}
	return out
}

func (r *rig) check() {
	for name := range r.pools {
		out := r.failures(name)
		for _, at := range out {
			if is := (pair{name, at}); r.bad[is] == 0 && r.good[is] >= 2 {
				r.t.Fatalf("%s is reported, and its last two answers were good", at)
			}
			if r.asked[at] == 0 {
				r.t.Fatalf("%s is told, and was never asked", at)
			}
		}
		if !r.changed[name] && !slices.Equal(out, r.planned[name]) {
			r.t.Fatalf("%s: %v have failed, %v were told, and nobody asked to tell again", name, out, r.planned[name])
		}
	}
	r.checkBooks()
}

// checkBooks compares what the detector counts with what it has.
func (r *rig) checkBooks() {
	asked, waits, tenants, all := 0, 0, map[string]int{}, 0
	for e := range r.d.all {
		all++
		isAsked := slices.ContainsFunc(r.asking, func(q Question) bool { return q.Suspect == e })
		switch {
		case isAsked:
			asked++
		case !e.calm:
			waits++
		}
		tenants[e.Service.Namespace]++
		if r.d.services[e.Service].endpoints[e.At] != e || !slices.Contains(r.d.tracked[e.At], e) {
			r.t.Fatalf("%s of %s is tracked as something else", e.At, e.Service)
		}
	}
	linked := 0
	for _, of := range r.d.services {
		linked += len(of.endpoints)
	}
	questions := 0 // also those to endpoints that are gone
	for _, q := range r.asking {
		if q.Doubts == nil {
			questions++
		}
	}
	waiting := r.d.line.Waiting()
	counted, _ := r.d.Terms[Suspicion].Asking.Used("")
	if waiting != waits || asked > counted || counted != questions || linked != all {
		r.t.Fatalf("%d wait, %d counted; %d questions, %d counted, %d under way; %d endpoints, %d linked", waits, waiting, asked, counted, questions, all, linked)
	}
	for namespace, n := range tenants {
		if _, own := r.d.Terms[Suspicion].Room.Used(namespace); own != n {
			r.t.Fatalf("%s has %d endpoints, %d are counted", namespace, n, own)
		}
	}
	if counted, _ := r.d.Terms[Suspicion].Room.Used(""); counted != all {
		r.t.Fatalf("%d endpoints, %d are counted", all, counted)
	}
}

// TestRandomSuspicions: whatever happens in whatever order, only answers make an endpoint fail, each difference to what was told asks
// to tell again, and in the end nothing is left over.
func TestRandomSuspicions(t *testing.T) {
	ejected := 0
	for seed := range uint64(300) {
		r := newRig(t, seed)
		for range 1000 {
			r.step()
		}
		ejected += r.ejected
		r.settle()
	}
	if ejected < 1000 {
		t.Errorf("only %d ejections in all: the test does not show what it should", ejected)
	}
}

// settle lets every endpoint answer, until nothing is under suspicion.
func (r *rig) settle() {
	clear(r.dead)
	for range 200 {
		r.now = r.now.Add(31 * time.Second)
		r.asking = append(r.asking, r.d.Due(r.now)...)
		for _, q := range r.asking {
			r.answer(q)
		}
		r.asking = nil
		maps.Copy(r.changed, r.d.changed)
		clear(r.d.changed)
		r.plan()
	}
	questions, _ := r.d.Terms[Suspicion].Asking.Used("")
	if n := len(r.d.tracked) + len(r.d.addrs) + len(r.d.services) + len(r.d.endpoints) + questions; n > 0 {
		r.t.Fatalf("%d things are left over: %d endpoints, %d Services, %d questions", n, len(r.d.tracked), len(r.d.services), questions)
	}
}
