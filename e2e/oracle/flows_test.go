//go:build !nokernel

package oracle_test

import (
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/oracle"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// flowsOf is how many flows TestFlows opens before each change.
const flowsOf = 24

// TestFlows opens flows, changes Services and endpoints at random, and sends the next packet of each flow. It goes where the
// model says: where the first one went, or where that of a new flow would go. proxier/README.md has this as a table.
func TestFlows(t *testing.T) {
	w := newWire(t, oracle.Random(rand.New(rand.NewPCG(*seed, 5))))
	p := newProxy(t, w)
	kept, ended := map[state.Protocol]int{}, 0
	for i := range *states {
		seed := *seed + uint64(i)
		r, before := rand.New(rand.NewPCG(seed, 7)), oracle.Random(rand.New(rand.NewPCG(seed, 5)))
		before.LoadBalancerCIDRs = nil // a setting, which stays
		p.write(t, before)
		open := w.open(t, before, r)
		after, what := change(r, before, oracle.Random(rand.New(rand.NewPCG(seed, 9))))
		p.write(t, after)
		for _, f := range open {
			got := w.exchange(t, after, f.Src, f.Dst.Addr(), f.next)
			stays, want := after.Keeps(f.Packet, f.at.dst), after.Ask(f.Packet)
			switch {
			case stays && len(got) == 1 && got[0] == f.at:
				kept[f.Protocol]++
			case !stays && compare(after, f.Packet, want, got) == nil:
				ended++
			default:
				t.Fatalf("seed %d, changed: %s: protocol %d from %s to %s, which went to %v: kept %t, otherwise %s %v; the node sent %v",
					seed, what, f.Protocol, f.Src, f.Dst, f.at, stays, want.Fate, want.Endpoints, got)
			}
		}
	}
	t.Logf("%d states: kept %v, %d UDP flows ended", *states, kept, ended)
	if len(kept) < 3 || ended == 0 {
		t.Error("flows of each protocol should be kept, and some of UDP should end")
	}
}

// proxy makes the rules of a state those of the kernel, and deletes the flows that are stale then.
type proxy struct {
	*dataplane.Dataplane
	tracker *conntrack.Tracker
	cleaner *conntrack.Cleaner
	store   *state.Store
	loop    *proxier.Proxier
	last    *oracle.Cluster
}

func newProxy(t *testing.T, w *wire) *proxy {
	t.Helper()
	engine, err := nft.Open(nft.Options{NetNS: w.node.Fd()})
	lab.Must(t, err)
	t.Cleanup(func() { lab.Must(t, engine.Close()) })
	p := &proxy{Dataplane: dataplane.New(dataplane.Options{Ruleset: engine}), tracker: conntrack.NewTracker(), store: state.NewStore()}
	p.cleaner, err = conntrack.Open(conntrack.Options{NetNS: w.node.Fd()})
	lab.Must(t, err)
	t.Cleanup(func() { lab.Must(t, p.cleaner.Close()) })
	return p
}

func (p *proxy) Set(planned *plan.Service) []state.Problem {
	problems := p.Dataplane.Set(planned)
	p.tracker.Set(planned.Name, planned)
	return problems
}

func (p *proxy) Delete(n state.Name) {
	p.Dataplane.Delete(n)
	p.tracker.Set(n, nil)
}

func (p *proxy) write(t *testing.T, c *oracle.Cluster) {
	t.Helper()
	if p.last != nil {
		p.last.RemoveFrom(p.store)
	}
	c.WriteTo(p.store)
	if p.loop == nil {
		p.loop = proxier.New(proxier.Options{
			Settings: settings(c), Store: p.store, Dataplane: p, Flows: noFlows{}, Observer: silent{}, Log: slog.New(slog.DiscardHandler),
			Primary: func() ([]netip.Addr, error) { return c.NodeAddrs, nil },
		})
	}
	lab.Must(t, p.loop.Once())
	p.last = c
	p.tracker.SetNodePortAddresses(c.NodeAddrs)
	stale := p.tracker.Begin(p.tracker.Waiting()...)
	_, err := p.cleaner.Clean(stale, c.NodeAddrs)
	lab.Must(t, err)
	p.tracker.End(&stale)
}

// flow is a flow that goes to an endpoint.
type flow struct {
	oracle.Packet
	at   seen   // its first packet, as the node sent it
	next []byte // its next packet
}

// open opens flows. TCP connections have an answer.
func (w *wire) open(t *testing.T, c *oracle.Cluster, r *rand.Rand) (list []flow) {
	t.Helper()
	served := slices.DeleteFunc(c.Packets(), func(p oracle.Packet) bool {
		// The node itself would end a connection that it does not know.
		return c.Ask(p).Fate != oracle.Served || p.Protocol == state.TCP && slices.Contains(c.NodeAddrs, p.Src)
	})
	for range min(flowsOf, len(served)) {
		f := flow{Packet: served[r.IntN(len(served))]}
		got := w.send(t, c, f.Packet)
		if err := compare(c, f.Packet, c.Ask(f.Packet), got); err != nil {
			t.Fatal(err)
		}
		f.at, f.next = got[0], encode(f.Src, w.port, f.Dst, uint8(f.Protocol))
		if f.Protocol == state.TCP {
			answer := encodeNumbered(f.at.dst.Addr(), f.at.dst.Port(), f.at.src, unix.IPPROTO_TCP, 0, tcpSYN|tcpACK)
			if back := w.exchange(t, c, f.at.dst.Addr(), f.at.src.Addr(), answer); len(back) != 1 {
				t.Fatalf("the answer to %v: the node sent %v", f.at, back)
			}
			f.next = encodeNumbered(f.Src, w.port, f.Dst, unix.IPPROTO_TCP, 1, tcpACK)
		}
		list = append(list, f)
	}
	return list
}

// change replaces some parts of a cluster by those of another one. It says which.
func change(r *rand.Rand, c, by *oracle.Cluster) (*oracle.Cluster, string) {
	out, what := *c, ""
	out.Failed = maps.Clone(c.Failed)
	out.Services, out.Slices = nil, nil
	coin := func(name string) bool {
		if r.IntN(3) > 0 {
			return false
		}
		what += name + ", "
		return true
	}
	for i, s := range c.Services {
		svc := *s
		if i < len(by.Services) {
			other := by.Services[i]
			if coin(s.Name.Name + " source ranges") {
				svc.SourceRanges = other.SourceRanges
			}
			if coin(s.Name.Name + " policies") {
				svc.InternalLocal, svc.ExternalLocal, svc.Affinity, svc.AllDown = other.InternalLocal, other.ExternalLocal, other.Affinity, other.AllDown
			}
			if coin(s.Name.Name + " addresses") {
				svc.ExternalIPs, svc.LoadBalancerIPs = other.ExternalIPs, other.LoadBalancerIPs
			}
			if coin(s.Name.Name + " ports") {
				svc.Ports = other.Ports
			}
			if coin(s.Name.Name + " health") {
				out.Failed[s.Name] = by.Failed[s.Name]
			}
		}
		if r.IntN(8) > 0 {
			out.Services = append(out.Services, &svc)
		} else {
			what += s.Name.Name + " deleted, "
		}
	}
	for _, sl := range c.Slices {
		if i := slices.IndexFunc(by.Slices, func(o *state.Slice) bool { return o.Name == sl.Name }); i >= 0 && coin(sl.Name.Name) {
			sl = by.Slices[i]
		}
		out.Slices = append(out.Slices, sl)
	}
	return &out, what
}
