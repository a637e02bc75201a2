//go:build !nokernel

package oracle_test

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/e2e/oracle"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/report"
)

func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

var (
	states = flag.Int("states", 60, "how many random states TestPackets writes into the kernel")
	seed   = flag.Uint64("seed", 1, "the first seed of TestPackets")
)

// perState is how many packets TestPackets sends into a state.
const perState = 30

// TestPackets writes random states into the kernel, one after the other, and sends real packets of random clients. The kernel
// does with each what the model says.
func TestPackets(t *testing.T) {
	w := newWire(t, oracle.Random(rand.New(rand.NewPCG(*seed, 5))))
	fates := map[oracle.Fate]int{}
	for i := range *states {
		seed := *seed + uint64(i)
		c := oracle.Random(rand.New(rand.NewPCG(seed, 5)))
		write(t, w.node, c)
		translate(t, w.node, c)
		for _, p := range draw(c, seed) {
			want, got := c.Ask(p), w.send(t, c, p)
			fates[want.Fate]++
			if err := compare(c, p, want, got); err != nil {
				rules, _ := w.node.Command("nft", "list", "ruleset")
				t.Fatalf("seed %d: protocol %d from %s to %s (%s): %v; the model: %s %v, source %q\n%s",
					seed, p.Protocol, p.Src, p.Dst, want.Kind, err, want.Fate, want.Endpoints, want.Source, rules)
			}
		}
	}
	t.Logf("%d states, %d packets: %v", *states, *states*perState, fates)
	for _, f := range []oracle.Fate{oracle.Served, oracle.Refused, oracle.Dropped, oracle.Passed} {
		if fates[f] == 0 {
			t.Errorf("no packet is %s", f)
		}
	}
}

// TestPacketsFindBugs writes a state in which something was overlooked. The packets must show each such bug.
func TestPacketsFindBugs(t *testing.T) {
	for bug, plant := range map[string]func(*oracle.Cluster){
		"source ranges are overlooked": func(c *oracle.Cluster) {
			for _, svc := range c.Services {
				svc.SourceRanges = nil
			}
		},
		"pods are taken for clients outside": func(c *oracle.Cluster) { c.PodRanges = nil },
		"unused cluster IPs are not dropped": func(c *oracle.Cluster) { c.ServiceCIDRs = nil },
		"health is overlooked":               func(c *oracle.Cluster) { c.Failed = nil },
		"ranges of load balancers":           func(c *oracle.Cluster) { c.LoadBalancerCIDRs = nil },
	} {
		t.Run(bug, func(t *testing.T) {
			w := newWire(t, oracle.Random(rand.New(rand.NewPCG(1, 5))))
			for seed := uint64(1); seed <= 100; seed++ {
				written, c := oracle.Random(rand.New(rand.NewPCG(seed, 5))), oracle.Random(rand.New(rand.NewPCG(seed, 5)))
				plant(written)
				write(t, w.node, written)
				translate(t, w.node, c)
				for _, p := range draw(c, seed) {
					if compare(c, p, c.Ask(p), w.send(t, c, p)) != nil {
						return
					}
				}
			}
			t.Error("no packet shows the bug")
		})
	}
}

// draw draws packets, as many of each fate.
func draw(c *oracle.Cluster, seed uint64) (out []oracle.Packet) {
	r, fates, order := rand.New(rand.NewPCG(seed, 6)), map[oracle.Fate][]oracle.Packet{}, []oracle.Fate{}
	for _, p := range c.Packets() {
		fate := c.Ask(p).Fate
		if fates[fate] == nil {
			order = append(order, fate)
		}
		fates[fate] = append(fates[fate], p)
	}
	for i := range perState {
		list := fates[order[i%len(order)]]
		out = append(out, list[r.IntN(len(list))])
	}
	return out
}

// compare returns an error if the kernel has not done with a packet what the model says.
func compare(c *oracle.Cluster, p oracle.Packet, want oracle.Answer, got []seen) error {
	var sent, refusals []seen
	for _, s := range got {
		if s.refusal {
			refusals = append(refusals, s)
		} else {
			sent = append(sent, s)
		}
	}
	wrong, to := fmt.Errorf("the node sent %v, and refused with %v", sent, refusals), p.Dst
	if want.Fate == oracle.Passed && len(want.Endpoints) > 0 {
		to = want.Endpoints[0]
	}
	switch {
	case want.Fate == oracle.Served:
		if len(sent) != 1 || len(refusals) > 0 || !slices.Contains(want.Endpoints, sent[0].dst) {
			return wrong
		}
		asNode := want.Source == "node" || want.Source == "both" && sent[0].dst.Addr() == p.Src
		if src := sent[0].src.Addr(); asNode != slices.Contains(c.NodeAddrs, src) && !slices.Contains(c.NodeAddrs, p.Src) || !asNode && src != p.Src {
			return fmt.Errorf("the endpoint sees %s", src)
		}
	case want.Fate == oracle.Refused:
		if len(refusals) == 0 || len(sent) > 0 {
			return wrong
		}
	case want.Fate == oracle.Dropped:
		if len(got) > 0 {
			return wrong
		}
	case slices.Contains(c.NodeAddrs, to.Addr()): // the node answers itself that nobody listens
		if len(sent) > 0 {
			return wrong
		}
	case len(sent) != 1 || len(refusals) > 0 || sent[0].dst != to || sent[0].src.Addr() != p.Src:
		return wrong
	}
	return nil
}

// translate makes the rules of another table, which translates destinations before Verdict sees them.
func translate(t *testing.T, node *netns.Namespace, c *oracle.Cluster) {
	t.Helper()
	var text strings.Builder
	for family, v4 := range map[string]bool{"ip": true, "ip6": false} {
		var rules string
		for from, to := range c.Translates {
			if from.Is4() == v4 {
				rules += fmt.Sprintf("%s daddr %s dnat to %s; ", family, from, to)
			}
		}
		fmt.Fprintf(&text, `table %[1]s other; delete table %[1]s other; table %[1]s other {
			chain in { type nat hook prerouting priority -101; %[2]s }
			chain out { type nat hook output priority -101; %[2]s }
		}
		`, family, rules)
	}
	lab.Must(t, node.Load(text.String()))
}

// write makes the rules of a state those of the kernel, as a daemon that starts does.
func write(t *testing.T, node *netns.Namespace, c *oracle.Cluster) {
	t.Helper()
	engine, err := nft.Open(nft.Options{NetNS: node.Fd()})
	lab.Must(t, err)
	loop := proxier.New(proxier.Options{
		Settings: settings(c), Store: c.Store(), Dataplane: dataplane.New(dataplane.Options{Ruleset: engine}), Flows: noFlows{},
		Observer: silent{}, Log: slog.New(slog.DiscardHandler),
		Primary: func() ([]netip.Addr, error) { return c.NodeAddrs, nil },
	})
	lab.Must(t, errors.Join(loop.Once(), engine.Close()))
}

func settings(c *oracle.Cluster) *config.Settings {
	s := config.Default()
	s.NodeName, s.MinSyncPeriod, s.DetectLocalMode = c.Node, 0, config.DetectClusterCIDR
	for _, r := range c.PodRanges {
		s.ClusterCIDRs = append(s.ClusterCIDRs, r.String())
	}
	for _, r := range c.LoadBalancerCIDRs {
		s.LoadBalancerCIDRs = append(s.LoadBalancerCIDRs, r.String())
	}
	return &s
}

// noFlows removes no flows: the first packets of new connections have none.
type noFlows struct{}

func (noFlows) Clean(conntrack.Stale, []netip.Addr) ([]conntrack.Result, error) { return nil, nil }

// silent is an observer that is not interested.
type silent struct{}

func (silent) Pending(time.Time)               {}
func (silent) PassDone(report.Pass)            {}
func (silent) Problems(report.Problems)        {}
func (silent) FlowsCleaned([]conntrack.Result) {}
func (silent) Repaired(report.Repair)          {}
func (silent) AsWanted(time.Time)              {}
