package snapshot

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

var update = flag.Bool("update", false, "write the tables that the tests expect")

func pool(list ...string) (out []inspect.EndpointStatus) {
	for i, s := range list {
		out = append(out, inspect.EndpointStatus{Addr: netip.MustParseAddrPort(s), Slots: i + 1})
	}
	return out
}

func frontendAt(name, at string, fe inspect.FrontendStatus) inspect.FrontendStatus {
	to := netip.MustParseAddrPort(at)
	fe.Name, fe.Family, fe.Port, fe.Protocol = name, program.FamilyOf(to.Addr()), to.Port(), 6
	if !to.Addr().IsUnspecified() {
		fe.Addr = to.Addr()
	}
	return fe
}

// sample returns a table with a line of each kind.
func sample() (inspect.Listing, []ipvsctl.Status, map[conntrack.Route]conntrack.Load) {
	dns := frontendAt("kube-system/dns:dns", "10.96.0.53:53", inspect.FrontendStatus{Pool: program.ClusterPool, Method: program.InTurn, Cluster: pool("10.0.1.53:53")})
	dns.Protocol = 17
	web := inspect.FrontendStatus{Pool: program.ClusterPool, Cluster: pool("10.0.1.2:8080", "10.0.1.10:8080")}
	rules := inspect.Listing{
		NodePortAddresses: []netip.Addr{netip.MustParseAddr("192.168.7.1"), netip.MustParseAddr("fd00:7::1")},
		Frontends: []inspect.FrontendStatus{
			dns,
			frontendAt("shop/web:http", "0.0.0.0:30080", web),
			frontendAt("shop/web:http", "10.96.0.10:80", web),
			frontendAt("shop/web:http", "192.0.2.10:80", inspect.FrontendStatus{
				Pool: program.BySource, Method: program.SourceHash, Affinity: 3 * time.Hour, Firewalled: true, Refusal: program.Drop,
				Cluster: pool("10.0.1.2:8080", "10.0.2.1:8080"), Local: pool("10.0.1.2:8080", "10.0.1.3:8080"),
			}),
			frontendAt("shop/empty:http", "10.96.0.11:80", inspect.FrontendStatus{Refusal: program.Reject}),
			frontendAt("shop/six:http", "[::]:30081", inspect.FrontendStatus{Pool: program.LocalPool, Local: pool("[fd00:10::1]:8080")}),
			frontendAt("shop/six:http", "[fd00:96::10]:80", inspect.FrontendStatus{Refusal: program.Drop}),
			frontendAt("shop/busy:http", "10.96.0.20:80", inspect.FrontendStatus{IPVS: true, Firewalled: true}),
			frontendAt("shop/busy:http", "0.0.0.0:30020", inspect.FrontendStatus{IPVS: true}),
			frontendAt("shop/near:http", "192.0.2.20:80", inspect.FrontendStatus{IPVS: true, Pool: program.BySource, Cluster: pool("10.0.1.2:8080", "10.0.2.1:8080")}),
			frontendAt("shop/lost:http", "10.96.0.21:80", inspect.FrontendStatus{IPVS: true}),
		},
	}
	real := func(at string, weight uint16, active, inactive int) ipvsctl.RealStatus {
		return ipvsctl.RealStatus{RealServer: ipvsctl.RealServer{Addr: netip.MustParseAddrPort(at), Weight: weight}, Active: active, Inactive: inactive}
	}
	server := func(at, scheduler string, reals ...ipvsctl.RealStatus) ipvsctl.Status {
		to := netip.MustParseAddrPort(at)
		return ipvsctl.Status{Server: wire.Server{Key: ipvsctl.Key{Addr: to.Addr(), Port: to.Port(), Protocol: ipvsctl.TCP}, Header: wire.Header{Scheduler: scheduler}}, RealServers: reals}
	}
	servers := []ipvsctl.Status{
		server("10.96.0.20:80", "wlc", real("10.0.1.2:8080", 3, 7, 1), real("10.0.1.3:8080", 0, 1, 0)),
		server("10.96.0.99:80", "sh", real("10.0.1.2:8080", 0, 0, 2)),
		server("192.168.7.1:30020", "lc"),
		server("192.0.2.20:80", "lc", real("10.0.1.2:8080", 1, 2, 3)),
	}
	servers[1].Flags, servers[1].Persistence = wire.Fallback|wire.HashPort, 60
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

// TestJoin: both engines and connection tracking become one table, whose JSON form is in a file. The tests of the commands
// print that file.
func TestJoin(t *testing.T) {
	rules, servers, loads := sample()
	table := join(&rules, servers, false)
	table.attach(loads)
	table.sort()
	got, err := json.MarshalIndent(table, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/table.json"
	if *update {
		if err := os.WriteFile(file, append(got, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got)+"\n", "\n")); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
}

func TestEmptyListsAreNotNull(t *testing.T) {
	if got, err := json.Marshal(join(&inspect.Listing{}, nil, false)); err != nil || strings.Contains(string(got), "null") {
		t.Errorf("%s, %v", got, err)
	}
}

func TestOnlySome(t *testing.T) {
	rules, servers, _ := sample()
	rules.Frontends = rules.Frontends[7:8:8] // what inspect.List returns for a filter
	got := join(&rules, servers, true)
	if len(got.Frontends) != 1 || got.Frontends[0].Service != "shop/busy:http" {
		t.Errorf("got %+v, want the virtual server of shop/busy alone", got.Frontends)
	}
}
