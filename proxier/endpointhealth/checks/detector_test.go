package checks

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// scene is a Service with ten endpoints on five nodes, number i on node i%5.
type scene struct {
	t     *testing.T
	d     *detector
	asked map[netip.AddrPort]Question
	now   time.Time
	pool  []netip.AddrPort
}

// detector is a Detector, and what it has told.
type detector struct {
	*Detector
	notes   []Note
	changed map[state.Name]bool
	doubts  map[bool][]string           // nodes
	reached bool                        // the next answer comes from an endpoint that has answered before
	before  map[state.Name]state.Health // what it told of the Services
}

// steady returns a Detector without luck and without limits of time.
func calmDetector() *detector { return detectorWith(func() float64 { return 0 }) }

func detectorWith(jitter func() float64) *detector {
	d := &detector{doubts: map[bool][]string{}, changed: map[state.Name]bool{}, before: map[state.Name]state.Health{}}
	d.Detector = NewDetector(Options{
		Terms: termsWith(0), Jitter: jitter, Changed: func(name state.Name) { d.changed[name] = true },
		Note:    func(n Note) { d.notes = append(d.notes, n) },
		Doubt:   func(node string, asked bool, _ time.Time) { d.doubts[asked] = append(d.doubts[asked], node) },
		Reaches: func(*Suspect) bool { return d.reached },
	})
	return d
}

// Answered has an endpoint answer that has answered before, or not.
func (d *detector) Answered(q Question, a probe.Fault, reached bool, now time.Time) {
	d.reached = reached
	d.Detector.Answered(q, probe.Answer{Fault: a}, now)
}

// failures tells what has failed of a Service.
func (d *detector) failures(name state.Name, now time.Time) state.Health {
	d.before[name] = d.Detector.failures(name, d.before[name], now)
	return d.before[name]
}

func newScene(t *testing.T) *scene {
	s := &scene{t: t, now: time.Unix(1e9, 0), d: calmDetector(), asked: map[netip.AddrPort]Question{}}
	for i := range 10 {
		s.pool = append(s.pool, endpointNo(i))
	}
	return s
}

func (s *scene) suspect(numbers ...int) {
	for _, i := range numbers {
		s.d.Suspect(endpointNo(i), Unanswered, []Member{
			{Service: web, Word: Word{Ready: true, Node: fmt.Sprint("node-", i%5)}, Nodes: 5},
		}, s.now)
	}
}

// answer asks everyone whose time has come. Only some endpoints answer, and the witnesses.
func (s *scene) answer(a probe.Fault, numbers ...int) {
	for range 2 { // the first answers have witnesses asked
		for _, q := range s.d.Due(s.now) {
			if s.asked[q.At] = q; q.Doubts != nil {
				s.d.Witnessed(SomeAnswer, s.now)
			}
		}
		for _, i := range numbers {
			s.d.Answered(s.asked[endpointNo(i)], a, true, s.now)
		}
		numbers = nil
	}
}

// fail suspects endpoints and has all of them give two bad answers.
func (s *scene) fail(a probe.Fault, reached bool, w Witnesses, numbers ...int) {
	s.suspect(numbers...)
	for range 2 {
		for _, q := range s.d.Due(s.now) {
			if q.Doubts != nil {
				s.d.Witnessed(w, s.now)
				continue
			}
			s.d.Answered(q, a, reached, s.now)
		}
		for _, q := range s.d.Due(s.now) {
			if q.Doubts != nil {
				s.d.Witnessed(w, s.now)
			} else {
				s.d.Answered(q, a, reached, s.now)
			}
		}
		s.now = s.now.Add(100 * time.Millisecond)
	}
}

// other is a Service that has some endpoints of the first one.
var other = state.Name{Namespace: "shop", Name: "near"}

// share has an endpoint of two Services fail.
func (s *scene) share(i int) {
	w := Word{Ready: true, Node: fmt.Sprint("node-", i%5)}
	s.d.Suspect(endpointNo(i), Unanswered, []Member{{Service: web, Word: w, Nodes: 5}, {Service: other, Word: w, Nodes: 5}}, s.now)
	s.fail(probe.NoAnswer, true, SomeAnswer)
	s.ejects(None, i)
}

// refresh tells what the EndpointSlices of a Service say of all its endpoints.
func (s *scene) refresh(service state.Name, w Word) {
	has := map[netip.AddrPort]Member{}
	for e := range s.d.all {
		if e.Service == service {
			has[e.At] = Member{Service: service, Word: w, Nodes: 5}
		}
	}
	s.d.Refresh(service, has, s.now)
}

// ejects checks which endpoints are told as failed, by number, and why others that failed are not.
func (s *scene) ejects(held Hold, numbers ...int) {
	s.t.Helper()
	var out, want []netip.AddrPort
	for _, f := range s.d.failures(web, s.now) {
		out = append(out, f.At)
	}
	for _, i := range numbers {
		want = append(want, endpointNo(i))
	}
	if !slices.Equal(out, want) {
		s.t.Errorf("%v are told; wanted %v", out, want)
	}
	for e := range s.d.all {
		hold := e.Hold
		if hold == None {
			hold = s.d.Withheld(e)
		}
		if e.Down && !slices.Contains(out, e.At) && hold != held {
			s.t.Errorf("%s is held because %q; wanted %q", e.At, hold, held)
		}
	}
}

func TestDetector(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*scene)
	}{
		{"one node dies: its endpoints are ejected", func(s *scene) {
			s.fail(probe.NoAnswer, true, SomeAnswer, 1, 6)
			s.ejects(None, 1, 6)
		}},
		{"the first refusal after a good answer counts, and no second one", func(s *scene) {
			refuses := func() {
				s.now = s.now.Add(100 * time.Millisecond)
				s.d.Suspect(endpointNo(1), Refusing, []Member{{Service: web, Refusals: true}}, s.now)
			}
			refuses()
			s.answer(probe.NoFault, 1)
			refuses()
			s.answer(probe.NoFault, 1)
			refuses()
			if list := s.d.Due(s.now); len(list) != 0 {
				s.t.Errorf("a third question within a second: %v", list[0])
			}
			s.now = s.now.Add(calmTime)
			s.d.Due(s.now)
			refuses()
			s.answer(probe.NoFault, 1)
			refuses()
			s.answer(probe.Refused, 1)
			s.answer(probe.Refused, 1)
			s.ejects(None, 1)
		}},
		{"each Service of a namespace asks at once", func(s *scene) {
			s.d.Suspect(endpointNo(1), Unanswered, []Member{{Service: web}, {Service: other}}, s.now)
			if list := s.d.Due(s.now); len(list) != 2 {
				s.t.Errorf("asked are %v", list)
			}
		}},
		{"one bad answer is not enough", func(s *scene) {
			s.d.Suspect(endpointNo(1), Unanswered, []Member{{Service: web}}, s.now)
			s.d.Answered(s.d.Due(s.now)[0], probe.NoAnswer, true, s.now)
			s.ejects(None)
		}},
		{"this node has lost its network", func(s *scene) {
			s.fail(probe.NoAnswer, true, AllSilent, 1)
			s.ejects(Uplink)
		}},
		{"no route, and nobody to ask", func(s *scene) {
			s.fail(probe.NoRoute, true, NoWitness, 1)
			s.ejects(Uplink)
		}},
		{"no witness: a cluster of two nodes", func(s *scene) {
			s.fail(probe.NoAnswer, true, NoWitness, 1)
			s.ejects(None, 1)
		}},
		{"the host answers", func(s *scene) {
			s.fail(probe.HostAnswers, true, SomeAnswer, 1)
			s.ejects(HostAlive)
		}},
		{"the node could never ask", func(s *scene) {
			s.fail(probe.NoAnswer, false, SomeAnswer, 1)
			s.ejects(NeverReached)
		}},
		{"three of five nodes fall at once", func(s *scene) {
			s.fail(probe.NoAnswer, true, SomeAnswer, 1, 2, 3)
			s.ejects(Mass)
		}},
		{"the next answer of two others decides whether three fall at once", func(s *scene) {
			s.suspect(1, 2, 3)
			s.answer(probe.NoAnswer, 1, 2, 3)
			s.answer(probe.NoAnswer, 1)
			s.ejects(Doubtful)
			s.answer(probe.NoFault, 2, 3)
			s.ejects(None, 1)
			s.suspect(2, 3)
			s.answer(probe.NoAnswer, 2, 3)
			s.ejects(None, 1) // it was ejected before
		}},
		{"an endpoint on an unknown node waits for the next answers of others, too", func(s *scene) {
			s.d.Suspect(endpointNo(7), Unanswered, []Member{{Service: web}}, s.now)
			s.fail(probe.NoAnswer, true, SomeAnswer)
			s.suspect(1, 2, 3)
			s.answer(probe.NoAnswer, 1, 2, 3)
			s.ejects(Doubtful)
			s.answer(probe.NoFault, 1, 2, 3)
			s.ejects(None, 7)
		}},
		{"two of five nodes fall at once, and a third one later", func(s *scene) {
			s.fail(probe.NoAnswer, true, SomeAnswer, 1, 2)
			s.now = s.now.Add(massWindow)
			s.fail(probe.NoAnswer, true, SomeAnswer, 3)
			s.ejects(None, 1, 2, 3)
		}},
		{"three of five nodes fall one after the other", func(s *scene) {
			for _, i := range []int{1, 2, 3} {
				s.fail(probe.NoAnswer, true, SomeAnswer, i)
				s.now = s.now.Add(massWindow)
			}
			s.ejects(None, 1, 2, 3)
		}},
		{"witnesses decide about those who wait for them, and about no other", func(s *scene) {
			s.suspect(1)
			for range 2 {
				for _, q := range s.d.Due(s.now) {
					if q.Doubts == nil {
						s.d.Answered(q, probe.NoAnswer, true, s.now)
					}
				}
			}
			s.ejects(Asking)
			s.d.Witnessed(SomeAnswer, s.now)
			s.ejects(None, 1)
			s.d.Witnessed(AllSilent, s.now)
			s.ejects(None, 1)
		}},
		{"witnesses are asked about silence only, and once in a while", func(s *scene) {
			var asked []int
			for i, a := range []probe.Fault{probe.Refused, probe.NoAnswer, probe.NoAnswer} {
				asked = append(asked, 0)
				s.suspect(i)
				for range 2 {
					for _, q := range s.d.Due(s.now) {
						if q.Doubts != nil {
							asked[i]++
							s.d.Witnessed(SomeAnswer, s.now)
						} else {
							s.d.Answered(q, a, true, s.now)
						}
					}
				}
			}
			if !slices.Equal(asked, []int{0, 1, 0}) {
				s.t.Errorf("witnesses are asked %v times", asked)
			}
		}},
		{"the node of an endpoint is in doubt if nothing answers there", func(s *scene) {
			for i, a := range []probe.Fault{probe.NoAnswer, probe.NoRoute, probe.Refused, probe.HostAnswers} {
				s.suspect(i)
				s.answer(a, i)
			}
			if got := s.d.doubts[true]; !slices.Equal(got, []string{"node-0", "node-1"}) {
				s.t.Errorf("in doubt: %q", got)
			}
		}},
		{"refusals on all nodes are no network failure", func(s *scene) {
			s.fail(probe.Refused, true, SomeAnswer, 0, 1, 2, 3, 4, 5)
			s.ejects(None, 0, 1, 2, 3, 4, 5)
		}},
		{"a Service says that an endpoint is not ready: it stays out of the other one", func(s *scene) {
			s.share(1)
			s.refresh(other, Word{Node: "node-1"})
			s.ejects(None, 1)
		}},
		{"a Service says that an endpoint is on another node: it is back in both", func(s *scene) {
			s.share(1)
			s.refresh(other, Word{Node: "node-2", Ready: true})
			s.ejects(None)
		}},
		{"silent ones that refuse now have hosts that are back: they do not count as fallen at once", func(s *scene) {
			s.fail(probe.NoAnswer, true, SomeAnswer, 1, 2, 3)
			s.ejects(Mass)
			s.now = s.now.Add(longestPause)
			clear(s.d.changed)
			s.answer(probe.Refused, 1, 2, 3)
			s.ejects(None, 1, 2, 3)
			if !s.d.changed[web] {
				s.t.Error("the Service is not planned again")
			}
		}},
		{"refusals are told while too many others fall at once", func(s *scene) {
			s.fail(probe.NoAnswer, true, SomeAnswer, 1, 2, 3)
			s.fail(probe.Refused, true, SomeAnswer, 4)
			s.ejects(Mass, 4)
		}},
	} {
		t.Run(c.name, func(t *testing.T) { c.do(newScene(t)) })
	}
}

// TestClearedBesideAFailure: an endpoint is cleared for one Service and fails for another. Later suspicions count for the first one
// a second after its good answer, however long the other entry stays.
func TestClearedBesideAFailure(t *testing.T) {
	s := newScene(t)
	s.d.Suspect(endpointNo(1), Unanswered, []Member{{Service: web}, {Service: other}}, s.now)
	var cleared time.Time
	for end := s.now.Add(10 * time.Second); s.now.Before(end); s.now = s.now.Add(50 * time.Millisecond) {
		for _, q := range s.d.Due(s.now) {
			switch {
			case q.Doubts != nil:
				s.d.Witnessed(SomeAnswer, s.now)
			case q.Suspect.Service == other:
				s.d.Answered(q, probe.NoAnswer, true, s.now)
			case cleared.IsZero():
				cleared = s.now
				s.d.Answered(q, probe.NoFault, true, s.now)
			default:
				if after := s.now.Sub(cleared); after > calmTime+100*time.Millisecond {
					t.Errorf("asked again after %s", after)
				}
				return
			}
		}
		s.d.Suspect(endpointNo(1), Unanswered, nil, s.now)
	}
	t.Error("it is not asked again")
}

// TestLostNetworkIsToldOnce: while this node has lost its network, the failure of an endpoint is reported once.
func TestLostNetworkIsToldOnce(t *testing.T) {
	s := newScene(t)
	s.fail(probe.NoAnswer, true, AllSilent, 1)
	for range 10 {
		s.now = s.now.Add(heldPause)
		for _, q := range s.d.Due(s.now) {
			if q.Doubts == nil {
				s.d.Answered(q, probe.NoAnswer, true, s.now)
			}
		}
		s.d.Witnessed(AllSilent, s.now)
	}
	told := 0
	for _, n := range s.d.notes {
		if n.Kind == Fell {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	s.ejects(Uplink)
	s.d.Witnessed(SomeAnswer, s.now)
	s.now = s.now.Add(heldPause)
	s.answer(probe.NoAnswer, 1)
	s.d.Witnessed(SomeAnswer, s.now)
	s.ejects(None, 1)
}

// first is what is known of the first endpoint.
func (s *scene) first() Suspect { return s.d.Suspects(state.Name{})[0] }

// TestStillReady: an endpoint that has failed for a minute while its slice calls it ready may fail only from here. It is
// said once, and no more when the slice says otherwise.
func TestStillReady(t *testing.T) {
	s := newScene(t)
	told := func() (n int) {
		for _, note := range s.d.notes {
			if note.Kind == StillReady && note.Suspect.StillReady {
				n++
			}
		}
		s.d.notes = nil
		return n
	}
	s.fail(probe.NoAnswer, true, SomeAnswer, 1)
	for range 10 {
		s.now = s.now.Add(stillReadyTime / 11)
		s.fail(probe.NoAnswer, true, SomeAnswer)
	}
	if n, is := told(), s.first(); n != 0 || is.StillReady {
		t.Errorf("after %s: %d notes, %+v", s.now.Sub(is.Since), n, is)
	}
	for range 3 {
		s.now = s.now.Add(longestPause)
		s.fail(probe.NoAnswer, true, SomeAnswer)
	}
	if n, is := told(), s.first(); n != 1 || !is.StillReady {
		t.Errorf("after %s: %d notes, %+v; wanted one", s.now.Sub(is.Since), n, is)
	}
	s.refresh(web, Word{Node: "node-1"})
	if s.first().StillReady {
		t.Error("the slice does not call it ready any more, and the status says that it does")
	}
	s.fail(probe.NoAnswer, true, SomeAnswer, 2)
	s.refresh(web, Word{Node: "node-1"})
	for range 10 {
		s.now = s.now.Add(longestPause)
		s.fail(probe.NoAnswer, true, SomeAnswer)
	}
	if n := told(); n != 0 {
		t.Errorf("%d notes about an endpoint that is not called ready", n)
	}
}

// crowded is when those are asked for whom there was no place.
const crowded = 100 * time.Millisecond

// BenchmarkAnswer asks one endpoint among n failed ones, and takes its answer. What that costs does not depend on n.
func BenchmarkAnswer(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint("endpoints=", n), func(b *testing.B) {
			d, now := detectorWith(rand.Float64), time.Unix(1e9, 0)
			for i := range n {
				at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
				d.Suspect(at, Refusing, []Member{{Service: web, Refusals: true, Nodes: 9}}, now)
			}
			answer := func() {
				for _, q := range d.Due(now) {
					d.Answered(q, probe.Refused, true, now)
				}
				d.notes = nil
			}
			failed := func() (sum int) {
				for e := range d.all {
					if e.Down {
						sum++
					}
				}
				return sum
			}
			for failed() < n {
				now = now.Add(crowded)
				answer()
			}
			for b.Loop() {
				now = now.Add(longestPause / time.Duration(n))
				answer()
			}
		})
	}
}

// BenchmarkDue asks who is due among n failed endpoints, and lists what their Service is told. Ten times as many take about
// ten times as long.
func BenchmarkDue(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint("endpoints=", n), func(b *testing.B) {
			d, now := calmDetector(), time.Unix(1e9, 0)
			for i := range n {
				at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
				d.Suspect(at, Refusing, []Member{{Service: web, Refusals: true, Nodes: 9}}, now)
			}
			for range n {
				now = now.Add(crowded)
				for _, q := range d.Due(now) {
					d.Answered(q, probe.Refused, true, now)
				}
			}
			now = now.Add(time.Hour)
			for b.Loop() {
				for _, q := range d.Due(now) {
					d.Answered(q, probe.Refused, true, now.Add(-time.Hour))
				}
				if list := d.failures(web, now); len(list) != n {
					b.Fatal(len(list))
				}
				d.notes = nil
			}
		})
	}
}
