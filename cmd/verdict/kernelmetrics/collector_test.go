package kernelmetrics

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

// kernel is what a test lets the Collector read.
type kernel struct {
	frontends int
	traffic   []inspect.FrontendStatus
	virtual   []ipvsctl.Status
	routed    []inspect.FrontendStatus
	open      []socket.Passing
	fast      socket.FastPath
	servers   int // how often virtual servers were read
	err       error
	read      int
	now       time.Time
}

func (k *kernel) collector(most int) *Collector {
	return New(Options{
		Elements: func() []nft.SetElements {
			return []nft.SetElements{
				{Family: program.IPv4, Set: program.Services, Elements: k.frontends}, {Family: program.IPv6, Set: program.Endpoints, Elements: 5000},
				{Family: program.IPv6, Set: program.Pools, Elements: 8, Limit: 9},
			}
		},
		Affinity: func() ([]inspect.AffinityEntries, error) {
			return []inspect.AffinityEntries{{Family: program.IPv4, Entries: 3, Size: 100}, {Family: program.IPv6, Entries: -1, Size: 100}}, k.err
		},
		Traffic: func(time.Duration) ([]inspect.FrontendStatus, error) {
			k.read++
			return slices.Concat(k.traffic, k.routed), k.err
		},
		Servers: func(time.Duration) ([]ipvsctl.Status, error) {
			k.servers++
			return k.virtual, k.err
		},
		Room: func() (conntrack.Room, error) {
			return conntrack.Room{Entries: 9, Limit: 10, Dropped: 4, Evicted: 6}, k.err
		},
		Passing: func() ([]socket.Passing, error) { return k.open, k.err }, FastPath: func() socket.FastPath { return k.fast },
		Most: most, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return k.now },
	})
}

// expect compares some metrics of a scrape that comes after the values of the previous one have expired.
func (k *kernel) expect(t *testing.T, c *Collector, want string, names ...string) {
	t.Helper()
	k.now = k.now.Add(atMostEvery)
	var text strings.Builder
	for line := range strings.Lines(want) {
		text.WriteString(strings.TrimSpace(line) + "\n")
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	if err := testutil.GatherAndCompare(withoutHelp{registry}, strings.NewReader(text.String()), names...); err != nil {
		t.Error(err)
	}
}

func at(set program.SetID, key, name string, packets uint64) inspect.FrontendStatus {
	fe := inspect.FrontendStatus{Family: program.IPv4, Port: uint16(key[0]), Name: name}
	if set == program.NoEndpoints {
		fe.Refusal, fe.Refused = program.Reject, packets
	} else {
		fe.Pool, fe.Connections = program.ClusterPool, packets
	}
	return fe
}

func TestSizes(t *testing.T) {
	k := &kernel{frontends: 7, virtual: []ipvsctl.Status{{RealServers: []ipvsctl.RealStatus{{Active: 2, Inactive: 5}, {Active: 1}}}}}
	k.expect(t, k.collector(10), `
		# TYPE verdict_map_elements gauge
		verdict_map_elements{ip_family="IPv4",map="services"} 7
		verdict_map_elements{ip_family="IPv6",map="endpoints"} 5000
		verdict_map_elements{ip_family="IPv6",map="pools"} 8
		# TYPE verdict_map_limit gauge
		verdict_map_limit{ip_family="IPv6",map="pools"} 9
		# TYPE verdict_affinity_entries gauge
		verdict_affinity_entries{ip_family="IPv4"} 3
		# TYPE verdict_affinity_size gauge
		verdict_affinity_size{ip_family="IPv4"} 100
		verdict_affinity_size{ip_family="IPv6"} 100
		# TYPE verdict_conntrack_entries gauge
		verdict_conntrack_entries 9
		# TYPE verdict_conntrack_full_total counter
		verdict_conntrack_full_total{outcome="dropped"} 4
		verdict_conntrack_full_total{outcome="evicted"} 6
		# TYPE verdict_conntrack_limit gauge
		verdict_conntrack_limit 10
		# TYPE verdict_ipvs_connections gauge
		verdict_ipvs_connections{state="active"} 3
		verdict_ipvs_connections{state="inactive"} 5
		# TYPE verdict_ipvs_virtual_servers gauge
		verdict_ipvs_virtual_servers 1
	`, "verdict_conntrack_entries", "verdict_conntrack_full_total", "verdict_conntrack_limit", "verdict_map_elements", "verdict_map_limit", "verdict_affinity_entries", "verdict_affinity_size", "verdict_ipvs_connections", "verdict_ipvs_virtual_servers")
}

const connections, refused = "verdict_service_connections_total", "verdict_service_refused_packets_total"

// TestCountersOnlyGrow: the counter of one frontend starts again, and the sum of the service port goes on.
func TestCountersOnlyGrow(t *testing.T) {
	k := &kernel{}
	c := k.collector(10)
	k.traffic = []inspect.FrontendStatus{
		at(program.Services, "a", "shop/web:http", 1000), at(program.NodePorts, "b", "shop/web:http", 5000), at(program.NoEndpoints, "c", "shop/old:80", 4),
	}
	k.expect(t, c, `
		# TYPE verdict_service_connections_total counter
		verdict_service_connections_total{ip_family="IPv4",namespace="shop",port="http",service="web"} 6000
		# TYPE verdict_service_refused_packets_total counter
		verdict_service_refused_packets_total{ip_family="IPv4",namespace="shop",port="80",reason="no_endpoints",service="old"} 4
	`, connections, refused)
	k.traffic = []inspect.FrontendStatus{
		at(program.Services, "a", "shop/web:http", 10), at(program.NodePorts, "b", "shop/web:http", 5001),
	}
	k.expect(t, c, `
		# TYPE verdict_service_connections_total counter
		verdict_service_connections_total{ip_family="IPv4",namespace="shop",port="http",service="web"} 6011
	`, connections, refused)
}

// TestVirtualServers: what IPVS balanced counts for the service port that the rules name. A virtual server that drains has
// no name, and its counter goes on when it is wanted again.
func TestVirtualServers(t *testing.T) {
	k := &kernel{}
	c := k.collector(10)
	vip, node := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("192.0.2.1")
	server := func(addr netip.Addr, port uint16, connections uint64) ipvsctl.Status {
		return ipvsctl.Status{Server: wire.Server{Key: ipvsctl.Key{Addr: addr, Port: port, Protocol: ipvsctl.TCP}, Connections: connections}}
	}
	routed := []inspect.FrontendStatus{
		{Family: program.IPv4, IPVS: true, Protocol: uint8(ipvsctl.TCP), Addr: vip, Port: 80, Name: "shop/web:http"},
		{Family: program.IPv4, IPVS: true, Protocol: uint8(ipvsctl.TCP), Port: 30080, Name: "shop/web:http"},
	}
	k.traffic = []inspect.FrontendStatus{at(program.Services, "a", "shop/web:http", 5)}
	expect := func(routed []inspect.FrontendStatus, web, other string, servers ...ipvsctl.Status) {
		t.Helper()
		k.virtual, k.routed = servers, routed
		text := "# TYPE verdict_service_connections_total counter\n"
		if other != "" {
			text += `verdict_service_connections_total{ip_family="IPv4",namespace="shop",port="http",service="other"} ` + other + "\n"
		}
		text += `verdict_service_connections_total{ip_family="IPv4",namespace="shop",port="http",service="web"} ` + web
		k.expect(t, c, text, connections)
	}
	unknown := server(node, 30081, 7)
	expect(routed, "115", "", server(vip, 80, 100), server(node, 30080, 10), unknown)
	expect(routed[1:], "116", "", server(vip, 80, 103), server(node, 30080, 11), unknown) // it drains
	expect(routed, "118", "", server(vip, 80, 105), server(node, 30080, 11), unknown)
	expect(routed, "119", "", server(vip, 80, 1), server(node, 30080, 11), unknown) // it was made again
	taken := []inspect.FrontendStatus{routed[0], routed[1]}
	taken[0].Name = "shop/other:http"
	expect(taken, "119", "4", server(vip, 80, 5), server(node, 30080, 11), unknown)

	k.err = errors.New("no")
	testutil.CollectAndCount(c)
	k.err = nil
	expect(taken, "120", "5", server(vip, 80, 6), server(node, 30080, 12), unknown) // after a failure
	full := &kernel{frontends: 11}
	testutil.CollectAndCount(full.collector(10))
	if full.servers != 0 {
		t.Errorf("with too many frontends, virtual servers were read %d times", full.servers)
	}
}

// TestLint: names and help texts are as Prometheus wants them. Every metric has a series, because only those are checked.
func TestLint(t *testing.T) {
	k := &kernel{traffic: []inspect.FrontendStatus{at(program.Services, "a", "shop/web:http", 1), at(program.NoEndpoints, "b", "shop/old:80", 4)},
		open: []socket.Passing{{Service: "shop/web:http", Client: "pod", Endpoint: "here", Open: 1}}, fast: socket.FastPath{After: 20}}
	c, registry := k.collector(10), prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	described, seen := make(chan *prometheus.Desc, 100), map[string]bool{}
	c.Describe(described)
	families, err := registry.Gather()
	if err != nil || len(families) != len(described) {
		for _, f := range families {
			seen[f.GetName()] = true
		}
		t.Errorf("%d of %d metrics have a series: %v, %v", len(families), len(described), seen, err)
	}
}

// TestLimit: with too many frontends, the kernel is not asked.
func TestLimit(t *testing.T) {
	for _, tt := range []struct {
		frontends, most, read int
		shown                 string
	}{{10, 10, 1, "1"}, {11, 10, 0, "0"}, {0, 0, 0, "0"}} {
		k := &kernel{frontends: tt.frontends}
		k.expect(t, k.collector(tt.most), `
			# TYPE verdict_service_connections_shown gauge
			verdict_service_connections_shown `+tt.shown+"\n", "verdict_service_connections_shown")
		if k.read != tt.read {
			t.Errorf("%+v: read %d times", tt, k.read)
		}
	}
}

// TestScrapesInARow share a reading.
func TestScrapesInARow(t *testing.T) {
	k := &kernel{}
	c := k.collector(10)
	for range 3 {
		testutil.CollectAndCount(c)
	}
	if k.read != 1 {
		t.Errorf("the kernel was read %d times", k.read)
	}
}

func TestFailures(t *testing.T) {
	k := &kernel{err: errors.New("no")}
	c := k.collector(10)
	testutil.CollectAndCount(c)
	k.expect(t, c, `
		# TYPE verdict_scrape_failures_total counter
		verdict_scrape_failures_total{source="affinity"} 2
		verdict_scrape_failures_total{source="connections"} 2
		verdict_scrape_failures_total{source="conntrack"} 2
		verdict_scrape_failures_total{source="ipvs"} 2
		verdict_scrape_failures_total{source="open connections"} 2
		# TYPE verdict_service_connections_shown gauge
		verdict_service_connections_shown 0
	`, "verdict_scrape_failures_total", "verdict_service_connections_shown", connections)
}

// TestOpen: open connections are shown for each service port, or for all together if the node has too many frontends.
func TestOpen(t *testing.T) {
	k := &kernel{frontends: 2, open: []socket.Passing{
		{Service: "shop/a:http", Client: "outside", Endpoint: "elsewhere", Open: 5},
		{Service: "shop/b:http", Client: "outside", Endpoint: "elsewhere", Open: 7},
		{Service: "shop/b:http", Client: "pod", Endpoint: "here", Open: 1},
	}}
	c := k.collector(2)
	k.expect(t, c, `# TYPE verdict_service_open_connections gauge
		verdict_service_open_connections{client="outside",endpoint="elsewhere",namespace="shop",port="http",service="a"} 5
		verdict_service_open_connections{client="outside",endpoint="elsewhere",namespace="shop",port="http",service="b"} 7
		verdict_service_open_connections{client="pod",endpoint="here",namespace="shop",port="http",service="b"} 1
	`, "verdict_service_open_connections")
	k.frontends = 3
	k.expect(t, c, `# TYPE verdict_service_open_connections gauge
		verdict_service_open_connections{client="outside",endpoint="elsewhere",namespace="",port="",service=""} 12
		verdict_service_open_connections{client="pod",endpoint="here",namespace="",port="",service=""} 1
	`, "verdict_service_open_connections")
}

// TestFastPath: connections on the fast path are shown beside the open ones, and why there are none; nothing is if --fast-path is off.
func TestFastPath(t *testing.T) {
	k := &kernel{frontends: 2, open: []socket.Passing{
		{Service: "shop/a:http", Client: "outside", Endpoint: "elsewhere", Open: 5, FastPath: 2},
		{Service: "shop/b:http", Client: "outside", Endpoint: "elsewhere", Open: 7, FastPath: 1},
	}}
	c, names := k.collector(2), []string{"verdict_fast_path", "verdict_service_fast_path_connections"}
	k.expect(t, c, "", names...)
	k.fast.After = 20
	k.expect(t, c, `# TYPE verdict_fast_path gauge
		verdict_fast_path{reason=""} 1
		# TYPE verdict_service_fast_path_connections gauge
		verdict_service_fast_path_connections{client="outside",endpoint="elsewhere",namespace="shop",port="http",service="a"} 2
		verdict_service_fast_path_connections{client="outside",endpoint="elsewhere",namespace="shop",port="http",service="b"} 1
	`, names...)
	k.frontends = 3
	k.expect(t, c, `# TYPE verdict_service_fast_path_connections gauge
		verdict_service_fast_path_connections{client="outside",endpoint="elsewhere",namespace="",port="",service=""} 3
	`, names[1])
	k.fast.NoEffect = "the kernel is old"
	k.expect(t, c, `# TYPE verdict_fast_path gauge
		verdict_fast_path{reason="the kernel is old"} 0
	`, names...)
}

func TestSplitName(t *testing.T) {
	for name, want := range map[string][3]string{
		"shop/web:http": {"shop", "web", "http"}, "shop/web:": {"shop", "web", ""}, "shop/a-name-that-is-tr": {"", "shop/a-name-that-is-tr", ""},
		"": {}, "\xff": {},
	} {
		a, b, c := splitName(name)
		if got := [3]string{a, b, c}; got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// withoutHelp leaves out the help texts, which a test need not repeat.
type withoutHelp struct{ prometheus.Gatherer }

func (w withoutHelp) Gather() ([]*dto.MetricFamily, error) {
	families, err := w.Gatherer.Gather()
	for _, f := range families {
		f.Help = new(string)
	}
	return families, err
}
