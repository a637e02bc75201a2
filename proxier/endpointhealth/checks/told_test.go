package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// kinds lists what the detector has told since the last call, without what every suspicion causes.
func (d *detector) kinds() (list []string) {
	for _, n := range d.notes {
		if k := n.Kind; (k == FellAtOnce || k == NetworkLost || k == NetworkBack) && !n.At.IsZero() {
			list = append(list, fmt.Sprint(k, n.Suspect.Service))
		}
	}
	d.notes = nil
	return list
}

// TestNetworkIsTold: that this node lost its network, and has it again, is told once each.
func TestNetworkIsTold(t *testing.T) {
	s := newScene(t)
	none := fmt.Sprint(state.Name{})
	for i, tt := range []struct {
		is   Witnesses
		want []string
	}{
		{NoWitness, nil},
		{SomeAnswer, nil},
		{AllSilent, []string{string(NetworkLost) + none}},
		{AllSilent, nil},
		{SomeAnswer, []string{string(NetworkBack) + none}},
		{SomeAnswer, nil},
		{AllSilent, []string{string(NetworkLost) + none}},
		{NoWitness, []string{string(NetworkBack) + none}},
	} {
		s.d.Witnessed(tt.is, s.now)
		if got := s.d.kinds(); !slices.Equal(got, tt.want) {
			t.Errorf("%d: told %q, want %q", i, got, tt.want)
		}
	}
}

// TestEpisodeIsTold: what people read of an endpoint, from the first suspicion until it is good again.
func TestEpisodeIsTold(t *testing.T) {
	s := newScene(t)
	for i, tt := range []struct {
		do   func()
		want []Kind
	}{
		{func() { s.suspect(1); s.answer(probe.NoFault, 1) }, []Kind{SuspicionBegan, SuspicionEnded}},
		{func() { s.fail(probe.NoAnswer, true, SomeAnswer, 1) }, []Kind{SuspicionBegan, Fell}},
		{func() { s.fail(probe.NoFault, true, SomeAnswer) }, nil}, // one good answer
		{func() { s.fail(probe.NoFault, true, SomeAnswer) }, []Kind{Recovered}},
		{func() { s.refresh(web, Word{Node: "node-1", Ready: true, Serving: true}) }, nil}, // it is good already
		{func() { s.fail(probe.Refused, true, SomeAnswer, 1) }, []Kind{SuspicionBegan, Fell}},
		{func() { s.refresh(web, Word{Node: "node-2", Ready: true}) }, []Kind{NewWord}},
	} {
		begin, got := s.now, []Kind(nil)
		tt.do()
		for _, n := range s.d.notes {
			if got = append(got, n.Kind); n.Suspect.At != endpointNo(1) || n.At.Before(begin) || n.At.After(s.now) {
				t.Errorf("%d: told of %s at %s, want %s to %s", i, n.Suspect.At, n.At, begin, s.now)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%d: told %q, want %q", i, got, tt.want)
		}
		s.d.notes, s.now = nil, s.now.Add(firstPause)
	}
}

// TestGoodAnswerIsALook: an endpoint that answers after a suspicion has answered this node, so it is not looked at any more. Both wait
// in one line, each by its own terms.
func TestGoodAnswerIsALook(t *testing.T) {
	s := newScene(t)
	at := probe.Target{Protocol: state.TCP, At: endpointNo(1)}
	looks, _ := s.d.Set(web, Look, &state.HealthCheck{Interval: 5 * time.Second}, []probe.Target{at}, nil, s.now)
	s.suspect(1)
	asked := map[Purpose]int{}
	for range 10 {
		for _, q := range s.d.Due(s.now) {
			asked[q.Purpose]++
			a := probe.NoAnswer
			if q.Purpose == Suspicion {
				a = probe.NoFault
			}
			s.d.Answered(q, a, true, s.now)
		}
		s.now = s.now.Add(5 * time.Second)
	}
	if asked[Look] > 2 || asked[Suspicion] != 1 || !looks[0].Passed {
		t.Errorf("asked %v, %+v", asked, looks[0])
	}
}

// TestFallIsTold: that endpoints on many nodes fell at once is told once, with their Service, and again the next time.
func TestFallIsTold(t *testing.T) {
	s := newScene(t)
	s.fail(probe.NoAnswer, true, SomeAnswer, 0)
	if s.d.failures(web, s.now); len(s.d.kinds()) > 0 {
		t.Error("one endpoint is no fall")
	}
	s.fail(probe.NoAnswer, true, SomeAnswer, 1, 2)
	for range 2 {
		s.d.failures(web, s.now)
	}
	if got, want := s.d.kinds(), []string{fmt.Sprint(FellAtOnce, web)}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

// TestRestoredAnswer: what is shown of an endpoint that failed before this process started, and which nodes have no witness.
func TestRestoredAnswer(t *testing.T) {
	s := newScene(t)
	since := s.now.Add(-time.Hour)
	for i, sure := range []bool{true, false} {
		m := Member{Service: web, Word: Word{Node: "node-x"}, Nodes: 5}
		s.d.Recall(&state.Failure{Protocol: state.TCP, At: endpointNo(i), Sure: sure, Since: since}, m, s.now)
	}
	list := s.d.Suspects(web)
	if len(list) != 2 || list[0].Fault != probe.Refused || list[1].Fault != probe.NoAnswer || list[0].Since != since {
		t.Errorf("%+v", list)
	}
	doubts := func(what string) {
		if of := s.d.askWitnesses().Doubts[web.Namespace]; !of.Nodes["node-x"] || len(of.Nodes) != 1 || len(of.Addrs) != 2 {
			t.Errorf("%s: doubts %v", what, of)
		}
	}
	doubts("at the beginning")
	s.answer(probe.NoFault)
	for _, q := range s.asked {
		s.d.Answered(q, probe.NoFault, true, s.now)
	}
	if list = s.d.Suspects(web); len(list) != 2 || list[0].Fault != probe.NoFault || !list[0].Down {
		t.Errorf("after a good answer: %+v", list)
	}
	doubts("after a good answer, which is not enough")
}

// TestJoinIsTold: a Service that gets an endpoint that failed before, for another Service, is planned again.
func TestJoinIsTold(t *testing.T) {
	s := newScene(t)
	s.fail(probe.NoAnswer, true, SomeAnswer, 1)
	clear(s.d.changed)
	s.d.Refresh(other, map[netip.AddrPort]Member{endpointNo(1): {Service: other, Nodes: 5}}, s.now)
	if !s.d.changed[other] {
		t.Error("the Service is not planned again")
	}
}

// TestRefusalAfterFailure: a refusal is doubted, and the endpoint does fail. When it is good again, the next refusal is asked about
// at once.
func TestRefusalAfterFailure(t *testing.T) {
	s := newScene(t)
	refuses := func() (asked int) {
		s.now = s.now.Add(100 * time.Millisecond)
		s.d.Suspect(endpointNo(1), Refusing, []Member{{Service: web, Refusals: true}}, s.now)
		for _, q := range s.d.Due(s.now) {
			s.asked[q.At] = q
			asked++
		}
		return asked
	}
	refuses()
	s.d.Answered(s.asked[endpointNo(1)], probe.NoFault, true, s.now)
	refuses()
	s.d.Answered(s.asked[endpointNo(1)], probe.Refused, true, s.now)
	s.fail(probe.Refused, true, SomeAnswer)
	s.ejects(None, 1)
	for len(s.d.Suspects(web)) > 0 {
		s.now = s.now.Add(firstPause)
		for _, q := range s.d.Due(s.now) {
			s.d.Answered(q, probe.NoFault, true, s.now)
		}
	}
	if n := refuses(); n != 1 {
		t.Errorf("%d questions after a refusal, want 1", n)
	}
}

// TestPauses: an endpoint that failed is asked less and less often, and not all of them at the same time.
func TestPauses(t *testing.T) {
	for jitter, longest := range map[float64]time.Duration{0: longestPause, 1: longestPause * 4 / 5} {
		s := newScene(t)
		s.d = detectorWith(func() float64 { return jitter })
		s.fail(probe.NoAnswer, true, SomeAnswer, 1)
		var pauses []time.Duration
		for latest := s.now; len(pauses) < 10; s.now = s.now.Add(time.Second) {
			for _, q := range s.d.Due(s.now) {
				if q.Doubts == nil {
					s.d.Answered(q, probe.NoAnswer, true, s.now)
					latest, pauses = s.now, append(pauses, s.now.Sub(latest))
				}
			}
		}
		if !slices.IsSorted(pauses) || pauses[1] > 3*time.Second || pauses[9] != longest {
			t.Errorf("pauses %v, want the last one to be %s", pauses, longest)
		}
	}
}

// TestHalfOfNodes: endpoints on half of the nodes of a Service fall at once, but one node alone does not.
func TestHalfOfNodes(t *testing.T) {
	for nodes, least := range map[int]int{1: 2, 2: 2, 3: 2, 4: 2, 5: 3, 6: 3, 7: 4} {
		fell := map[string]time.Time{}
		for i := range 5 {
			fell[fmt.Sprint(i)] = time.Unix(1e9, 0)
			if got, want := isMass(fell, nodes), i+1 >= least; got != want {
				t.Errorf("%d of %d nodes fall at once: %t", i+1, nodes, got)
			}
		}
	}
}

// TestFailsAndAccepts: an endpoint that fails its check accepts connections if the check had one, at the same port.
func TestFailsAndAccepts(t *testing.T) {
	for port, fault := range map[uint16]probe.Fault{0: probe.WrongAnswer, 9000: probe.WrongAnswer, 1: probe.Refused} {
		p := &Pool{
			Name: web, Check: &state.HealthCheck{Port: port}, Choices: []plan.Choice{{Protocol: state.TCP, At: endpointNo(1)}},
			Checks: []*Check{{Record: Record{Reached: true, Down: true, Fault: fault}}},
		}
		if got := calmDetector().Health(p, nil, time.Unix(1e9, 0)); len(got) != 1 || got[0].Accepts != (port == 0) {
			t.Errorf("port %d, %v: %+v", port, fault, got)
		}
	}
}

// TestOrderOfSuspects: people read them by address, then by Service.
func TestOrderOfSuspects(t *testing.T) {
	s := newScene(t)
	var want []string
	for i := range 9 {
		s.d.Suspect(endpointNo(i), Unanswered, []Member{{Service: web}, {Service: other}}, s.now)
		want = append(want, fmt.Sprint(endpointNo(i), other), fmt.Sprint(endpointNo(i), web))
	}
	var got []string
	for _, is := range s.d.Suspects(state.Name{}) {
		got = append(got, fmt.Sprint(is.At, is.Service))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
