package checks

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
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
