package lab

import (
	"net/netip"
	"testing"
	"time"
)

func newWorld(t *testing.T) *World {
	t.Helper()
	w, err := NewWorld()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func ask(t *testing.T, w *World, place string, q Question) Result {
	t.Helper()
	n, err := w.Place(place)
	if err != nil {
		t.Fatal(err)
	}
	if q.Patience == 0 {
		q.Patience = 3 * time.Second
	}
	return n.Ask(q)
}

// TestEveryoneReachesEveryPod also says that nothing translates addresses on the way.
func TestEveryoneReachesEveryPod(t *testing.T) {
	w := newWorld(t)
	for _, f := range Families() {
		for _, from := range []string{Node, Remote, "x", "y", "a", "b", "c", "d"} {
			for _, pod := range Pods() {
				for _, p := range []Protocol{TCP, UDP, SCTP} {
					q := Question{Protocol: p, To: netip.AddrPortFrom(address(f, upper(pod)), 8081)}
					r := ask(t, w, from, q)
					if r.Outcome != Answered || r.Answer.Pod != pod || r.Answer.Port != 8081 || r.Answer.Source != r.Client {
						t.Errorf("%s from %s to %s over %s: %v, client %s", p, from, pod, f, r, r.Client)
					}
				}
			}
		}
	}
}

func TestOutcomes(t *testing.T) {
	w := newWorld(t)
	w.drop(t, "udp dport 4000", "tcp dport 4000", "meta l4proto sctp @th,16,16 4000")
	tests := []struct {
		name string
		from string
		to   string
		port uint16
		want map[Protocol]Outcome
	}{
		{"nobody listens", "x", "NODE", 4001, map[Protocol]Outcome{TCP: Refused, UDP: Refused}},
		{"the node drops", "x", "A", 4000, map[Protocol]Outcome{TCP: Dropped, UDP: Dropped, SCTP: Dropped}},
		{"the own node drops", Node, "A", 4000, map[Protocol]Outcome{TCP: Dropped, UDP: Dropped, SCTP: Dropped}},
		{"no way", "x", "NOWHERE", 80, map[Protocol]Outcome{TCP: Unreachable, UDP: Unreachable, SCTP: Unreachable}},
		{"no way from the node", Node, "UNALLOCATED", 80, map[Protocol]Outcome{TCP: Unreachable, UDP: Unreachable, SCTP: Unreachable}},
		{"no way from a pod", "b", "VIP1", 80, map[Protocol]Outcome{TCP: Unreachable, UDP: Unreachable, SCTP: Unreachable}},
	}
	for _, tt := range tests {
		for _, f := range Families() {
			for p, want := range tt.want {
				q := Question{Protocol: p, To: netip.AddrPortFrom(address(f, tt.to), tt.port)}
				if want == Dropped {
					q.Patience = 300 * time.Millisecond
				}
				if got := ask(t, w, tt.from, q); got.Outcome != want {
					t.Errorf("%s: %s over %s: %s, want %s", tt.name, p, f, got, want)
				}
			}
		}
	}
}

// drop has the node drop what matches.
func (w *World) drop(t *testing.T, matches ...string) {
	t.Helper()
	script := "table inet drops { chain forward { type filter hook forward priority 0;\n"
	out := "chain output { type filter hook output priority 0;\n"
	for _, m := range matches {
		script += m + " drop\n"
		out += m + " drop\n"
	}
	if _, err := w.Node.Command("nft", script+"}\n"+out+"}\n}"); err != nil {
		t.Fatal(err)
	}
}

func TestFlowStaysOpen(t *testing.T) {
	w := newWorld(t)
	for _, f := range Families() {
		for _, p := range []Protocol{TCP, UDP} {
			var flow *Flow
			q := Question{Protocol: p, To: netip.AddrPortFrom(address(f, "A"), 8080), Patience: time.Second}
			n, _ := w.Place("x")
			if err := n.Do(func() (err error) { flow, err = Open(q); return err }); err != nil {
				t.Fatal(err)
			}
			if p == TCP {
				if r := flow.Receive(time.Second); r.Outcome != Answered {
					t.Errorf("%s over %s: greeting: %s", p, f, r)
				}
			}
			for range 2 {
				if r := flow.Send(time.Second); r.Outcome != Answered || r.Answer.Name() != "a" {
					t.Errorf("%s over %s: %s", p, f, r)
				}
			}
			flow.Close()
		}
	}
}

func TestCrowdAndMany(t *testing.T) {
	w := newWorld(t)
	for _, f := range Families() {
		from, to := nth(prefix(f, "CROWD"), 300), nth(prefix(f, "MANY"), 2999)
		r := ask(t, w, "x", Question{Protocol: TCP, From: from, To: netip.AddrPortFrom(to, 8080)})
		if r.Outcome != Answered || r.Answer.Source != from || r.Answer.Local != to || r.Answer.Pod != "c" {
			t.Errorf("over %s from %s to %s: %+v", f, from, to, r)
		}
	}
}

// TestFlowsAreTracked needs a rule on the node: without one the kernel tracks nothing.
func TestFlowsAreTracked(t *testing.T) {
	w := newWorld(t)
	w.drop(t, "ct state invalid")
	for _, f := range Families() {
		to := netip.AddrPortFrom(address(f, "C"), 8080)
		if r := ask(t, w, "x", Question{Protocol: UDP, To: to}); r.Outcome != Answered {
			t.Fatal(r)
		}
		want := TrackedFlow{Protocol: UDP, To: to, Server: to}
		if !w.tracks(t, f, want) {
			t.Errorf("over %s: no flow to %s", f, to)
		}
		if err := w.Node.ForgetFlows(); err != nil {
			t.Fatal(err)
		}
		if w.tracks(t, f, want) {
			t.Errorf("over %s: the flow to %s is still there", f, to)
		}
	}
}

func (w *World) tracks(t *testing.T, f Family, want TrackedFlow) bool {
	t.Helper()
	list, err := w.Node.Flows(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range list {
		want.From = got.From
		if got == want {
			return true
		}
	}
	return false
}
