//go:build !nokernel

package conntrack

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// lookWorld is a node whose rules the test writes, and a Tracker to which the test gives them.
type lookWorld struct {
	*lab.World
	*Tracker
	cleaner  *Cleaner
	family   lab.Family
	protocol lab.Protocol
	now      time.Time
}

// eachLook runs a test in both families, for TCP and for SCTP. Pod c drops what it gets.
func eachLook(t *testing.T, test func(*testing.T, *lookWorld)) {
	for _, f := range lab.Families() {
		for _, protocol := range []lab.Protocol{lab.TCP, lab.SCTP} {
			t.Run(fmt.Sprintf("%s/%s", f, protocol), func(t *testing.T) {
				w := &lookWorld{World: lab.New(t), Tracker: NewTracker(), family: f, protocol: protocol, now: time.Unix(1, 0)}
				w.At(t, "c").Must(t, "table inet s {\nchain c {\ntype filter hook input priority -300;\nmeta l4proto { tcp, sctp } drop\n}\n}\n", "nft", "-f", "-")
				c, err := Open(Options{NetNS: w.Node.Fd()})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }() // nothing is written
				w.cleaner = c
				test(t, w)
			})
		}
	}
}

// slice lists pods as serving.
func (w *lookWorld) slice(pods ...string) *state.Slice {
	sl := &state.Slice{Name: name("web-1"), Service: name("web"), Ports: []state.SlicePort{{Protocol: state.TCP, Port: 8080}}}
	for _, pod := range pods {
		sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: lab.PodAddress(w.family, pod), Ready: true})
	}
	return sl
}

// serve has the kernel send what goes to a place to one pod, and tells the Tracker. Without a pod, nobody has the place.
func (w *lookWorld) serve(t *testing.T, at netip.AddrPort, pods ...string) {
	t.Helper()
	rules, version, planned := "", map[lab.Family]string{lab.IPv4: "ip", lab.IPv6: "ip6"}[w.family], (*plan.Service)(nil)
	if len(pods) > 0 {
		to := netip.AddrPortFrom(lab.PodAddress(w.family, pods[0]), 8080)
		rules = fmt.Sprintf("%s daddr %s %s dport %d dnat to %s\n", version, at.Addr(), w.protocol, at.Port(), to)
		planned = &plan.Service{Ports: []plan.Port{{
			Family: state.FamilyOf(at.Addr()), Protocol: map[lab.Protocol]state.Protocol{lab.TCP: state.TCP, lab.SCTP: state.SCTP}[w.protocol],
			Frontends: []plan.Frontend{{Frontend: serviceport.Frontend{Addr: at.Addr(), Port: at.Port()}}},
		}}}
	}
	table := "table " + version + " t"
	w.Node.Must(t, table+"\ndelete "+table+"\n"+table+" {\nchain c {\ntype nat hook prerouting priority -100;\n"+rules+"}\n}\n", "nft", "-f", "-")
	w.Set(name("web"), planned, w.slice(pods...))
}

// settle looks until nothing waits, and returns how many connections were deleted.
func (w *lookWorld) settle(t *testing.T) (deleted int) {
	t.Helper()
	for len(w.waiting) > 0 {
		namespaces, _ := w.Look(w.now)
		results, err := w.cleaner.Clean(w.Stale(slices.Collect(maps.Keys(namespaces))...), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			deleted += r.Unanswered
		}
		w.Done()
		w.now = w.now.Add(lookPeriod)
	}
	return deleted
}

// ask has the client outside begin a connection, always from the same port, and repeat its first packet once.
func (w *lookWorld) ask(t *testing.T, to netip.AddrPort, want string) {
	t.Helper()
	r := w.At(t, lab.Outside).Ask(lab.Question{Protocol: w.protocol, To: to, Ports: lab.PortRange{Low: 40101, High: 40101}, Patience: 200 * time.Millisecond})
	if got := string(r.Outcome); got != want && r.Answer.Pod != want {
		t.Fatalf("%s, want %s", r, want)
	}
}

// TestEndpointVanishes: a connection that an endpoint did not answer goes on to it until a look deletes it. Then it reaches an
// endpoint that there is.
func TestEndpointVanishes(t *testing.T) {
	eachLook(t, func(t *testing.T, w *lookWorld) {
		vip := lab.AddressPort(w.family, "VIP1", 80)
		w.serve(t, vip, "c")
		w.settle(t)
		w.ask(t, vip, "dropped")
		w.serve(t, vip, "a")
		w.ask(t, vip, "dropped")
		if n := w.settle(t); n != 1 {
			t.Errorf("%d connections were deleted, want 1", n)
		}
		w.ask(t, vip, "a")
		w.serve(t, vip, "b")
		if n := w.settle(t); n != 0 {
			t.Errorf("%d connections with an answer were deleted", n)
		}
	})
}

// TestClientBeforeTheService: a connection that was there before the Service goes past it until a look deletes it. An open one to
// the host that has the address stays.
func TestClientBeforeTheService(t *testing.T) {
	eachLook(t, func(t *testing.T, w *lookWorld) {
		silent, open := netip.AddrPortFrom(lab.PodAddress(w.family, "c"), 8080), netip.AddrPortFrom(lab.PodAddress(w.family, "b"), 8080)
		w.serve(t, lab.AddressPort(w.family, "VIP1", 80), "a") // from now on the kernel tracks connections
		w.settle(t)
		x := w.At(t, lab.Outside)
		flow, first := x.OpenAndAsk(lab.Question{Protocol: w.protocol, To: open, Ports: lab.OwnPorts(1), Patience: time.Minute})
		if first.Answer.Pod != "b" {
			t.Fatal(first)
		}
		defer flow.Close()
		w.ask(t, silent, "dropped")
		for at, want := range map[netip.AddrPort]int{silent: 1, open: 0} {
			w.serve(t, at, "a")
			if at == silent {
				w.ask(t, silent, "dropped")
			}
			if n := w.settle(t); n != want {
				t.Errorf("%s: %d connections were deleted, want %d", at, n, want)
			}
		}
		if w.protocol == lab.TCP {
			if r := flow.Send(time.Minute); r.Answer.Pod != "b" {
				t.Errorf("the open connection: %s", r)
			}
		}
		w.serve(t, silent, "a")
		w.ask(t, silent, "a")
	})
}

// TestServiceGoes: a connection without an answer ends with its Service. One to a frontend that another Service has by then stays.
func TestServiceGoes(t *testing.T) {
	eachLook(t, func(t *testing.T, w *lookWorld) {
		vip := lab.AddressPort(w.family, "VIP1", 80)
		w.serve(t, vip, "c")
		w.settle(t)
		w.ask(t, vip, "dropped")
		w.serve(t, vip)
		if n := w.settle(t); n != 1 {
			t.Errorf("%d connections were deleted, want 1", n)
		}
	})
}
