//go:build !nokernel

package proxier

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func TestMain(m *testing.M) {
	os.Exit(netns.Main(m))
}

// flowWorld is a loop over a real kernel: rules, connection tracking and clients in a network namespace.
type flowWorld struct {
	*Proxier
	store *state.Store
	ns    *netns.Namespace
	rules *refusing
	flows *slow
}

// refusing is the nft engine with a fault: the kernel refuses some transactions.
type refusing struct {
	*nft.Engine
	fail int
}

func (r *refusing) Apply() (nft.Result, error) {
	if r.fail > 0 {
		r.fail--
		return nft.Result{Outcome: kernel.Rejected}, errors.New("injected: the kernel refuses")
	}
	return r.Engine.Apply()
}

// slow is a Cleaner that waits until the test lets it begin.
type slow struct {
	*conntrack.Cleaner
	begin chan struct{}
}

func (s *slow) Clean(stale conntrack.Stale, nodePorts []netip.Addr) ([]conntrack.Result, error) {
	<-s.begin
	return s.Cleaner.Clean(stale, nodePorts)
}

func newFlowWorld(t *testing.T) *flowWorld {
	t.Helper()
	w := &flowWorld{store: state.NewStore(), ns: netns.New(t)}
	w.ns.Must(t, "addr add 10.0.0.1/32 dev lo\nroute add 10.96.0.0/16 dev lo\n", "ip", "-batch", "-")
	engine, err := nft.Open(nft.Options{NetNS: w.ns.Fd()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	cleaner, err := conntrack.Open(conntrack.Options{NetNS: w.ns.Fd()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cleaner.Close() })
	w.rules, w.flows = &refusing{Engine: engine}, &slow{Cleaner: cleaner, begin: make(chan struct{}, 100)}
	settings := config.Default()
	settings.NodeName, settings.MinSyncPeriod = "n1", 0
	w.Proxier = New(Options{
		Settings: &settings, Store: w.store, Flows: w.flows, Observer: &watcher{},
		Dataplane: dataplane.New(dataplane.Options{Ruleset: w.rules}),
		Primary:   func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.168.7.1")}, nil },
		Log:       slog.New(slog.DiscardHandler),
	})
	for i := range 5 {
		w.store.SetService(udpService(i), nil)
		w.store.SetSlice(udpSlice(i), nil)
	}
	w.store.MarkSynced()
	w.pass(t)
	w.clean()
	return w
}

func udpService(i int) *state.Service {
	svc := service(fmt.Sprintf("dns-%d", i), clusterIP(i), 1)
	svc.Ports = []state.ServicePort{{Name: "dns", Protocol: state.UDP, Port: 53}}
	return svc
}

func udpSlice(i int) *state.Slice {
	sl := slice(fmt.Sprintf("dns-%d", i), "10.0.0.1")
	sl.Ports = []state.SlicePort{{Name: "dns", Protocol: state.UDP, Port: 5353}}
	return sl
}

func clusterIP(i int) string { return fmt.Sprintf("10.96.0.%d", i+1) }

func (w *flowWorld) delete(services ...int) {
	for _, i := range services {
		w.store.DeleteService(state.Name{Namespace: "default", Name: fmt.Sprintf("dns-%d", i)})
	}
}

func (w *flowWorld) pass(t *testing.T) {
	t.Helper()
	if err := w.Once(); err != nil {
		t.Fatal(err)
	}
}

// clean lets cleanings finish until none is under way.
func (w *flowWorld) clean() {
	for w.rest(); w.Proxier.flows.Done() != nil; w.rest() {
		w.flows.begin <- struct{}{}
		w.Proxier.flows.Finish(<-w.Proxier.flows.Done())
	}
}

// rest waits until a cleaning may begin again.
func (w *flowWorld) rest() {
	if c := w.Proxier.flows; c.Retry() != nil {
		<-c.Retry()
		c.TryAgain()
	}
}

// send has a client of every Service send one packet, always from the same port.
func (w *flowWorld) send(t *testing.T, services ...int) {
	t.Helper()
	w.ns.MustDo(t, func() error {
		for _, i := range services {
			from := &net.UDPAddr{Port: 2000 + i}
			c, err := net.DialUDP("udp4", from, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(clusterIP(i)+":53")))
			if err != nil {
				return err
			}
			// Where no rule is in force, the kernel may answer with an ICMP error, which is no concern of this test.
			_, _ = c.Write([]byte("x"))
			if err := c.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// expect compares the Services whose flows still go to an endpoint.
func (w *flowWorld) expect(t *testing.T, when string, want ...int) {
	t.Helper()
	loads, err := conntrack.Count(conntrack.Options{NetNS: w.ns.Fd()}, state.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for r := range loads {
		if r.Protocol == unix.IPPROTO_UDP {
			got = append(got, int(r.Dst.Addr().As4()[3])-1)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s: the flows of Services %v go to endpoints, want %v", when, got, want)
	}
}

// TestServicesDeletedAtAboutTheSameTime: three Services are deleted while the flows of a fourth are being removed. All
// their clients keep sending.
func TestServicesDeletedAtAboutTheSameTime(t *testing.T) {
	w := newFlowWorld(t)
	w.send(t, 0, 1, 2, 3, 4)
	w.expect(t, "before", 0, 1, 2, 3, 4)
	w.delete(0)
	w.pass(t)
	w.rest()
	if w.Proxier.flows.Done() == nil {
		t.Fatal("no cleaning is under way although a Service was deleted")
	}
	w.delete(1)
	w.pass(t)
	w.delete(2, 3)
	w.pass(t)
	w.clean()
	w.send(t, 0, 1, 2, 3, 4)
	w.expect(t, "after all cleanings", 4)
}

// TestNoCleaningWhileOldRulesAreInForce: a cleaning ends after a pass that the kernel refused. The old rules can still
// make flows then, so what that pass changed must be cleaned later.
func TestNoCleaningWhileOldRulesAreInForce(t *testing.T) {
	w := newFlowWorld(t)
	w.send(t, 0)
	w.delete(0)
	w.pass(t)
	w.rest()
	w.delete(1)
	w.rules.fail = 1
	if err := w.Once(); err == nil {
		t.Fatal("no error although the kernel refused the rules")
	}
	w.clean()
	w.send(t, 1)
	w.expect(t, "while the old rules are in force", 1)
	w.pass(t)
	w.clean()
	w.expect(t, "after the next pass")
}

// TestNodePortAddressesOfFlows: clients send to a node port while the node gets and loses addresses.
func TestNodePortAddressesOfFlows(t *testing.T) {
	w := newFlowWorld(t)
	w.ns.Must(t, "addr add 192.168.7.1/32 dev lo\naddr add 192.168.7.2/32 dev lo\n", "ip", "-batch", "-")
	svc := udpService(0)
	svc.Ports[0].NodePort = 30053
	w.store.SetService(svc, nil)
	w.store.SetHostAddresses([]netip.Addr{netip.MustParseAddr("192.168.7.1"), netip.MustParseAddr("192.168.7.2")})
	send := func() {
		w.ns.MustDo(t, func() error {
			for i := range 2 {
				to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 7, byte(i + 1)}), 30053))
				c, err := net.DialUDP("udp4", &net.UDPAddr{Port: 2000 + i}, to)
				if err != nil {
					return err
				}
				_, _ = c.Write([]byte("x")) // where node ports do not answer, the kernel may refuse
				if err := c.Close(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	w.pass(t)
	w.clean()
	send()
	w.expect(t, "only the primary address", 0)
	for _, tt := range []struct {
		words string
		want  []int
	}{{"192.168.7.0/24", []int{0, 1}}, {"192.168.7.2/32", []int{1}}, {"primary", []int{0}}} {
		settings := config.Default()
		settings.NodeName, settings.MinSyncPeriod = "n1", 0
		settings.NodePortAddresses = []string{tt.words}
		w.reconfigure(&settings)
		w.pass(t)
		w.clean()
		send()
		w.expect(t, "node ports at "+tt.words, tt.want...)
	}
}
