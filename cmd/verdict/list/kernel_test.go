//go:build !nokernel

package list

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// bench is a world whose node has an nft engine.
type bench struct {
	*testing.T
	world  *lab.World
	engine *nft.Engine
}

// patience is how long a test waits for the kernel or for an answer.
const patience = 30 * time.Second

func newBench(t *testing.T) *bench {
	t.Helper()
	w := lab.New(t)
	// By default the kernel forgets closed connections after ten seconds, and UDP flows after thirty. On a slow machine,
	// that may be before a test has looked at them.
	w.Node.MustDo(t, func() error {
		return w.Node.Sysctl("net.netfilter.nf_conntrack_tcp_timeout_close=600", "net.netfilter.nf_conntrack_udp_timeout=600",
			"net.netfilter.nf_conntrack_udp_timeout_stream=600")
	})
	engine, err := nft.Open(nft.Options{NetNS: w.Node.Fd()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	return &bench{T: t, world: w, engine: engine}
}

// in is the bench for a part of the test. Connections that the part opens end with it.
func (b *bench) in(t *testing.T) *bench {
	inner := *b
	inner.T = t
	return &inner
}

// list runs the command on the node.
func (b *bench) list(args ...string) (stdout, stderr string, err error) {
	b.Helper()
	var out, errs bytes.Buffer
	err = b.world.Node.Do(func() error {
		cmd := New()
		cmd.SetFlagErrorFunc(flags.WrongValue)
		cmd.SetArgs(append([]string{}, args...)) // with nil it takes those of the test
		cmd.SetOut(&out)
		cmd.SetErr(&errs)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		return cmd.Execute()
	})
	return out.String(), errs.String(), err
}

// json is the output of the command with --json.
func (b *bench) json(args ...string) *snapshot.Table {
	b.Helper()
	out, notes, err := b.list(append(args, "--json")...)
	if err != nil || notes != "" {
		b.Fatalf("list %v: %v %s", args, err, notes)
	}
	var t snapshot.Table
	if err := json.Unmarshal([]byte(out), &t); err != nil {
		b.Fatalf("list %v: %v\n%s", args, err, out)
	}
	return &t
}

// picture is a frontend in the notation of these tests: "pod=weight,active,inactive" for each pod. Where pods and the
// node use another weight, that stands before it ("inside/weight").
func (b *bench) picture(t *snapshot.Table, at string) string {
	b.Helper()
	for i := range t.Frontends {
		fe := &t.Frontends[i]
		if fe.Protocol+" "+fe.At() != at {
			continue
		}
		words := []string{fe.Engine, cmp.Or(fe.Service, "-"), cmp.Or(fe.Scheduler, "-")}
		if flags := marks(fe, false); flags != "" {
			words = append(words, flags)
		}
		for _, e := range fe.Endpoints {
			weight := fmt.Sprint(e.Weight)
			if e.InsideWeight != nil {
				weight = fmt.Sprintf("%d/%d", *e.InsideWeight, e.Weight)
			}
			words = append(words, fmt.Sprintf("%s=%s,%s,%s", podAt(e.Address), weight, number(e.Active), number(e.Inactive)))
		}
		return strings.Join(words, " ")
	}
	return "not listed"
}

func podAt(a netip.Addr) string {
	for _, f := range lab.Families() {
		for _, pod := range lab.Pods() {
			if lab.PodAddress(f, pod) == a {
				return pod
			}
		}
	}
	return a.String()
}

func endpointsAt(f lab.Family, slots uint16, pods ...string) (out []contents.Endpoint) {
	for _, pod := range pods {
		out = append(out, contents.Endpoint{
			Addr:  netip.AddrPortFrom(lab.PodAddress(f, pod), 8080),
			Local: slices.Contains(lab.LocalPods(), pod), Slots: slots,
		})
	}
	return out
}

func familyOf(f lab.Family) program.Family {
	if f == lab.IPv6 {
		return program.IPv6
	}
	return program.IPv4
}

// ports are the service ports of a family.
func (b *bench) ports(f lab.Family) []contents.Port {
	all, near := endpointsAt(f, 1, "a", "b", "c", "d"), endpointsAt(f, 1, "a", "b")
	at := func(name string) contents.Frontend { return contents.Frontend{Addr: lab.Address(f, name), Port: 80} }
	clusterIP := func(name string) contents.Frontend {
		fe := at(name)
		fe.ClusterIP, fe.Pool = true, program.ClusterPool
		return fe
	}
	local := at("LB1")
	local.Pool, local.Masquerade = program.BySource, contents.MasqueradeNode
	refused, dropped := at("VIP3"), at("LB2")
	refused.ClusterIP, refused.Refusal = true, program.Reject
	dropped.Refusal, dropped.Firewalled = program.Drop, true
	nodePort := contents.Frontend{Port: 30080, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways}
	ports := []contents.Port{
		{Name: "shop/web:http", Cluster: all, Frontends: []contents.Frontend{clusterIP("VIP1"), nodePort}},
		{Name: "shop/weights:http", Cluster: append(endpointsAt(f, 3, "a"), endpointsAt(f, 1, "c")...), Frontends: []contents.Frontend{clusterIP("VIP2")}},
		{Name: "shop/sticky:http", Affinity: time.Hour, Cluster: all, Frontends: []contents.Frontend{clusterIP("VIP4")}},
		{Name: "shop/local:http", Cluster: all, Local: near, Frontends: []contents.Frontend{local}},
		{Name: "empty/none:http", Frontends: []contents.Frontend{refused, dropped}},
		{Name: "shop/names:dns", Protocol: unix.IPPROTO_UDP, Cluster: endpointsAt(f, 1, "a"), Frontends: []contents.Frontend{clusterIP("VIP1")}},
	}
	for i := range ports {
		ports[i].Family = familyOf(f)
		if ports[i].Protocol == 0 {
			ports[i].Protocol = unix.IPPROTO_TCP
		}
	}
	return ports
}

func (b *bench) set(ports ...contents.Port) {
	b.Helper()
	for i := range ports {
		if err := b.engine.Set(&ports[i]); err != nil {
			b.Fatal(err)
		}
	}
	if r, err := b.engine.Apply(); err != nil {
		b.Fatalf("%s: %v", r.Outcome, err)
	}
}

// open makes connections that stay open, and counts those to each pod.
func (b *bench) open(place string, p lab.Protocol, to netip.AddrPort, n int) (flows []*lab.Flow, got map[string]int) {
	b.Helper()
	got = map[string]int{}
	for range n {
		f, a := b.world.At(b, place).Hold(b, lab.Question{Protocol: p, To: to, Patience: patience})
		flows, got[a.Pod] = append(flows, f), got[a.Pod]+1
	}
	return flows, got
}

// want polls, because the kernel may count the latest packets of a connection a little later.
func (b *bench) want(at, want string) {
	b.Helper()
	got := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got = b.picture(b.json(), at); got == want {
			return
		}
	}
	b.Errorf("%s\nlisted %s\nwant   %s", at, got, want)
}

func TestNothing(t *testing.T) {
	b := newBench(t)
	for _, args := range [][]string{nil, {"--json"}, {"-4"}, {"shop"}} {
		if out, _, err := b.list(args...); !errors.Is(err, snapshot.ErrNothing) || out != "" {
			t.Errorf("list %v without tables: %q, %v", args, out, err)
		}
	}
	if _, _, err := b.list("shop//web"); !errors.As(err, new(flags.UsageError)) {
		t.Errorf("a wrong filter: %v", err)
	}
	b.set()
	if out, notes, err := b.list(); err != nil || notes != "" || strings.Count(out, "\n") != 2 {
		t.Errorf("empty tables: %q, %q, %v; want the headings", out, notes, err)
	}
	if _, _, err := b.list("shop", "default/web"); err == nil || err.Error() != "nothing in the kernel matches shop, default/web" {
		t.Errorf("a filter that matches nothing: %v", err)
	}
}

// TestWithoutRights runs the command on a thread that gives up its capabilities. The thread ends afterwards.
func TestWithoutRights(t *testing.T) {
	b := newBench(t)
	b.set()
	err := b.world.Node.Do(func() error {
		none := make([]unix.CapUserData, 2)
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			return fmt.Errorf("give up capabilities: %w", err)
		}
		_, err := snapshot.Read(snapshot.Query{})
		return err
	})
	if !errors.Is(err, unix.EPERM) {
		t.Errorf("without capabilities: %v", err)
	}
}

// TestKernel makes connections and checks that the command lists them at the right endpoints.
func TestKernel(t *testing.T) {
	b := newBench(t)
	g := contents.Globals{}
	for _, f := range lab.Families() {
		g.NodePortAddresses = append(g.NodePortAddresses, lab.Address(f, "NODE"), lab.Address(f, "NODE_SECOND"))
		text, _ := lab.Text(f, "PODS")
		g.PodCIDRs = append(g.PodCIDRs, netip.MustParsePrefix(text))
	}
	b.engine.SetGlobals(g)
	b.set(append(b.ports(lab.IPv4), b.ports(lab.IPv6)...)...)
	for _, f := range lab.Families() {
		t.Run(f.String(), func(t *testing.T) { b.in(t).checkFamily(f) })
	}
	t.Run("choices", func(t *testing.T) { b.in(t).checkChoices() })
	t.Run("without the daemon", func(t *testing.T) {
		b.engine.Close()
		if n := len(b.json().Frontends); n != 16 {
			t.Errorf("%d frontends, want 16", n)
		}
	})
}

// spread is the picture of a frontend with all pods.
func spread(head, weight string, active, inactive map[string]int) string {
	for _, pod := range lab.Pods() {
		head += fmt.Sprintf(" %s=%s,%d,%d", pod, weight, active[pod], inactive[pod])
	}
	return head
}

func sum(a, b map[string]int) map[string]int {
	out := maps.Clone(a)
	for pod, n := range b {
		out[pod] += n
	}
	return out
}

func (b *bench) checkFamily(f lab.Family) {
	vip := func(name string) netip.AddrPort { return netip.AddrPortFrom(lab.Address(f, name), 80) }
	tcp := func(name string) string { return "TCP " + vip(name).String() }
	nodePort := "TCP *:30080"
	if f == lab.IPv6 {
		nodePort = "TCP [*]:30080"
	}
	const web = "nft shop/web:http random"
	b.want(tcp("VIP1"), spread(web, "1", nil, nil))
	b.want(nodePort, spread(web, "1", nil, nil))

	flows, toVIP := b.open("x", lab.TCP, vip("VIP1"), 12)
	_, toNode := b.open("x", lab.TCP, netip.AddrPortFrom(lab.Address(f, "NODE"), 30080), 5)
	_, toSecond := b.open("y", lab.TCP, netip.AddrPortFrom(lab.Address(f, "NODE_SECOND"), 30080), 5)
	b.want(tcp("VIP1"), spread(web, "1", toVIP, nil))
	b.want(nodePort, spread(web, "1", sum(toNode, toSecond), nil))

	_, got := b.open("x", lab.TCP, vip("VIP2"), 8)
	b.want(tcp("VIP2"), fmt.Sprintf("nft shop/weights:http random a=3,%d,0 c=1,%d,0", got["a"], got["c"]))
	_, got = b.open("y", lab.TCP, vip("VIP4"), 3)
	b.want(tcp("VIP4"), spread("nft shop/sticky:http random persistent 3600", "1", got, nil))
	if len(got) != 1 {
		b.Errorf("with affinity, three connections of a client went to %v", got)
	}

	_, got = b.open("x", lab.TCP, vip("LB1"), 4)
	_, inside := b.open("a", lab.TCP, vip("LB1"), 4)
	got = sum(got, inside)
	b.want(tcp("LB1"), fmt.Sprintf("nft shop/local:http random local a=1/1,%d,0 b=1/1,%d,0 c=1/0,%d,0 d=1/0,%d,0",
		got["a"], got["b"], got["c"], got["d"]))
	b.want(tcp("VIP3"), "nft empty/none:http - rejected")
	b.want(tcp("LB2"), "nft empty/none:http - dropped source-ranges")
	b.checkUDP(f, vip("VIP1"))

	for _, flow := range flows {
		flow.Close() // by a reset, which the kernel remembers for a while
	}
	b.want(tcp("VIP1"), spread(web, "1", nil, toVIP))
	b.checkRemoved(f, nodePort, sum(toNode, toSecond))
}

// checkRemoved takes away an endpoint that has connections.
func (b *bench) checkRemoved(f lab.Family, at string, connections map[string]int) {
	b.Helper()
	ports := b.ports(f)
	gone := slices.IndexFunc(lab.Pods(), func(pod string) bool { return connections[pod] > 0 })
	ports[0].Cluster = slices.Delete(ports[0].Cluster, gone, gone+1)
	b.set(ports[0])
	name := lab.Pods()[gone]
	want := spread("nft shop/web:http random", "1", connections, nil)
	b.want(at, strings.Replace(want, name+"=1,", name+"=0,", 1))
}

// checkUDP keeps a flow busy until the kernel takes it for assured, after more than two seconds.
func (b *bench) checkUDP(f lab.Family, to netip.AddrPort) {
	b.Helper()
	flows, _ := b.open("x", lab.UDP, to, 2)
	at := "UDP " + to.String()
	b.want(at, "nft shop/names:dns random a=1,0,2")
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if r := flows[0].Send(patience); r.Outcome != lab.Answered {
			b.Fatalf("UDP to %s: %s", to, r)
		}
		if b.picture(b.json(), at) == "nft shop/names:dns random a=1,1,1" {
			return
		}
	}
	b.Errorf("%s: listed %s, after %s of packets in one of two flows", at, b.picture(b.json(), at), patience)
}

// checkChoices checks the effect of flags and filters.
func (b *bench) checkChoices() {
	for _, tt := range []struct {
		args string
		want int
	}{
		{"", 16}, {"-4", 8}, {"-6", 8}, {"-4 -6", 16}, {"shop", 12}, {"shop/web", 4}, {"shop/web empty -6", 4}, {"shop/names:dns", 2},
	} {
		if n := len(b.json(strings.Fields(tt.args)...).Frontends); n != tt.want {
			b.Errorf("list %s: %d frontends, want %d", tt.args, n, tt.want)
		}
		out, _, err := b.list(append(strings.Fields(tt.args), "--terse")...)
		lines := strings.Count(out, "\n") - 1 - strings.Count(out, "Node ports")
		if err != nil || lines != tt.want {
			b.Errorf("list %s --terse: %v, %d lines, want %d:\n%s", tt.args, err, lines, tt.want, out)
		}
	}
	for _, fe := range b.json("--no-connections").Frontends {
		for _, e := range fe.Endpoints {
			if e.Active != nil || e.Inactive != nil {
				b.Errorf("%s: connections are counted although they are not wanted", fe.At())
			}
		}
	}
}
