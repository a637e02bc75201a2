//go:build !nokernel

package lab

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for an answer that is to come.
const patience = 30 * time.Second

// ask is for names of places that exist.
func (w *World) ask(place string, q Question) Result {
	if q.Patience == 0 {
		q.Patience = patience
	}
	return w.places[place].Ask(q)
}

// TestEveryoneReachesEveryPod also checks that nothing translates addresses on the way.
func TestEveryoneReachesEveryPod(t *testing.T) {
	w := New(t)
	for _, f := range Families() {
		for _, from := range []string{Node, Remote, "x", "y", "a", "b", "c", "d"} {
			for _, pod := range Pods() {
				for _, p := range []Protocol{TCP, UDP, SCTP} {
					q := Question{Protocol: p, To: netip.AddrPortFrom(Address(f, strings.ToUpper(pod)), 8081)}
					r := w.ask(from, q)
					if r.Outcome != Answered || r.Answer.Pod != pod || r.Answer.Port != 8081 || r.Answer.Source != r.Client {
						t.Errorf("%s from %s to %s over %s: %v, client %s", p, from, pod, f, r, r.Client)
					}
				}
			}
		}
	}
}

func TestOutcomes(t *testing.T) {
	w := New(t)
	w.drop(t, "udp dport 4000", "tcp dport 4000", "meta l4proto sctp @th,16,16 4000")
	unreachable := map[Protocol]Outcome{TCP: Unreachable, UDP: Unreachable, SCTP: Unreachable}
	tests := []struct {
		name string
		from string
		to   string
		port uint16
		want map[Protocol]Outcome
	}{
		{"nobody listens", "x", "NODE", 4001, map[Protocol]Outcome{TCP: Refused, UDP: Refused}},
		{"the node drops", "x", "A", 4000, map[Protocol]Outcome{TCP: Dropped, UDP: Dropped, SCTP: Dropped}},
		{"the client's own node drops", Node, "A", 4000, map[Protocol]Outcome{TCP: Dropped, UDP: Dropped, SCTP: Dropped}},
		{"no route", "x", "NOWHERE", 80, unreachable},
		{"no route from the node", Node, "UNALLOCATED", 80, unreachable},
		{"no route from a pod", "b", "VIP1", 80, unreachable},
	}
	var asking sync.WaitGroup // all at once: most of them wait
	for _, tt := range tests {
		for _, f := range Families() {
			for p, want := range tt.want {
				q := Question{Protocol: p, To: netip.AddrPortFrom(Address(f, tt.to), tt.port)}
				if want == Dropped {
					q.Patience = 300 * time.Millisecond
				}
				asking.Go(func() {
					if got := w.ask(tt.from, q); got.Outcome != want {
						t.Errorf("%s: %s over %s: %s, want %s", tt.name, p, f, got, want)
					}
				})
			}
		}
	}
	asking.Wait()
}

// drop lets the node drop matching packets.
func (w *World) drop(t *testing.T, matches ...string) {
	t.Helper()
	rules := strings.Join(matches, " drop\n") + " drop\n"
	w.Node.Must(t, "table inet drops {\n"+
		"chain forward { type filter hook forward priority 0;\n"+rules+"}\n"+
		"chain output { type filter hook output priority 0;\n"+rules+"}\n}", "nft", "-f", "-")
}

func TestFlowStaysOpen(t *testing.T) {
	w := New(t)
	for _, f := range Families() {
		for _, p := range []Protocol{TCP, UDP} {
			q := Question{Protocol: p, To: netip.AddrPortFrom(Address(f, "A"), 8080), Patience: patience}
			flow, first := w.At(t, "x").Hold(t, q)
			if first.Name() != "a" {
				t.Errorf("%s over %s: first answer from %s", p, f, first.Name())
			}
			for range 2 {
				if r := flow.Send(patience); r.Outcome != Answered || r.Answer != first {
					t.Errorf("%s over %s: %s, want the answer %v again", p, f, r, first)
				}
			}
			flow.Close()
			flow.Close() // does nothing
		}
	}
}

// TestOwnPorts: a client takes a port of its range, also beside another socket.
func TestOwnPorts(t *testing.T) {
	w := New(t)
	for _, f := range Families() {
		for _, p := range []Protocol{TCP, UDP} {
			q := Question{Protocol: p, To: netip.AddrPortFrom(Address(f, "A"), 8080), Patience: patience, Ports: PortRange{20001, 20002}}
			first, _ := w.At(t, "x").Hold(t, q)
			second, _ := w.At(t, "x").Hold(t, q)
			got := []int{portOf(t, first), portOf(t, second)}
			if slices.Sort(got); !slices.Equal(got, []int{20001, 20002}) {
				t.Errorf("%s over %s: ports %d", p, f, got)
			}
			first.Close()
			second.Close()
		}
	}
}

func portOf(t *testing.T, f *Flow) int {
	t.Helper()
	at, err := netip.ParseAddrPort(f.conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	return int(at.Port())
}

// TestNoFlowWithoutAnswer: a connection that is refused leaves no flow.
func TestNoFlowWithoutAnswer(t *testing.T) {
	w := New(t)
	for _, f := range Families() {
		for _, p := range []Protocol{TCP, UDP} {
			q := Question{Protocol: p, To: netip.AddrPortFrom(Address(f, "A"), 4001), Patience: patience}
			if flow, r := w.At(t, "x").Open(q); flow != nil || r.Outcome != Refused {
				t.Errorf("%s over %s: flow %v, %s, want no flow, refused", p, f, flow, r)
			}
		}
	}
}

// TestServe adds a server to a place.
func TestServe(t *testing.T) {
	w := New(t)
	Must(t, w.Serve("a", "more", 9000))
	for _, f := range Families() {
		for _, p := range []Protocol{TCP, UDP} {
			q := Question{Protocol: p, To: netip.AddrPortFrom(Address(f, "A"), 9000), Patience: patience}
			if a := w.At(t, "x").Once(t, q); a.Pod != "more" || a.Port != 9000 || a.Source != Address(f, "X") {
				t.Errorf("%s over %s: %v", p, f, a)
			}
		}
	}
	if err := w.Serve("a", "again", 9000); err == nil || !strings.Contains(err.Error(), "serve in a: listen tcp :9000") {
		t.Errorf("a second server at the port: %v", err)
	}
}

func TestCrowdAndMany(t *testing.T) {
	w := New(t)
	for _, f := range Families() {
		from, to := nth(prefix(f, "CROWD"), 300), nth(prefix(f, "MANY"), 2999)
		r := w.ask("x", Question{Protocol: TCP, From: from, To: netip.AddrPortFrom(to, 8080)})
		if r.Outcome != Answered || r.Answer.Source != from || r.Answer.Local != to || r.Answer.Pod != "c" {
			t.Errorf("over %s from %s to %s: %+v", f, from, to, r)
		}
	}
}

// TestFlowsAreTracked needs a rule on the node: without one the kernel tracks nothing.
func TestFlowsAreTracked(t *testing.T) {
	w := New(t)
	w.drop(t, "ct state invalid")
	for _, f := range Families() {
		to := netip.AddrPortFrom(Address(f, "C"), 8080)
		if r := w.ask("x", Question{Protocol: UDP, To: to}); r.Outcome != Answered {
			t.Fatal(r)
		}
		want := TrackedFlow{Protocol: UDP, To: to, Server: to}
		if !w.tracks(t, f, want) {
			t.Errorf("over %s: no flow to %s", f, to)
		}
		Must(t, w.Node.ForgetFlows())
		if w.tracks(t, f, want) {
			t.Errorf("over %s: the flow to %s is still there", f, to)
		}
	}
}

func (w *World) tracks(t *testing.T, f Family, want TrackedFlow) bool {
	t.Helper()
	list, err := w.Node.Flows(f)
	Must(t, err)
	for _, got := range list {
		want.From, want.ReplyTo = got.From, got.From // nobody masquerades it
		if got == want {
			return true
		}
	}
	return false
}

// TestSaveMoment expects rules, flows and logs in one folder.
func TestSaveMoment(t *testing.T) {
	t.Setenv("VERDICT_FAILURES", t.TempDir())
	n, err := NewNamespace("moment")
	Must(t, err)
	defer n.Close()
	p, err := NewProcess(ProcessOptions{Name: "speaker", Namespace: n, Dir: t.TempDir(), Command: []string{"echo", "last words"}})
	Must(t, err)
	<-p.Exited()
	if err := n.Load("table ip moment { }"); err != nil {
		t.Fatal(err)
	}
	dir, err := SaveMoment("a test/of many", n, p, nil)
	Must(t, err)
	for file, want := range map[string]string{"ruleset": "table ip moment", "speaker.log": "last words", "addresses": "lo", "flows": ""} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %q, %v; want %q", file, text, err, want)
		}
	}
}
