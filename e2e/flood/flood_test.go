//go:build e2e

package flood

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// clients is how many clients with affinity the tests have: with two endpoints, they do not all stay by chance.
const clients = 24

// keptFrontend is a Service with affinity that is not flooded.
var keptFrontend = netip.MustParseAddrPort("10.96.0.14:80")

// seats returns who answers each client of a Service.
func (b *bed) seats(t *testing.T, to netip.AddrPort) (list []lab.Answer) {
	t.Helper()
	for i := range clients {
		from := lab.Member(lab.IPv4, "CROWD", i+1)
		a := b.At(t, lab.Outside).Once(t, lab.Question{Protocol: lab.TCP, From: from, To: to, Patience: daemon.Patience})
		list = append(list, lab.Answer{Pod: a.Pod, Port: a.Port})
	}
	return list
}

// TestFloodOfPackets sends packets with forged sources to a Service with affinity. Clients of another Service keep their
// endpoints, and new connections to others succeed. The map of affinity has a bounded number of entries.
func TestFloodOfPackets(t *testing.T) {
	for _, protocol := range []lab.Protocol{lab.TCP, lab.UDP} {
		t.Run(protocol.String(), func(t *testing.T) {
			b := newBed(t, service("shop", "kept", keptFrontend, true), slice("shop", "kept", pod("a", 8080), pod("b", 8080)))
			before := b.seats(t, keptFrontend)
			const forged, most = 50_000, 1 << 14 // client numbers of a service port
			b.burst(t, lab.Outside, protocol, stickyFrontend, forged)
			stop := b.flood(t, lab.Outside, protocol, stickyFrontend)
			b.connections(t, 200)
			stop()
			for i, after := range b.seats(t, keptFrontend) {
				if after != before[i] {
					t.Errorf("client %d moved from %+v to %+v", i, before[i], after)
				}
			}
			list, err := inspect.ReadAffinity(kernel.Options{NetNS: b.Node.Fd()})
			lab.Must(t, err)
			for _, a := range list {
				if a.Family == program.IPv4 && (a.Entries < most/2 || a.Entries > most+clients) {
					t.Errorf("%d entries of affinity after %d forged sources, want about %d", a.Entries, forged, most)
				}
			}
		})
	}
}

// TestFullTableOfForgedFlows: while the table of connections is full of flows without an answer, as a flood leaves them,
// the kernel makes room, and new connections succeed.
func TestFullTableOfForgedFlows(t *testing.T) {
	b := newBed(t)
	b.fillTable(t, halfOpen)
	b.connections(t, 200)
	if n, limit := b.tracked(t, "count"), b.tracked(t, "max"); n < limit*99/100 {
		t.Errorf("the table has %d of %d flows; it should be full", n, limit)
	}
	if c := b.check(t); !strings.Contains(c, "warning  table of connections") {
		t.Errorf("verdict check says\n%s", c)
	}
}

// TestFullTable: while the table of connections is full of flows with answers, new connections fail. Open ones go on, and
// the daemon follows changes and says why.
func TestFullTable(t *testing.T) {
	b := newBed(t)
	watch, y := b.stopwatch(t), b.At(t, "y")
	q := lab.Question{Protocol: lab.TCP, To: calmFrontend, Patience: daemon.Patience}
	open, _ := y.Hold(t, q)
	b.fillTable(t, assured)
	q.Patience = 2 * time.Second
	if r := y.Ask(q); r.Outcome != lab.Dropped {
		t.Errorf("a new connection: %s, want dropped: is the table full?", r)
	}
	if r := open.Send(daemon.Patience); r.Outcome != lab.Answered {
		t.Errorf("an open connection: %s", r)
	}
	watch.change(t)
	for end := time.Now().Add(daemon.Patience); !strings.Contains(b.daemon.Log(100), "the table of connections is full"); {
		if time.Now().After(end) {
			t.Fatal("the daemon does not say that the table is full")
		}
		time.Sleep(50 * time.Millisecond)
	}
	b.forget(t)
	b.connections(t, 20)
}

// forget empties the table of connections.
func (b *bed) forget(t testing.TB) {
	t.Helper()
	lab.Must(t, b.Node.ForgetFlows())
}

// check runs "verdict check" on the node.
func (b *bed) check(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	cmd := exec.Command(verdict, "check", "--backend=nft", "--manifests="+t.TempDir(), "--healthz-bind-address=")
	cmd.Stdout = &out
	lab.Must(t, b.Node.Start(cmd))
	_ = cmd.Wait() // its exit status tells about the other checks, too
	return out.String()
}

// TestManyChanges changes 10,000 Services of a tenant at once, four times. Connections to another Service succeed all the
// time, a change of another one arrives, and so does everything that the tenant wrote.
func TestManyChanges(t *testing.T) {
	const services = 10_000
	b := newBed(t, crowd(services, 0)...)
	watch := b.stopwatch(t)
	for round := range 4 {
		b.server.put(crowd(services, round+1)...)
		b.connections(t, 100)
		watch.change(t)
	}
	b.connections(t, 100)
	watch.catchUp(t)
	b.daemon.WaitFor(t, "end of the storm", func(s *socket.Status) bool { return s.LastError == "" })
	last := crowd(services, 4)[services-1].(interface{ GetName() string }).GetName()
	out, err := b.Node.Command(verdict, "list", "tenant/"+last)
	if err != nil || !strings.Contains(out, "10.24.39.15") {
		t.Errorf("%s is not where it should be: %v\n%s", last, err, out)
	}
}

// wide is a Service of the tenant with 1,000 external IPs, which depend on the round.
func wide(round int) object {
	o := service("tenant", "wide", netip.MustParseAddrPort("10.96.0.15:80"), false)
	for i := range 1000 {
		o.Spec.ExternalIPs = append(o.Spec.ExternalIPs, fmt.Sprintf("203.%d.%d.%d", round, i>>8, i%256))
	}
	return o
}

// TestLargeChanges replaces all addresses of a tenant's Service again and again, until his changes have to wait. A change
// of another namespace does not wait for them, and in the end connections go where the tenant wrote last.
func TestLargeChanges(t *testing.T) {
	b := newBedWithout(t)
	b.server.put(wide(0), slice("tenant", "wide", pod("a", 8080)))
	b.start(t, "--max-namespace-elements=20000", "--max-namespace-changes=2000")
	watch, round := b.stopwatch(t), 0
	for !strings.Contains(b.daemon.Log(1000), "a namespace changes too much") {
		if round++; round > 60 {
			t.Fatal("the tenant's changes never wait")
		}
		b.server.put(wide(round))
		watch.change(t)
	}
	b.server.put(wide(round + 1))
	watch.catchUp(t) // Services and slices come on streams of their own
	b.daemon.WaitFor(t, "end of the pause", func(*socket.Status) bool { return true })
	newest := netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, byte(round + 1), 3, 231}), 80)
	b.At(t, "y").Once(t, lab.Question{Protocol: lab.TCP, To: newest, Patience: daemon.Patience})
}
