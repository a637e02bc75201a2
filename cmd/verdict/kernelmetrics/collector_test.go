package kernelmetrics

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

// kernel is what a test lets the Collector read.
type kernel struct {
	frontends int
	traffic   []nft.Traffic
	err       error
	read      int
	now       time.Time
}

func (k *kernel) collector(most int) *Collector {
	return New(Options{
		Elements: func() []nft.SetElements {
			return []nft.SetElements{
				{Family: nft.IPv4, Set: "services", Elements: k.frontends}, {Family: nft.IPv6, Set: "endpoints", Elements: 5000},
			}
		},
		Affinity: func() ([]nft.AffinityEntries, error) {
			return []nft.AffinityEntries{{Family: nft.IPv4, Entries: 3, Size: 100}, {Family: nft.IPv6, Entries: -1, Size: 100}}, k.err
		},
		Traffic: func(time.Duration) ([]nft.Traffic, error) { k.read++; return k.traffic, k.err },
		Servers: func() ([]ipvsctl.Status, error) {
			return []ipvsctl.Status{{RealServers: []ipvsctl.RealStatus{{Active: 2, Inactive: 5}, {Active: 1}}}}, k.err
		},
		Room: func() (conntrack.Room, error) {
			return conntrack.Room{Entries: 9, Limit: 10, Dropped: 4, Evicted: 6}, k.err
		},
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

func at(set, key, name string, packets uint64) nft.Traffic {
	return nft.Traffic{Family: nft.IPv4, Set: set, Key: key, Name: name, Packets: packets}
}

func TestSizes(t *testing.T) {
	k := &kernel{frontends: 7}
	k.expect(t, k.collector(10), `
		# TYPE verdict_map_elements gauge
		verdict_map_elements{ip_family="IPv4",map="services"} 7
		verdict_map_elements{ip_family="IPv6",map="endpoints"} 5000
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
	`, "verdict_conntrack_entries", "verdict_conntrack_full_total", "verdict_conntrack_limit", "verdict_map_elements", "verdict_affinity_entries", "verdict_affinity_size", "verdict_ipvs_connections", "verdict_ipvs_virtual_servers")
}

const connections, refused = "verdict_service_connections_total", "verdict_service_refused_packets_total"

// TestCountersOnlyGrow: the counter of one frontend starts again, and the sum of the service port goes on.
func TestCountersOnlyGrow(t *testing.T) {
	k := &kernel{}
	c := k.collector(10)
	k.traffic = []nft.Traffic{
		at("services", "a", "shop/web:http", 1000), at("nodeports", "b", "shop/web:http", 5000), at("no-endpoints", "c", "shop/old:80", 4),
	}
	k.expect(t, c, `
		# TYPE verdict_service_connections_total counter
		verdict_service_connections_total{ip_family="IPv4",namespace="shop",port="http",service="web"} 6000
		# TYPE verdict_service_refused_packets_total counter
		verdict_service_refused_packets_total{ip_family="IPv4",namespace="shop",port="80",reason="no_endpoints",service="old"} 4
	`, connections, refused)
	k.traffic = []nft.Traffic{
		at("services", "a", "shop/web:http", 10), at("nodeports", "b", "shop/web:http", 5001), at("nodeports", "b", "shop/web:http", 5001),
	}
	k.expect(t, c, `
		# TYPE verdict_service_connections_total counter
		verdict_service_connections_total{ip_family="IPv4",namespace="shop",port="http",service="web"} 6011
	`, connections, refused)
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
		# TYPE verdict_service_connections_shown gauge
		verdict_service_connections_shown 0
	`, "verdict_scrape_failures_total", "verdict_service_connections_shown", connections)
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
