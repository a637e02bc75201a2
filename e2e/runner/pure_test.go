package runner

import (
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// bed is a bed without a network, for tests that need no packets.
func bed(o Options) *Bed {
	if o.Family == 0 {
		o.Family = lab.IPv4
	}
	return assemble(o, nil, &proxy{program: o.Proxy})
}

func TestMerge(t *testing.T) {
	old := map[string]any{"keep": "a", "gone": "b", "list": []any{"a", "b"}, "in": map[string]any{"x": 1, "y": 2}}
	change := map[string]any{"gone": nil, "list": []any{"c"}, "in": map[string]any{"y": 3, "z": 4}, "new": map[string]any{"q": true}}
	want := map[string]any{
		"keep": "a", "list": []any{"c"}, "in": map[string]any{"x": 1, "y": 3, "z": 4}, "new": map[string]any{"q": true},
	}
	if diff := cmp.Diff(want, merge(old, change)); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
	if old["gone"] != "b" || old["in"].(map[string]any)["y"] != 2 {
		t.Errorf("the old object was changed: %v", old)
	}
}

// TestChiSquare compares with published tables. With one degree of freedom the approximation is 7 % too high.
func TestChiSquare(t *testing.T) {
	if x := chiSquare(map[string]int{"a": 60, "b": 40}, []string{"a", "b"}, 100); math.Abs(x-4) > 1e-9 {
		t.Errorf("60 and 40 of 100: %f, want 4", x)
	}
	if x := chiSquare(map[string]int{"a": 100}, []string{"a", "b"}, 100); math.Abs(x-100) > 1e-9 {
		t.Errorf("an endpoint that gets nothing: %f, want 100", x)
	}
	for degrees, want := range map[int]float64{1: 15.14, 3: 21.11, 6: 27.86} {
		if got := chiSquareLimit(degrees); got < want*0.99 || got > want*1.08 {
			t.Errorf("%d degrees of freedom: limit %.2f, want about %.2f", degrees, got, want)
		}
	}
}

func client(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 200, 0, byte(n)}) }

func TestCrowd(t *testing.T) {
	before := crowd{client(1): "a", client(2): "b", client(3): "b"}
	for _, tt := range []struct {
		name, except string
		now          crowd
		want         string // of the error; empty: all well
	}{
		{"all stay", "", crowd{client(1): "a", client(2): "b", client(3): "b"}, ""},
		{"one moves", "", crowd{client(1): "a", client(2): "b", client(3): "a"}, "client 10.200.0.3 got b before and gets a now"},
		{"those of b move", "b", crowd{client(1): "a", client(2): "a", client(3): "c"}, ""},
		{"those of b move, and another", "b", crowd{client(1): "c", client(2): "a", client(3): "c"}, "client 10.200.0.1 got a before and gets c now"},
		{"b is still there", "b", crowd{client(1): "a", client(2): "a", client(3): "b"}, "client 10.200.0.3 still gets b"},
	} {
		got := ""
		if err := before.same(tt.now, tt.except); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	for _, tt := range []struct {
		backends []string
		want     string
	}{
		{[]string{"a", "b"}, ""},
		{[]string{"a", "b", "c"}, "the clients got [a b]"},
		{[]string{"b"}, "the clients got [a b]"},
	} {
		got := ""
		if err := before.covers(tt.backends); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%v: %q, want %q", tt.backends, got, tt.want)
		}
	}
}

func TestGood(t *testing.T) {
	b := bed(Options{})
	node, x := netip.MustParseAddr("192.168.7.1"), netip.MustParseAddr("192.168.7.11")
	b.clients.addrs = map[netip.Addr]bool{node: true}
	answer := func(pod string, port uint16, source netip.Addr) lab.Result {
		return lab.Result{Outcome: lab.Answered, Client: x, Answer: lab.Answer{Pod: pod, Port: port, Source: source}}
	}
	for _, tt := range []struct {
		name   string
		r      lab.Result
		source string
		good   bool
	}{
		{"expected", answer("a", 8080, x), "", true},
		{"expected, at another port", answer("b", 8081, x), "", true},
		{"another", answer("c", 8080, x), "", false},
		{"another port", answer("a", 8081, x), "", false},
		{"dropped", lab.Result{Outcome: lab.Dropped}, "", false},
		{"sees the client", answer("a", 8080, x), "client", true},
		{"should see the client", answer("a", 8080, node), "client", false},
		{"sees the node", answer("a", 8080, node), "node", true},
		{"should see the node", answer("a", 8080, x), "node", false},
		{"sees this address", answer("a", 8080, node), "$NODE", true},
		{"should see another address of the node", answer("a", 8080, node), "$NODE_INNER", false},
	} {
		if err := b.clients.good(tt.r, []string{"a", "b:8081"}, tt.source); (err == nil) != tt.good {
			t.Errorf("%s: error %v", tt.name, err)
		}
	}
}

// steps parses the steps of one scenario.
func steps(t *testing.T, lines ...string) []scenario.Step {
	t.Helper()
	list, err := scenario.Parse("f.txt", "== s\n"+strings.Join(lines, "\n"))
	lab.Must(t, err)
	return list[0].Steps
}

// TestConcurrent expects probes to run at the same time, unless they depend on each other.
func TestConcurrent(t *testing.T) {
	const probe, first, second = "probe tcp from x to $VIP1:80 => a", "probe tcp from x to $VIP1:80 => one of a b as f", "probe tcp from x to $VIP1:80 => @f"
	for _, tt := range []struct {
		lines []string
		want  int
	}{
		{[]string{probe, probe, probe}, 3},
		{[]string{probe, probe, "restart", probe}, 2},
		{[]string{probe, first, second}, 1},
		{[]string{first, second, probe}, 1},
		{[]string{"restart", probe, probe}, 1},
	} {
		if got := len(concurrent(steps(t, tt.lines...))); got != tt.want {
			t.Errorf("%q: %d at the same time, want %d", tt.lines, got, tt.want)
		}
	}
}

func TestOthersDoSomethingElse(t *testing.T) {
	step := steps(t, "probe tcp from x to $VIP1:80 => a\n  kube-proxy => refused because it does\n  ipvs => dropped because it does")[0]
	for proxy, want := range map[Proxy]lab.Outcome{
		{Kind: Verdict}: lab.Answered, {Kind: KubeProxy}: lab.Refused, {Kind: Verdict, IPVS: true}: lab.Dropped,
	} {
		if got := bed(Options{Proxy: proxy}).variant(&step).(*scenario.Probe).Outcome; got != want {
			t.Errorf("%v: %s is expected, want %s", proxy, got, want)
		}
	}
}

func TestApplies(t *testing.T) {
	everywhere := scenario.Scenario{Families: lab.Families()}
	one := scenario.Scenario{Families: []lab.Family{lab.IPv6}}
	events := scenario.Scenario{Families: lab.Families(), OnlyAPIServer: "Events"}
	file := scenario.Scenario{Families: lab.Families(), OnlyManifests: "an API server refuses it"}
	ours := scenario.Scenario{Families: lab.Families(), NotUpstream: "it has none"}
	nfts := scenario.Scenario{Families: lab.Families(), NotIPVS: "it has none"}
	for _, tt := range []struct {
		name string
		s    *scenario.Scenario
		o    Options
		want bool
	}{
		{"everywhere", &everywhere, Options{Source: FromManifests}, true},
		{"other family", &one, Options{Family: lab.IPv4}, false},
		{"its family", &one, Options{Family: lab.IPv6}, true},
		{"Events from manifests", &events, Options{Source: FromManifests}, false},
		{"Events from an API server", &events, Options{Source: FromAPIServer}, true},
		{"a manifest's from manifests", &file, Options{Source: FromManifests}, true},
		{"a manifest's from an API server", &file, Options{Source: FromAPIServer}, false},
		{"ours with kube-proxy", &ours, Options{Proxy: Proxy{Kind: KubeProxy}}, false},
		{"ours with Verdict", &ours, Options{Proxy: Proxy{Kind: Verdict}}, true},
		{"nft's with IPVS", &nfts, Options{Proxy: Proxy{Kind: Verdict, IPVS: true}}, false},
		{"nft's with nft", &nfts, Options{Proxy: Proxy{Kind: Verdict}}, true},
	} {
		if got := bed(tt.o).Applies(tt.s); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

func TestCommand(t *testing.T) {
	common := []string{
		"--hostname-override=node-1", "--cluster-cidr=10.0.0.0/16,fd00:10::/48", "--healthz-bind-address=[::]:10256",
		"--metrics-bind-address=127.0.0.1:10249", "-v=4",
	}
	without := slices.Concat(common[:1], common[2:])
	for _, tt := range []struct {
		name      string
		arguments []string
		want      []string
	}{
		{"none", nil, common},
		{"one more", []string{"--masquerade-all=true"}, append(slices.Clone(common), "--masquerade-all=true")},
		{"instead of ours", []string{"--cluster-cidr=10.1.0.0/16"}, append(slices.Clone(without), "--cluster-cidr=10.1.0.0/16")},
		{"without ours", []string{"--cluster-cidr="}, without},
	} {
		want := append([]string{"/bin/it", "run"}, tt.want...)
		if diff := cmp.Diff(want, Proxy{Kind: Verdict, Binary: "/bin/it"}.command(tt.arguments)); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", tt.name, diff)
		}
		if got := (Proxy{Kind: KubeProxy, Binary: "/bin/it"}).command(tt.arguments); got[0] != "/bin/it" || !slices.Contains(got, "--proxy-mode=nftables") {
			t.Errorf("%s: kube-proxy is started with %q", tt.name, got)
		}
	}
}

func TestCommandWithIPVS(t *testing.T) {
	got := Proxy{Kind: Verdict, Binary: "/bin/it", IPVS: true}.command([]string{"--masquerade-all=true"})
	if !slices.Contains(got, "--backend=ipvs") || !slices.Contains(got, "--ipvs-fallback=false") || got[len(got)-1] != "--masquerade-all=true" {
		t.Errorf("verdict is started with %q", got)
	}
}

// TestManifests expects one file for each object.
func TestManifests(t *testing.T) {
	s := &manifests{t.TempDir()}
	object := func(kind, namespace string) scenario.Object {
		return scenario.Object{"kind": kind, "metadata": map[string]any{"name": "web", "namespace": namespace}}
	}
	for _, o := range []scenario.Object{object("Service", "a"), object("Service", "b"), object("EndpointSlice", "a"), object("Service", "a")} {
		lab.Must(t, s.Put(o))
	}
	lab.Must(t, s.Delete(object("Service", "b")))
	entries, err := os.ReadDir(s.dir)
	lab.Must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"EndpointSlice_a_web.json", "Service_a_web.json"}; !cmp.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
	if got := s.Arguments(); !cmp.Equal(got, []string{"--manifests=" + s.dir}) {
		t.Errorf("arguments %q", got)
	}
	if err := s.Delete(object("Service", "b")); err == nil {
		t.Error("deleting an object that does not exist is not an error")
	}
}

func TestEndpointName(t *testing.T) {
	for at, want := range map[string]string{
		"10.0.1.1:8080": "a", "10.0.2.2:8081": "d:8081", "10.0.1.2:0": "b", "192.0.2.1:8080": "192.0.2.1:8080",
	} {
		if got := endpointName(netip.MustParseAddrPort(at)); got != want {
			t.Errorf("%s is called %q, want %q", at, got, want)
		}
	}
}

// TestFence looks at the objects of a fence, and at the kinds that a fence can wait for.
func TestFence(t *testing.T) {
	b := bed(Options{Family: lab.IPv6})
	list := b.fence.fenceObjects(1001, 8082)
	svc, slice := list[0], list[1]
	if svc.Kind() != "Service" || slice.Kind() != "EndpointSlice" || svc.Namespace() == "default" || slice["addressType"] != "IPv6" {
		t.Errorf("got %v and %v", svc, slice)
	}
	for kind, want := range map[string]bool{"Service": true, "EndpointSlice": true, "Node": false, "ServiceCIDR": false} {
		if fenced(kind) != want {
			t.Errorf("a fence waits for a %s: %t", kind, !want)
		}
	}
}

// TestNodes expects the family under test to be the Node's primary one.
func TestNodes(t *testing.T) {
	for _, f := range lab.Families() {
		nodes := bed(Options{Family: f}).objects.nodes()
		if len(nodes) != 2 || nodes[0].Name() != lab.NodeName || nodes[1].Name() != lab.RemoteNodeName {
			t.Fatalf("%s: %v", f, nodes)
		}
		status := nodes[0]["status"].(map[string]any)["addresses"].([]any)
		first, err := netip.ParseAddr(status[0].(map[string]any)["address"].(string))
		if err != nil || len(status) != 2 || first.Is4() != (f == lab.IPv4) {
			t.Errorf("%s: addresses %v, %v", f, status, err)
		}
	}
}
