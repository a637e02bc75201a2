package environment

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func servers(list ...string) (out []netip.AddrPort) {
	for _, a := range list {
		out = append(out, netip.MustParseAddrPort(a))
	}
	return out
}

func TestNodePortAddresses(t *testing.T) {
	node := addrs("192.168.7.1", "192.168.8.1", "fd07::1")
	host := addrs("127.0.0.1", "127.0.0.53", "192.168.7.1", "192.168.8.1", "10.0.1.254", "::1", "fd07::1", "fe80::1")
	tests := []struct {
		words []string
		want  []netip.Addr
	}{
		{nil, nil},
		{[]string{"primary"}, addrs("192.168.7.1", "fd07::1")},
		{[]string{"localhost"}, addrs("127.0.0.1", "127.0.0.53")},
		{[]string{"all"}, addrs("10.0.1.254", "192.168.7.1", "192.168.8.1", "fd07::1")},
		{[]string{"0.0.0.0/0"}, addrs("10.0.1.254", "192.168.7.1", "192.168.8.1")},
		{[]string{"::/0"}, addrs("fd07::1")},
		{[]string{"192.168.0.0/16"}, addrs("192.168.7.1", "192.168.8.1")},
		{[]string{"127.0.0.0/8"}, addrs("127.0.0.1", "127.0.0.53")},
		{[]string{"::1/128"}, nil},
		{[]string{"203.0.113.0/24"}, nil},
		{[]string{"primary", "192.168.7.0/24", "localhost"}, addrs("127.0.0.1", "127.0.0.53", "192.168.7.1", "fd07::1")},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.words), func(t *testing.T) {
			got := nodePortAddresses(tt.words, node, lasting(host))
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestDetectLocal(t *testing.T) {
	node := &state.Node{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}}
	tests := []struct {
		mode      config.DetectLocalMode
		cidrs     string
		iface     string
		recognize bool
	}{
		{config.DetectClusterCIDR, "[10.0.0.0/16]", "", true},
		{config.DetectNodeCIDR, "[10.1.2.0/24]", "", true},
		{config.DetectBridgeInterface, "[]", "cni0", true},
		{config.DetectInterfaceNamePrefix, "[]", "veth*", true},
		{config.DetectNone, "[]", "", false},
	}
	for _, tt := range tests {
		t.Run(string(tt.mode), func(t *testing.T) {
			s := config.Settings{
				DetectLocalMode: tt.mode, ClusterCIDRs: []string{"10.0.0.0/16"}, BridgeInterface: "cni0", InterfaceNamePrefix: "veth",
			}
			env := New(Options{Settings: &s})
			env.Update(state.Environment{Node: node})
			if got := fmt.Sprint(env.Shared.PodCIDRs); got != tt.cidrs {
				t.Errorf("pod CIDRs %s, want %s", got, tt.cidrs)
			}
			recognizes := env.Shared.PodInterface != "" || len(env.Shared.PodCIDRs) > 0
			if env.Shared.PodInterface != tt.iface || recognizes != tt.recognize {
				t.Errorf("interface %q, recognizes %v; want %q, %v", env.Shared.PodInterface, recognizes, tt.iface, tt.recognize)
			}
		})
	}
}

// TestAddressesThatMustNotBecomeLocal come from the Node object, the API server and the settings.
func TestAddressesThatMustNotBecomeLocal(t *testing.T) {
	s := config.Settings{IPVS: config.IPVS{ExternalCIDR: []string{"203.0.113.0/24"}}}
	var log bytes.Buffer
	env := New(Options{Settings: &s, Log: slog.New(slog.NewTextHandler(&log, nil)), Servers: servers("192.0.2.9:6443", "192.0.2.7:443")})
	node := &state.Node{Name: "n1", Addresses: addrs("192.168.7.1", "192.0.2.1")}
	env.Update(state.Environment{Node: node, APIServers: servers("192.0.2.8:6443", "192.0.2.9:6443"),
		Connected: servers("192.0.2.8:6443", "192.0.2.6:6443")})
	got := fmt.Sprint(env.Shared.NodeAddresses, env.Shared.APIServers, env.Shared.ExternalCIDRs, env.APIServers)
	if want := "[192.0.2.1 192.168.7.1] [192.0.2.6 192.0.2.7 192.0.2.8 192.0.2.9] [203.0.113.0/24] " +
		"map[192.0.2.6:6443:false 192.0.2.7:443:false 192.0.2.8:6443:true 192.0.2.9:6443:true]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if log.Len() > 0 {
		t.Errorf("a range without a node: %s", &log)
	}
	s.IPVS.ExternalCIDR = append(s.IPVS.ExternalCIDR, "192.168.0.0/16")
	for range 2 {
		env.Update(state.Environment{Node: node})
	}
	if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "ranges=[192.168.0.0/16]") {
		t.Errorf("a range with this node: %s", got)
	}
}

// TestRangesOfServices: a range with an address of a pod, of the node or of an API server does not belong to Services alone. It is
// logged once.
func TestRangesOfServices(t *testing.T) {
	var log bytes.Buffer
	s := config.Settings{ClusterCIDRs: []string{"10.0.0.0/16"}, LoadBalancerCIDRs: []string{"203.0.113.0/24", "192.168.7.0/24"}}
	env := New(Options{Settings: &s, Log: slog.New(slog.NewTextHandler(&log, nil))})
	in := state.Environment{
		Node:         &state.Node{Addresses: addrs("192.168.7.1"), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("fd00:10:1::/64")}},
		APIServers:   servers("172.16.0.1:6443"),
		ServiceCIDRs: config.Prefixes([]string{"10.96.0.0/16", "10.0.128.0/17", "fd00:10::/32", "172.16.0.0/24", "fd00:96::/112"}),
	}
	for range 2 {
		env.Update(in)
	}
	got := fmt.Sprint(env.Shared.ServiceCIDRs, env.Plan.ServiceCIDRs)
	if want := "[10.96.0.0/16 fd00:96::/112 203.0.113.0/24] [10.96.0.0/16 fd00:96::/112]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, `ranges="[10.0.128.0/17 fd00:10::/32 172.16.0.0/24 192.168.7.0/24]"`) {
		t.Errorf("logged: %s", text)
	}
}

// TestBindAddress: the flag replaces the address of the node in its family, and an unspecified one replaces nothing.
func TestBindAddress(t *testing.T) {
	tests := map[string]string{
		"": "[192.0.2.1 2001:db8::1]", "0.0.0.0": "[192.0.2.1 2001:db8::1]", "::": "[192.0.2.1 2001:db8::1]",
		"192.0.2.2": "[192.0.2.2 2001:db8::1]", "2001:db8::2": "[192.0.2.1 2001:db8::2]", "192.0.2.1": "[192.0.2.1 2001:db8::1]",
	}
	for bind, want := range tests {
		s := config.Default()
		s.BindAddress = bind
		env := New(Options{Settings: &s})
		env.Update(state.Environment{Node: &state.Node{Addresses: addrs("192.0.2.1", "2001:db8::1")}})
		if got := fmt.Sprint(env.Shared.NodePortAddresses); got != want {
			t.Errorf("--bind-address=%s: node ports on %s, want %s", bind, got, want)
		}
	}
}

// TestNodeIsDeleted: a Node object that is deleted may come back at once. Only /healthz changes; addresses, pod ranges and
// the zone stay. A host that never had one is behind no load balancer of a cluster; one without a cluster is.
func TestNodeIsDeleted(t *testing.T) {
	s := config.Default()
	s.DetectLocalMode = config.DetectNodeCIDR
	primary := func() ([]netip.Addr, error) { return addrs("198.51.100.1"), nil }
	env := New(Options{Settings: &s, Primary: primary, Log: slog.New(slog.DiscardHandler)})
	env.Update(state.Environment{})
	if env.Eligible || !slices.Equal(env.Shared.NodePortAddresses, addrs("198.51.100.1")) {
		t.Errorf("before there is a Node: eligible %t, node ports at %v", env.Eligible, env.Shared.NodePortAddresses)
	}
	node := &state.Node{Addresses: addrs("192.168.7.1"), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}, Zone: "a"}
	env.Update(state.Environment{Node: node})
	before, planned := env.Shared, env.Plan
	env.Update(state.Environment{})
	if env.Eligible || env.Leaving != "the Node is deleted" || !reflect.DeepEqual(env.Shared, before) || !reflect.DeepEqual(env.Plan, planned) {
		t.Errorf("after the deletion: eligible %t, %+v, %+v", env.Eligible, env.Shared, env.Plan)
	}
	if env.Update(state.Environment{Node: node}); !env.Eligible || env.Leaving != "" {
		t.Error("it is back, and not eligible")
	}
	s.Manifests = "/etc/verdict"
	if env.Update(state.Environment{}); !env.Eligible || !slices.Equal(env.Shared.NodePortAddresses, addrs("198.51.100.1")) {
		t.Errorf("a host without a cluster: eligible %t, node ports at %v", env.Eligible, env.Shared.NodePortAddresses)
	}
}

// TestLeaving: a node is about to go if others say that they end it, and not if they say that they may. A node that is cordoned
// stays, unless the flag says otherwise, with a warning.
func TestLeaving(t *testing.T) {
	run := func(taints []string, object state.Node) (why string, eligible bool, logged string) {
		var log bytes.Buffer
		s := config.Default()
		if taints != nil {
			s.LeavingTaints = taints
		}
		env := New(Options{Settings: &s, Log: slog.New(slog.NewTextHandler(&log, nil))})
		for range 2 {
			env.Update(state.Environment{Node: &object})
		}
		return env.Leaving, env.Eligible, log.String()
	}
	for key, leaving := range map[string]bool{
		"ToBeDeletedByClusterAutoscaler":                         true,
		"karpenter.sh/disrupted":                                 true,
		"karpenter.sh/disruption":                                true,
		"aws-node-termination-handler/spot-itn":                  true,
		"aws-node-termination-handler/scheduled-maintenance":     true,
		"aws-node-termination-handler/asg-lifecycle-termination": true,
		"cloud.google.com/impending-node-termination":            true,
		"remediator.kubernetes.azure.com/unschedulable":          true,
		"node.cloudprovider.kubernetes.io/shutdown":              true,
		"DeletionCandidateOfClusterAutoscaler":                   false,
		"aws-node-termination-handler/rebalance-recommendation":  false,
		"node.kubernetes.io/unschedulable":                       false,
		"node.kubernetes.io/not-ready":                           false,
		"node.cloudprovider.kubernetes.io/uninitialized":         false,
		"kubernetes.azure.com/scalesetpriority":                  false,
	} {
		why, eligible, logged := run(nil, state.Node{Taints: []string{"other", key}})
		want := ""
		if leaving {
			want = "the taint " + key
		}
		if why != want || eligible == leaving || strings.Count(logged, "this node is leaving") != map[bool]int{true: 1}[leaving] {
			t.Errorf("%s: leaving because of %q, eligible %t, logged %s", key, why, eligible, logged)
		}
	}
	if why, eligible, _ := run(nil, state.Node{Leaving: "the Node is being deleted"}); why != "the Node is being deleted" || eligible {
		t.Errorf("a Node that is being deleted: leaving because of %q, eligible %t", why, eligible)
	}
	why, _, logged := run([]string{config.TaintUnschedulable}, state.Node{Taints: []string{config.TaintUnschedulable}})
	if why == "" || strings.Count(logged, "level=WARN") != 1 {
		t.Errorf("cordoned, with the flag: leaving because of %q, logged %s", why, logged)
	}
	if why, _, _ := run([]string{}, state.Node{Taints: []string{"ToBeDeletedByClusterAutoscaler"}}); why != "" {
		t.Errorf("without any taint in the flag: leaving because of %q", why)
	}
}

// TestHealthAddresses: where all addresses of a family answer, the servers of health check node ports listen on all of them.
func TestHealthAddresses(t *testing.T) {
	host := addrs("127.0.0.1", "192.168.7.1", "192.168.8.1", "2001:db8::1")
	for words, want := range map[string][]netip.Addr{
		"primary":                  addrs("192.168.7.1", "2001:db8::1"),
		"all":                      addrs("0.0.0.0", "::"),
		"0.0.0.0/0":                addrs("0.0.0.0"),
		"::/0 192.168.8.0/24":      addrs("192.168.8.1", "::"),
		"primary 0.0.0.0/0":        addrs("0.0.0.0", "2001:db8::1"),
		"192.168.8.0/24":           addrs("192.168.8.1"),
		"0.0.0.0/0 192.168.8.0/24": addrs("0.0.0.0"),
	} {
		s := config.Default()
		s.NodePortAddresses = strings.Fields(words)
		env := New(Options{Settings: &s, Log: slog.New(slog.DiscardHandler)})
		env.Update(state.Environment{Node: &state.Node{Addresses: addrs("192.168.7.1", "2001:db8::1")}, HostAddresses: host})
		if !slices.Equal(env.HealthAddresses, want) {
			t.Errorf("%s: %v, want %v", words, env.HealthAddresses, want)
		}
	}
}

// TestNodePodCIDRs: the podCIDRs of the Node tell which pods are on this node as long as more namespaces show it than the opposite. One
// tenant does not decide.
func TestNodePodCIDRs(t *testing.T) {
	s := config.Settings{DetectLocalMode: config.DetectClusterCIDR, ClusterCIDRs: []string{"10.0.0.0/8"}}
	node := &state.Node{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}}
	env := New(Options{Settings: &s})
	env.Update(state.Environment{Node: node})
	for i, step := range []struct {
		name           string
		is             plan.Evidence
		changed, known bool
	}{
		{"/web", plan.Evidence{}, false, false},
		{"/web", plan.Evidence{For: true}, true, true},
		{"/dns", plan.Evidence{For: true}, false, true},
		{"/db", plan.Evidence{Against: true}, true, false},
		{"/web", plan.Evidence{}, false, false},
		{"/db", plan.Evidence{}, true, true},
		{"/dns", plan.Evidence{For: true, Against: true}, true, false},
		{"/dns", plan.Evidence{For: true}, true, true},
		{"tenant/a", plan.Evidence{Against: true}, true, false},
		{"shop/web", plan.Evidence{For: true}, true, true},
		{"tenant/b", plan.Evidence{Against: true}, false, true},
		{"tenant/c", plan.Evidence{For: true}, false, true},
		{"other/a", plan.Evidence{For: true, Against: true}, true, false},
		{"other/a", plan.Evidence{}, true, true},
		{"tenant/a", plan.Evidence{}, false, true},
		{"tenant/b", plan.Evidence{}, false, true},
		{"shop/web", plan.Evidence{}, false, true},
		{"tenant/c", plan.Evidence{}, false, true},
	} {
		if i > 5 {
			env.Update(state.Environment{Node: node}) // which keeps what the endpoints show
		}
		namespace, name, _ := strings.Cut(step.name, "/")
		changed := env.Weigh(state.Name{Namespace: namespace, Name: name}, step.is)
		if known := len(env.Shared.NodePodCIDRs) > 0; changed != step.changed || known != step.known {
			t.Errorf("%s: %+v: changed %t, known %t; want %t, %t", step.name, step.is, changed, known, step.changed, step.known)
		}
	}
	if len(env.evidence) != 1 || len(env.weight) != 1 {
		t.Errorf("the evidence of %d Services in %d namespaces is kept, want 1", len(env.evidence), len(env.weight))
	}
	s.DetectLocalMode = config.DetectBridgeInterface
	if env.Update(state.Environment{Node: node}); env.Shared.NodePodCIDRs != nil {
		t.Error("pods are known by their interface")
	}
}

// TestBridgesStay: the environment is due when bridges begin or cease to show their packets to the rules, and nobody asks without the fast
// path.
func TestBridgesStay(t *testing.T) {
	s, call, slow, asked := config.Default(), false, "", 0
	env := New(Options{
		Settings: &s, SlowPath: func() string { return slow }, BridgesStay: func() bool { asked++; return call },
		Primary: func() ([]netip.Addr, error) { return nil, nil }, Log: slog.New(slog.DiscardHandler),
	})
	update := func() { env.Update(state.Environment{}) }
	call = true
	if update(); env.Due() || env.Shared.BridgesStay || asked > 0 {
		t.Errorf("without the fast path, due %t, %t, asked %d times", env.Due(), env.Shared.BridgesStay, asked)
	}
	s.FastPath = config.FastPathServices
	for _, now := range []bool{true, false, true} {
		call = now
		update()
		if env.Due() || env.Shared.BridgesStay != now {
			t.Errorf("while bridges call (%t), due %t, %t", now, env.Due(), env.Shared.BridgesStay)
		}
		if call = !now; !env.Due() {
			t.Errorf("bridges call: %t, and the environment is not due", call)
		}
	}
	slow = "the kernel is old"
	if update(); env.Due() || env.Shared.BridgesStay {
		t.Errorf("without the fast path, due %t, %t", env.Due(), env.Shared.BridgesStay)
	}
}
