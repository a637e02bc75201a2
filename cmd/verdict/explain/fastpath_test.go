package explain

import (
	"cmp"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/e2e/oracle"
	nftkernel "github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// fastService is a Service at a cluster IP and a node port, with an endpoint on another node.
func fastService(c *oracle.Cluster, name, vip string, nodePort uint16, change func(*state.Service)) {
	n := state.Name{Namespace: "shop", Name: name}
	svc := &state.Service{Name: n, ClusterIPs: []netip.Addr{netip.MustParseAddr(vip)}, Ports: []state.ServicePort{
		{Name: "http", Protocol: state.TCP, Port: 80, NodePort: nodePort}, {Name: "sip", Protocol: state.SCTP, Port: 90}, {Name: "odd", Protocol: state.TCP, Port: 30080},
	}}
	change(svc)
	c.Services = append(c.Services, svc)
	sl := &state.Slice{Name: n, Service: n, Family: state.IPv4, Weight: 1, Endpoints: []state.Endpoint{{Addr: netip.MustParseAddr("10.0.2.1"), Ready: true, Serving: true, Node: "other"}}}
	for _, p := range svc.Ports {
		sl.Ports = append(sl.Ports, state.SlicePort{Name: p.Name, Protocol: p.Protocol, Port: 8080})
	}
	c.Slices = append(c.Slices, sl)
}

// TestFastPath: the row says what the rules offer to the fast path, and why they do not offer something. Without the option there is none.
func TestFastPath(t *testing.T) {
	c := &oracle.Cluster{Node: "n1", NodeAddrs: []netip.Addr{netip.MustParseAddr("192.168.7.1")}, PodRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}}
	fastService(c, "web", "10.96.0.10", 30080, func(*state.Service) {})
	fastService(c, "slow", "10.96.0.11", 30081, func(svc *state.Service) { svc.SlowPath = true })
	on := func(s *config.Settings) { s.FastPath, s.FastPathAfter = config.FastPathServices, 12 }
	annotation := "the annotation verdict-proxy.github.io/fast-path is off"
	daemon := socket.FastPath{After: 12, OnRules: []socket.OnRules{
		{Port: "shop/slow:http", Family: "IPv4", Why: annotation}, {Port: "shop/slow:odd", Family: "IPv4", Why: annotation},
	}}
	stays := "The connection stays on the rules: it comes or leaves by a bridge, and " + nftkernel.WhyBridgesStay + "."
	const skips = "After 12 packets, packets of the connection skip the rules of this node."
	for _, tt := range []struct {
		name, from, to, want, evidence string
		protocol                       state.Protocol
		fast                           socket.FastPath
		deaf                           error
		bridge, device                 string
		set                            func(*config.Settings)
	}{
		{name: "off", from: "10.0.1.1", to: "10.96.0.10:80", set: func(*config.Settings) {}},
		{name: "off, without the daemon", from: "10.0.1.1", to: "10.96.0.10:80", set: func(*config.Settings) {}, deaf: socket.ErrNotRunning},
		{name: "cluster IP", from: "10.0.1.1", to: "10.96.0.10:80", fast: daemon, set: on, want: skips, evidence: "ip verdict fast-path { 10.96.0.10 . tcp . 80 }"},
		{name: "node port", from: "192.0.2.9", to: "192.168.7.1:30080", fast: daemon, set: on, want: skips, evidence: "ip verdict fast-path-nodeports { tcp . 30080 }"},
		{name: "without the daemon", from: "10.0.1.1", to: "10.96.0.10:80", deaf: socket.ErrNotRunning, set: on, want: skips},
		{name: "annotation", from: "10.0.1.1", to: "10.96.0.11:80", fast: daemon, set: on, want: "The connection stays on the rules: " + annotation + "."},
		{name: "the number of another node port", from: "10.0.1.1", to: "10.96.0.11:30080", fast: daemon, set: on, want: "The connection stays on the rules: " + annotation + "."},
		{name: "annotation, without the daemon", from: "10.0.1.1", to: "10.96.0.11:80", deaf: socket.ErrNotRunning, set: on,
			want: "The connection stays on the rules: the tables do not offer it to the fast path; the daemon knows why, and does not answer."},
		{name: "this node", from: "192.168.7.1", to: "10.96.0.10:80", fast: daemon, set: on,
			want: "The connection stays on the rules: this node itself is one of its ends, and only packets that it forwards can skip them."},
		{name: "endpoint behind a bridge", from: "192.0.2.9", to: "192.168.7.1:30080", fast: daemon, set: on, bridge: "pods", want: stays},
		{name: "client behind a bridge", from: "192.0.2.9", to: "192.168.7.1:30080", fast: daemon, set: on, bridge: "eth0", want: stays},
		{name: "the flowtable lacks a device", from: "192.0.2.9", to: "192.168.7.1:30080", fast: daemon, set: on, device: "dial0",
			want: "The connection stays on the rules: the fast path does not have its device dial0, or not yet (--fast-path-devices)."},
		{name: "neither", from: "10.0.1.1", to: "10.96.0.10:80", fast: daemon, set: on, bridge: "eth0", want: skips},
		{name: "no effect", from: "10.0.1.1", to: "10.96.0.10:80", fast: socket.FastPath{After: 12, NoEffect: "the kernel is old"}, set: func(*config.Settings) {},
			want: "The connection stays on the rules: the kernel is old."},
	} {
		k := newImagined(t, c, tt.set)
		k.fast, k.deaf, k.stays, k.outside = tt.fast, tt.deaf, tt.bridge, cmp.Or(tt.device, "eth0")
		e, err := explanationOf(k, question{src: netip.MustParseAddr(tt.from), dst: netip.MustParseAddrPort(tt.to), protocol: uint8(state.TCP)})
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		var got, evidence string
		for _, s := range e.Steps {
			if s.Topic == "fast path" {
				got, evidence = s.Text, strings.Join(s.Evidence, "\n")
			}
		}
		if got != tt.want || tt.evidence != "" && evidence != tt.evidence || e.Verdict.Outcome != Served {
			t.Errorf("%s: %q %q, want %q %q; %s", tt.name, got, evidence, tt.want, tt.evidence, e.Verdict.Text)
		}
		k.Close()
	}
}

// offloaded is a kernel that has one connection, which is on the fast path.
type offloaded struct{ *imagined }

func (offloaded) Flows(q conntrack.Query) ([]conntrack.FoundFlow, error) {
	at := netip.AddrPortFrom(q.Src, q.SrcPort)
	return []conntrack.FoundFlow{{
		Protocol: q.Protocol, Src: at, Dst: q.Dst, ReplySrc: netip.MustParseAddrPort("10.0.2.1:8080"), ReplyDst: at,
		Translated: true, Answered: true, Confirmed: true, FastPath: true,
	}}, nil
}

// TestFlowOnFastPath: the explanation of a connection that exists says that it is on the fast path. The kernel does not tell when it ends.
func TestFlowOnFastPath(t *testing.T) {
	k := newImagined(t, &oracle.Cluster{Node: "n1"})
	defer k.Close()
	e, err := explanationOf(offloaded{k}, question{
		src: netip.MustParseAddr("10.0.1.1"), srcPort: 40000, dst: netip.MustParseAddrPort("10.96.0.10:80"), protocol: uint8(state.TCP),
	})
	var text strings.Builder
	if err = errors.Join(err, e.writeText(&text)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"fast path     It is on the fast path: its packets skip the rules of this node.\n",
		"conntrack: tcp 10.0.1.1:40000 -> 10.96.0.10:80 answers come from 10.0.2.1:8080 [OFFLOAD]\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}
