package list

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

func pool(list ...string) (out []nft.EndpointStatus) {
	for i, s := range list {
		out = append(out, nft.EndpointStatus{Addr: netip.MustParseAddrPort(s), Slots: i + 1})
	}
	return out
}

func frontendAt(name, at string, fe nft.FrontendStatus) nft.FrontendStatus {
	to := netip.MustParseAddrPort(at)
	fe.Name, fe.Family, fe.Port, fe.Protocol = name, nft.FamilyOf(to.Addr()), to.Port(), 6
	if !to.Addr().IsUnspecified() {
		fe.Addr = to.Addr()
	}
	return fe
}

// sample returns a table with a line of each kind.
func sample() (nft.Listing, []ipvsctl.Status, map[conntrack.Route]conntrack.Load) {
	dns := frontendAt("kube-system/dns:dns", "10.96.0.53:53", nft.FrontendStatus{Pool: nft.ClusterPool, Method: nft.InTurn, Cluster: pool("10.0.1.53:53")})
	dns.Protocol = 17
	web := nft.FrontendStatus{Pool: nft.ClusterPool, Cluster: pool("10.0.1.2:8080", "10.0.1.10:8080")}
	rules := nft.Listing{
		NodePortAddresses: []netip.Addr{netip.MustParseAddr("192.168.7.1"), netip.MustParseAddr("fd00:7::1")},
		Frontends: []nft.FrontendStatus{
			dns,
			frontendAt("shop/web:http", "0.0.0.0:30080", web),
			frontendAt("shop/web:http", "10.96.0.10:80", web),
			frontendAt("shop/web:http", "192.0.2.10:80", nft.FrontendStatus{
				Pool: nft.BySource, Method: nft.SourceHash, Affinity: 3 * time.Hour, Firewalled: true, Refusal: nft.Drop,
				Cluster: pool("10.0.1.2:8080", "10.0.2.1:8080"), Local: pool("10.0.1.2:8080", "10.0.1.3:8080"),
			}),
			frontendAt("shop/empty:http", "10.96.0.11:80", nft.FrontendStatus{Refusal: nft.Reject}),
			frontendAt("shop/six:http", "[::]:30081", nft.FrontendStatus{Pool: nft.LocalPool, Local: pool("[fd00:10::1]:8080")}),
			frontendAt("shop/six:http", "[fd00:96::10]:80", nft.FrontendStatus{Refusal: nft.Drop}),
			frontendAt("shop/busy:http", "10.96.0.20:80", nft.FrontendStatus{IPVS: true, Firewalled: true}),
			frontendAt("shop/busy:http", "0.0.0.0:30020", nft.FrontendStatus{IPVS: true}),
			frontendAt("shop/near:http", "192.0.2.20:80", nft.FrontendStatus{IPVS: true, Pool: nft.BySource, Cluster: pool("10.0.1.2:8080", "10.0.2.1:8080")}),
			frontendAt("shop/lost:http", "10.96.0.21:80", nft.FrontendStatus{IPVS: true}),
		},
	}
	real := func(at string, weight uint16, active, inactive int) ipvsctl.RealStatus {
		return ipvsctl.RealStatus{RealServer: ipvsctl.RealServer{Addr: netip.MustParseAddrPort(at), Weight: weight}, Active: active, Inactive: inactive}
	}
	server := func(at, scheduler string, reals ...ipvsctl.RealStatus) ipvsctl.Status {
		to := netip.MustParseAddrPort(at)
		return ipvsctl.Status{Key: ipvsctl.Key{Addr: to.Addr(), Port: to.Port(), Protocol: ipvsctl.TCP}, Scheduler: scheduler, RealServers: reals}
	}
	servers := []ipvsctl.Status{
		server("10.96.0.20:80", "wlc", real("10.0.1.2:8080", 3, 7, 1), real("10.0.1.3:8080", 0, 1, 0)),
		server("10.96.0.99:80", "sh", real("10.0.1.2:8080", 0, 0, 2)),
		server("192.168.7.1:30020", "lc"),
		server("192.0.2.20:80", "lc", real("10.0.1.2:8080", 1, 2, 3)),
	}
	servers[1].Flags, servers[1].Persistence = ipvsctl.Fallback|ipvsctl.HashPort, time.Minute
	load := func(protocol uint8, dst, reply string) conntrack.Route {
		return conntrack.Route{Protocol: protocol, Dst: netip.MustParseAddrPort(dst), Reply: netip.MustParseAddrPort(reply)}
	}
	loads := map[conntrack.Route]conntrack.Load{
		load(6, "10.96.0.10:80", "10.0.1.2:8080"):              {Active: 3, Inactive: 1},
		load(6, "10.96.0.10:80", "10.0.1.7:8080"):              {Active: 1},
		load(17, "10.96.0.53:53", "10.0.1.53:53"):              {Active: 12, Inactive: 4},
		load(6, "10.96.0.53:53", "10.0.1.53:53"):               {Active: 99}, // another protocol
		load(6, "192.168.7.1:30080", "10.0.1.10:8080"):         {Active: 2},
		load(6, "192.168.7.9:30080", "10.0.1.10:8080"):         {Active: 99}, // no node port of Verdict
		load(6, "192.0.2.10:80", "10.0.2.1:8080"):              {Inactive: 5},
		load(6, "[fd00:7::1]:30081", "[fd00:10::1]:8080"):      {Active: 1},
		load(6, "[fd00:7::1]:30080", "[fd00:10::1]:8080"):      {Active: 99}, // no IPv6 frontend
		load(6, "10.96.0.20:80", "10.0.1.2:8080"):              {Active: 99}, // IPVS has counters of its own
		load(6, "203.0.113.80:80", "10.0.1.2:8080"):            {Active: 99}, // translated by other software
		load(6, "[::ffff:10.96.0.10]:80", "[fd00:10::1]:8080"): {Active: 99},
	}
	return rules, servers, loads
}

const full = `
Node ports (*) are on 192.168.7.1 [fd00:7::1]
Prot LocalAddress:Port  Scheduler  Engine     Service    Flags
  -> RemoteAddress:Port Weight     ActiveConn InActConn
TCP  10.96.0.10:80      random     nft        shop/web:http
  -> 10.0.1.2:8080      1          3          1
  -> 10.0.1.7:8080      0          1          0
  -> 10.0.1.10:8080     2          0          0
TCP  10.96.0.11:80      -          nft        shop/empty:http rejected
TCP  10.96.0.20:80      wlc        ipvs       shop/busy:http source-ranges
  -> 10.0.1.2:8080      3          7          1
  -> 10.0.1.3:8080      0          1          0
TCP  10.96.0.21:80      -          ipvs       shop/lost:http no-virtual-server
UDP  10.96.0.53:53      rr         nft        kube-system/dns:dns
  -> 10.0.1.53:53       1          12         4
TCP  10.96.0.99:80      sh         ipvs       -          persistent 60 (sh-fallback,sh-port)
  -> 10.0.1.2:8080      0          0          2
TCP  192.0.2.10:80      mh         nft        shop/web:http persistent 10800 local dropped-outside source-ranges
  -> 10.0.1.2:8080      1          0          0          (pods, node: 1)
  -> 10.0.1.3:8080      2          0          0          (pods, node: 0)
  -> 10.0.2.1:8080      0          0          5          (pods, node: 2)
TCP  192.0.2.20:80      random     nft        shop/near:http pods-and-node-only
  -> 10.0.1.2:8080      1          0          0
  -> 10.0.2.1:8080      2          0          0
TCP  192.0.2.20:80      lc         ipvs       shop/near:http local
  -> 10.0.1.2:8080      1          2          3
TCP  192.168.7.1:30020  lc         ipvs       shop/busy:http node-port
TCP  *:30080            random     nft        shop/web:http
  -> 10.0.1.2:8080      1          0          0
  -> 10.0.1.10:8080     2          2          0
TCP  [fd00:96::10]:80   -          nft        shop/six:http dropped
TCP  [*]:30081          random     nft        shop/six:http local
  -> [fd00:10::1]:8080  1          1          0
`

const terse = `
Node ports (*) are on 192.168.7.1 [fd00:7::1]
Prot LocalAddress:Port Scheduler Engine Endpoints ActiveConn InActConn Service             Flags
TCP  10.96.0.10:80     random    nft    3         4          1         shop/web:http
TCP  10.96.0.11:80     -         nft    0         0          0         shop/empty:http     rejected
TCP  10.96.0.20:80     wlc       ipvs   2         8          1         shop/busy:http      source-ranges
TCP  10.96.0.21:80     -         ipvs   0         0          0         shop/lost:http      no-virtual-server
UDP  10.96.0.53:53     rr        nft    1         12         4         kube-system/dns:dns
TCP  10.96.0.99:80     sh        ipvs   1         0          2         -                   persistent 60 (sh-fallback,sh-port)
TCP  192.0.2.10:80     mh        nft    3         0          5         shop/web:http       persistent 10800 local dropped-outside source-ranges
TCP  192.0.2.20:80     random    nft    2         0          0         shop/near:http      pods-and-node-only
TCP  192.0.2.20:80     lc        ipvs   1         2          3         shop/near:http      local
TCP  192.168.7.1:30020 lc        ipvs   0         0          0         shop/busy:http      node-port
TCP  *:30080           random    nft    2         2          0         shop/web:http
TCP  [fd00:96::10]:80  -         nft    0         0          0         shop/six:http       dropped
TCP  [*]:30081         random    nft    1         1          0         shop/six:http       local
`

// uncounted is the beginning of the output without connection tracking. IPVS still counts.
const uncounted = `
Node ports (*) are on 192.168.7.1 [fd00:7::1]
Prot LocalAddress:Port  Scheduler  Engine     Service    Flags
  -> RemoteAddress:Port Weight     ActiveConn InActConn
TCP  10.96.0.10:80      random     nft        shop/web:http
  -> 10.0.1.2:8080      1          -          -
  -> 10.0.1.10:8080     2          -          -
TCP  10.96.0.11:80      -          nft        shop/empty:http rejected
TCP  10.96.0.20:80      wlc        ipvs       shop/busy:http source-ranges
  -> 10.0.1.2:8080      3          7          1
`

func sampleTable(counted bool) *table {
	rules, servers, loads := sample()
	t := combine(rules, servers, false)
	if counted {
		t.attach(loads)
	}
	t.sort()
	return t
}

func text(t *testing.T, table *table, o options) string {
	t.Helper()
	var out bytes.Buffer
	if err := table.write(&out, o); err != nil {
		t.Fatal(err)
	}
	return "\n" + out.String()
}

func TestText(t *testing.T) {
	for _, tt := range []struct {
		name    string
		counted bool
		o       options
		want    string
	}{
		{"full", true, options{}, full},
		{"terse", true, options{terse: true}, terse},
		{"uncounted", false, options{}, uncounted},
	} {
		got := text(t, sampleTable(tt.counted), tt.o)
		if !tt.counted {
			got = got[:min(len(got), len(tt.want))]
		}
		if diff := cmp.Diff(strings.Split(tt.want, "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", tt.name, diff)
		}
	}
}

func TestJSON(t *testing.T) {
	table := sampleTable(true)
	table.Frontends = table.Frontends[5:7] // one of each engine
	const want = `
{
  "nodePortAddresses": [
    "192.168.7.1",
    "fd00:7::1"
  ],
  "frontends": [
    {
      "service": "",
      "protocol": "TCP",
      "family": "IPv4",
      "address": "10.96.0.99",
      "port": 80,
      "engine": "ipvs",
      "scheduler": "sh",
      "schedulerFlags": "sh-fallback,sh-port",
      "affinitySeconds": 60,
      "endpoints": [
        {
          "address": "10.0.1.2",
          "port": 8080,
          "weight": 0,
          "active": 0,
          "inactive": 2
        }
      ]
    },
    {
      "service": "shop/web:http",
      "protocol": "TCP",
      "family": "IPv4",
      "address": "192.0.2.10",
      "port": 80,
      "engine": "nft",
      "scheduler": "mh",
      "affinitySeconds": 10800,
      "local": true,
      "refusal": "dropped",
      "refusalOutsideOnly": true,
      "sourceRanges": true,
      "endpoints": [
        {
          "address": "10.0.1.2",
          "port": 8080,
          "weight": 1,
          "weightForPodsAndNode": 1,
          "active": 0,
          "inactive": 0
        },
        {
          "address": "10.0.1.3",
          "port": 8080,
          "weight": 2,
          "weightForPodsAndNode": 0,
          "active": 0,
          "inactive": 0
        },
        {
          "address": "10.0.2.1",
          "port": 8080,
          "weight": 0,
          "weightForPodsAndNode": 2,
          "active": 0,
          "inactive": 5
        }
      ]
    }
  ]
}
`
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(text(t, table, options{json: true}), "\n")); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
	var back struct{ Frontends []map[string]any }
	if err := json.Unmarshal([]byte(text(t, sampleTable(true), options{json: true})), &back); err != nil || len(back.Frontends) != 13 {
		t.Errorf("%d frontends read back, %v; want 13", len(back.Frontends), err)
	}
	if got := text(t, combine(nft.Listing{}, nil, false), options{json: true}); strings.Contains(got, "null") {
		t.Errorf("empty lists are null: %s", got)
	}
}

func TestOnlySome(t *testing.T) {
	rules, servers, _ := sample()
	rules.Frontends = rules.Frontends[7:8:8] // what nft.List returns for a filter
	got := combine(rules, servers, true)
	if len(got.Frontends) != 1 || got.Frontends[0].Service != "shop/busy:http" {
		t.Errorf("got %+v, want the virtual server of shop/busy alone", got.Frontends)
	}
}

func TestFilters(t *testing.T) {
	long := strings.Repeat("n", 63) + "/" + strings.Repeat("s", 55)
	cut := nft.Label(long + ":http-alternative")
	longest := strings.Repeat("n", 63) + "/" + strings.Repeat("s", 63)
	for _, tt := range []struct {
		filter string
		yes    []string
		no     []string
	}{
		{"shop", []string{"shop/web:http", "shop/a:80"}, []string{"shopping/web:http", "default/shop:http", ""}},
		{"shop/web", []string{"shop/web:http", "shop/web:443"}, []string{"shop/web2:http", "shop/we:http", "x/shop/web:http"}},
		{"shop/web:http", []string{"shop/web:http"}, []string{"shop/web:https", "shop/web:htt", "shop/web:"}},
		{long, []string{long + ":http", cut}, []string{long + "s:http", nft.Label(longest + ":http")}},
		{longest, []string{nft.Label(longest + ":http"), nft.Label(longest + ":" + strings.Repeat("p", 63))}, []string{cut}},
		{longest + ":http", []string{nft.Label(longest + ":http")}, []string{nft.Label(longest + ":https")}},
		{long + ":http-alternative", []string{cut}, []string{long + ":http"}},
		{long + ":h", nil, []string{cut}},
	} {
		list, err := parseFilters([]string{"other", tt.filter})
		if err != nil {
			t.Fatal(err)
		}
		match := (&options{services: list}).match()
		for _, name := range tt.yes {
			if !match(name) {
				t.Errorf("%s does not match %s", tt.filter, name)
			}
		}
		for _, name := range tt.no {
			if match(name) {
				t.Errorf("%s matches %s", tt.filter, name)
			}
		}
	}
	for _, wrong := range []string{"", "/", "/web", "shop/", "shop/:http", "shop:http", "a/b/c", "a:b/c"} {
		if list, err := parseFilters([]string{wrong}); err == nil {
			t.Errorf("%q is taken as %v", wrong, list)
		}
	}
	if (&options{}).match() != nil {
		t.Error("without filters some frontends are left out")
	}
}
