package explain

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/e2e/memkernel"
	"github.com/verdict-proxy/verdict/e2e/oracle"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

var (
	oraclePairs = flag.Int("oracle", 20_000, "how many pairs of a state and a packet TestOracle tries")
	oracleSeed  = flag.Uint64("oracle-seed", 1, "the first seed of TestOracle")
)

// perState is how many packets TestOracle sends into a state.
const perState = 500

// TestOracle asks an independent model of the Service API and the rules that the program writes for the same state what becomes of
// a packet. Both must say the same.
func TestOracle(t *testing.T) {
	states := max(1, *oraclePairs/perState)
	for i := range states {
		seed := *oracleSeed + uint64(i)
		c := oracle.Random(rand.New(rand.NewPCG(seed, 5)))
		if differs, k := firstDifference(t, c, c, seed); differs != "" {
			t.Fatalf("seed %d: %s\n%s\n%s", seed, differs, describe(c), k.tables)
		}
	}
	t.Logf("%d pairs of a state and a packet", states*perState)
}

// firstDifference sends packets to the rules for one cluster, and asks the model about another one.
func firstDifference(t *testing.T, written, asked *oracle.Cluster, seed uint64) (string, *imagined) {
	t.Helper()
	k := newImagined(t, written)
	defer k.Close()
	r, packets := rand.New(rand.NewPCG(seed, 6)), asked.Packets()
	for range perState {
		if d := difference(k, asked, packets[r.IntN(len(packets))]); d != "" {
			return d, k
		}
	}
	return "", k
}

// difference compares the answers about one packet; "": they are equal.
func difference(k *imagined, c *oracle.Cluster, p oracle.Packet) string {
	packet := fmt.Sprintf("%s from %s to %s", p.Protocol, p.Src, p.Dst)
	ask, q := explanationOf, question{src: p.Src, dst: p.Dst, protocol: uint8(p.Protocol)}
	if to, ok := c.Translates[p.Dst.Addr()]; ok {
		packet += fmt.Sprintf(", which another table translates to %s", to)
		ask = func(k kernel, q question) (*Explanation, error) {
			return afterOthers(k, q, netip.AddrPortFrom(to, q.dst.Port()))
		}
	}
	e, err := ask(k, q)
	if err != nil {
		return fmt.Sprintf("%s: %v", packet, err)
	}
	want, got := c.Ask(p), e.Verdict
	slices.SortFunc(got.Endpoints, netip.AddrPort.Compare)
	if string(got.Outcome) == string(want.Fate) && slices.Equal(got.Endpoints, want.Endpoints) && got.SourceSeen == want.Source {
		return ""
	}
	return fmt.Sprintf("%s (%s): the rules: %s %v, source %q; the model: %s %v, source %q", packet, want.Kind,
		got.Outcome, got.Endpoints, got.SourceSeen, want.Fate, want.Endpoints, want.Source)
}

// afterOthers sends a packet that another table has translated to the rules behind.
func afterOthers(k kernel, q question, to netip.AddrPort) (*Explanation, error) {
	x := newExplainer(k, q)
	way, err := k.Route(to.Addr())
	_, originErr := x.origin()
	if err = errors.Join(err, originErr); err != nil {
		return nil, err
	}
	if stopped, err := x.stoppedByPolicy(x.hooksAfter(way), to); stopped || err != nil {
		return x.Explanation, err
	}
	x.end(Passed, "")
	x.Verdict.Endpoints = []netip.AddrPort{to}
	return x.Explanation, x.masquerading(x.Verdict.Endpoints, false)
}

// TestOracleFindsBugs plants bugs: the rules are written for a state in which something was overlooked. The model finds each.
func TestOracleFindsBugs(t *testing.T) {
	each := func(change func(*state.Service)) func(*oracle.Cluster) {
		return func(c *oracle.Cluster) {
			for _, svc := range c.Services {
				change(svc)
			}
		}
	}
	endpoints := func(change func(*state.Slice, *state.Endpoint)) func(*oracle.Cluster) {
		return func(c *oracle.Cluster) {
			for _, sl := range c.Slices {
				for i := range sl.Endpoints {
					change(sl, &sl.Endpoints[i])
				}
			}
		}
	}
	for bug, plant := range map[string]func(*oracle.Cluster){
		"internalTrafficPolicy is overlooked":   each(func(s *state.Service) { s.InternalLocal = false }),
		"externalTrafficPolicy is overlooked":   each(func(s *state.Service) { s.ExternalLocal = false }),
		"source ranges are overlooked":          each(func(s *state.Service) { s.SourceRanges = nil }),
		"on-all-down is overlooked":             each(func(s *state.Service) { s.AllDown = state.KeepAll }),
		"external IPs are overlooked":           each(func(s *state.Service) { s.ExternalIPs = nil }),
		"a port is taken for that of TCP":       each(func(s *state.Service) { s.Ports[len(s.Ports)-1].Protocol = state.TCP }),
		"node ports are off by one":             each(func(s *state.Service) { s.Ports[0].NodePort += min(1, s.Ports[0].NodePort) }),
		"terminating endpoints are overlooked":  endpoints(func(_ *state.Slice, e *state.Endpoint) { e.Serving = e.Serving && e.Ready }),
		"hints are overlooked":                  endpoints(func(_ *state.Slice, e *state.Endpoint) { e.Hints = nil }),
		"weight 0 is overlooked":                endpoints(func(sl *state.Slice, _ *state.Endpoint) { sl.Weight = max(sl.Weight, 1) }),
		"backups are taken for primaries":       endpoints(func(sl *state.Slice, _ *state.Endpoint) { sl.Backup = false }),
		"all endpoints are taken for local":     endpoints(func(_ *state.Slice, e *state.Endpoint) { e.Node = "node-1" }),
		"health is overlooked":                  func(c *oracle.Cluster) { c.Failed = nil },
		"pods are taken for clients outside":    func(c *oracle.Cluster) { c.PodRanges = nil },
		"pods of elsewhere are not looked for":  func(c *oracle.Cluster) { c.PodCIDRs = nil },
		"wrong podCIDRs are believed":           endpoints(func(_ *state.Slice, e *state.Endpoint) { e.Node = strings.TrimPrefix(e.Node, "node-2") }),
		"unused cluster IPs are not dropped":    func(c *oracle.Cluster) { c.ServiceCIDRs = nil },
		"ranges of load balancers are ignored":  func(c *oracle.Cluster) { c.LoadBalancerCIDRs = nil },
		"ranges nobody can read let clients in": each(func(s *state.Service) { s.NoSource = false }),
		"the zone of the node is overlooked":    func(c *oracle.Cluster) { c.Zone = "" },
		"one family of node ports is forgotten": func(c *oracle.Cluster) { c.NodeAddrs = c.NodeAddrs[:1] },
	} {
		t.Run(bug, func(t *testing.T) {
			for seed := uint64(1); ; seed++ {
				written := oracle.Random(rand.New(rand.NewPCG(seed, 5)))
				plant(written)
				if d, _ := firstDifference(t, written, oracle.Random(rand.New(rand.NewPCG(seed, 5))), seed); d != "" {
					return
				}
				if seed == 300 {
					t.Fatal("the model does not find the bug")
				}
			}
		})
	}
}

func describe(c *oracle.Cluster) string {
	var b strings.Builder
	fmt.Fprintf(&b, "node %s in zone %q\n", c.Node, c.Zone)
	for _, svc := range c.Services {
		fmt.Fprintf(&b, "%s: cluster IPs %v, external IPs %v, load balancer IPs %v from %v, ports %v, local inside %t outside %t, all down: %s\n",
			svc.Name, svc.ClusterIPs, svc.ExternalIPs, svc.LoadBalancerIPs, svc.SourceRanges, svc.Ports, svc.InternalLocal, svc.ExternalLocal, svc.AllDown)
		fmt.Fprintf(&b, "  failed %v\n", c.Failed[svc.Name])
	}
	for _, sl := range c.Slices {
		fmt.Fprintf(&b, "%s of %s: %s, weight %d, backup %t, ports %v\n", sl.Name, sl.Service, sl.Family.Version(), sl.Weight, sl.Backup, sl.Ports)
		for _, e := range sl.Endpoints {
			fmt.Fprintf(&b, "  %+v, hints %+v\n", e, e.Hints)
		}
	}
	return b.String()
}

// imagined is a kernel in memory with the rules for a cluster.
type imagined struct {
	*inspect.Tables
	cluster *oracle.Cluster
	tables  *memkernel.NFTables
	fast    socket.FastPath // as the daemon says
	deaf    error           // of the daemon
	stays   string          // the link that keeps connections from the fast path
	outside string          // the link to what is no pod
}

func newImagined(t *testing.T, c *oracle.Cluster, change ...func(*config.Settings)) *imagined {
	t.Helper()
	s := config.Default()
	s.NodeName, s.MinSyncPeriod, s.DetectLocalMode = c.Node, 0, config.DetectClusterCIDR
	for _, r := range c.PodRanges {
		s.ClusterCIDRs = append(s.ClusterCIDRs, r.String())
	}
	for _, r := range c.LoadBalancerCIDRs {
		s.LoadBalancerCIDRs = append(s.LoadBalancerCIDRs, r.String())
	}
	for _, set := range change {
		set(&s)
	}
	rules := &memkernel.NFTables{}
	e, err := nft.New(rules, nft.Options{})
	if err != nil {
		t.Fatal(err)
	}
	k := &imagined{cluster: c, tables: rules, outside: "eth0"}
	store := c.Store()
	loop := proxier.New(proxier.Options{
		Settings: &s, Store: store, Dataplane: dataplane.New(dataplane.Options{Ruleset: e}), Flows: noFlows{}, Observer: silent{}, Log: slog.New(slog.DiscardHandler),
		Primary: func() ([]netip.Addr, error) { return c.NodeAddrs, nil },
	})
	if err := loop.Once(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the flowtable gets the devices first
		if err := e.FollowDevices([]string{"eth0", "pods"}); err != nil {
			t.Fatal(err)
		}
	}
	k.Tables = inspect.NewTables(rules, rules.Close)
	return k
}

func (k *imagined) Close() { _ = k.Tables.Close() } // it is in memory

func (*imagined) Others(program.Family) ([]inspect.ForeignChain, error) { return nil, nil }

func (k *imagined) Route(to netip.Addr) (route, error) {
	if slices.Contains(k.cluster.NodeAddrs, to) {
		return route{local: true}, nil
	}
	if slices.ContainsFunc(k.cluster.PodRanges, func(r netip.Prefix) bool { return r.Contains(to) }) {
		return route{link: "pods", stays: k.stays == "pods"}, nil
	}
	return route{link: k.outside, stays: k.stays == k.outside}, nil
}

func (*imagined) Flows(conntrack.Query) ([]conntrack.FoundFlow, error) { return nil, nil }

func (*imagined) Server(ipvsctl.Key) (s ipvsctl.Status, found bool, err error) { return s, false, nil }

func (k *imagined) FastPath(string) (socket.FastPath, error) { return k.fast, k.deaf }

func (*imagined) Draining() (bool, error) { return false, nil }

func (*imagined) LeftOut(string) ([]socket.Endpoint, error) { return nil, socket.ErrNotRunning }

func (*imagined) Problems(string) ([]socket.Problem, error) { return nil, nil }

func (*imagined) Legacy(program.Family) []string { return nil }

// noFlows has no flows to clean.
type noFlows struct{}

func (noFlows) Clean(conntrack.Stale, []netip.Addr) ([]conntrack.Result, error) { return nil, nil }

// silent is an observer that is not interested.
type silent struct{}

func (silent) Pending(time.Time)               {}
func (silent) PassDone(report.Pass)            {}
func (silent) Problems(report.Problems)        {}
func (silent) FlowsCleaned([]conntrack.Result) {}
func (silent) AsWanted(time.Time)              {}
func (silent) Repaired(report.Repair)          {}
