package dataplane

import (
	"fmt"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestChoose: what is asked for, and what comes of it.
func TestChoose(t *testing.T) {
	all := ipvsctl.Schedulers()
	nftOnly := Scheduling{Backend: config.BackendNFT, Unavailable: "--backend is nft"}
	hybrid := Scheduling{Backend: config.BackendHybrid, Available: all}
	none := Scheduling{Backend: config.BackendHybrid, Unavailable: "the kernel has no IPVS"}
	some := Scheduling{Backend: config.BackendHybrid, Available: []string{"rr"}}
	ipvs := Scheduling{Backend: config.BackendIPVS, Default: "wlc", Available: all}
	hashing := Scheduling{Backend: config.BackendIPVS, Default: "mh", Available: all}
	few := Scheduling{Backend: config.BackendIPVS, Default: "rr", Available: []string{"rr"}}
	gone := Scheduling{Backend: config.BackendIPVS, Default: "rr", Unavailable: "the kernel has no IPVS"}
	defaults := func(s Scheduling, scheduler string) Scheduling { s.Default = scheduler; return s }
	prefers := func(s Scheduling, scheduler string) Scheduling { s.Preferred = scheduler; return s }
	random, hash, turn := method{nft: program.Random}, method{nft: program.SourceHash}, method{nft: program.InTurn}
	porthash := method{nft: program.SourcePortHash}
	byIPVS := func(scheduler string, m program.Method) method {
		return method{ipvs: true, scheduler: scheduler, nft: m}
	}
	routed := func(m method) method { m.forwarding.Method = wire.ByRoute; return m }
	gue := method{ipvs: true, scheduler: "lc", forwarding: wire.Forwarding{Method: wire.ByTunnel, Tunnel: wire.GUE, Port: 6080}}
	tests := []struct {
		name         string
		s            Scheduling
		asked, flags string // fields of state.Balancing; behind a blank in asked: the forwarding
		want         method
		problem      string // parts, by "|"
	}{
		{"nft", nftOnly, "", "", random, ""},
		{"nft", nftOnly, "random", "", random, ""},
		{"nft", nftOnly, "sh", "", hash, ""},
		{"nft", nftOnly, "mh", "", hash, ""},
		{"nft", nftOnly, "rr", "", turn, ""},
		{"nft", nftOnly, "wrr", "", turn, ""},
		{"nft", nftOnly, "lc", "", random, "lc needs IPVS (--backend is nft)|at random"},
		{"nft", nftOnly, "twos", "", random, "twos needs IPVS"},
		{"nft", nftOnly, "fo", "", method{nft: program.Random, heaviest: true}, "fo needs IPVS|greatest weight"},
		{"nft", nftOnly, "fastest", "", random, `unknown scheduler "fastest"`},
		{"nft", nftOnly, "sh", "sh-port", porthash, ""},
		{"nft", nftOnly, "sh", "sh-fallback", hash, ""},
		{"nft", nftOnly, "", "sh-port", random, "scheduler flags ignored"},

		{"hybrid", hybrid, "", "", random, ""},
		{"hybrid", hybrid, "random", "", random, ""},
		{"hybrid", hybrid, "mh", "", hash, ""},
		{"hybrid", hybrid, "mh", "mh-port,mh-fallback", porthash, ""},
		{"hybrid", hybrid, "mh", "sh-port", hash, `no flag "sh-port"`},
		{"hybrid", hybrid, "rr", "", byIPVS("rr", program.InTurn), ""},
		{"hybrid", hybrid, "lc", "", byIPVS("lc", program.Random), ""},
		{"hybrid", hybrid, "fo", "", method{ipvs: true, scheduler: "fo", heaviest: true}, ""},
		{"hybrid", hybrid, "lc", "lc-port", byIPVS("lc", program.Random), "scheduler flags ignored"},
		{"hybrid", hybrid, "fastest", "", random, "unknown scheduler"},
		{"hybrid without IPVS", none, "wlc", "", random, "wlc needs IPVS (the kernel has no IPVS)"},
		{"hybrid without IPVS", none, "rr", "", turn, ""},
		{"hybrid without the module", some, "lc", "", random, "module ip_vs_lc|at random"},
		{"hybrid without the module", some, "rr", "", byIPVS("rr", program.InTurn), ""},

		{"prefers lc", prefers(hybrid, "lc"), "", "", byIPVS("lc", program.Random), ""},
		{"prefers lc", prefers(hybrid, "lc"), "random", "", random, ""},
		{"prefers lc", prefers(hybrid, "lc"), "sh", "", hash, ""},
		{"prefers lc", prefers(hybrid, "lc"), "fastest", "", byIPVS("lc", program.Random), "unknown scheduler"},
		{"prefers mh", prefers(hybrid, "mh"), "", "mh-port", porthash, ""},
		{"prefers sh", prefers(hybrid, "sh"), "", "", hash, ""},
		{"prefers lc without IPVS", prefers(none, "lc"), "", "", random, ""},
		{"prefers lc without the module", prefers(some, "lc"), "", "", random, ""},
		{"prefers rr without IPVS", prefers(none, "rr"), "", "", turn, ""},
		{"prefers rr with nft", prefers(nftOnly, "rr"), "", "", turn, ""},
		{"prefers lc with ipvs", prefers(ipvs, "lc"), "", "", byIPVS("wlc", program.Random), ""},

		{"ipvs", ipvs, "", "", byIPVS("wlc", program.Random), ""},
		{"ipvs, a default with flags", hashing, "", "mh-port", method{ipvs: true, scheduler: "mh", flags: wire.HashPort, nft: program.SourcePortHash}, ""},
		{"ipvs", ipvs, "sh", "", byIPVS("sh", program.SourceHash), ""},
		{"ipvs", ipvs, "random", "", byIPVS("wlc", program.Random), "IPVS has no scheduler random; wlc is used"},
		{"ipvs", ipvs, "fastest", "", byIPVS("wlc", program.Random), "unknown scheduler"},
		{"ipvs without the module", few, "sh", "sh-port", byIPVS("rr", program.InTurn), "module ip_vs_sh|rr is used"},
		{"ipvs without IPVS", gone, "", "", random, ""},
		{"ipvs without IPVS", gone, "lc", "", random, "the kernel has no IPVS"},

		{"hybrid", defaults(hybrid, "wlc"), " route", "", routed(byIPVS("wlc", program.Random)), ""},
		{"hybrid", defaults(hybrid, "wlc"), "mh route", "mh-port", routed(method{ipvs: true, scheduler: "mh", flags: wire.HashPort, nft: program.SourcePortHash}), ""},
		{"hybrid", defaults(hybrid, "wlc"), "random route", "", routed(byIPVS("wlc", program.Random)), "IPVS has no scheduler random; wlc is used"},
		{"hybrid", hybrid, "lc tunnel,gue", "", gue, ""},
		{"hybrid", hybrid, " nat,gue", "", random, `"gue" has no meaning|NAT forwards`},
		{"hybrid", hybrid, "lc dsr", "", byIPVS("lc", program.Random), `"dsr" is not nat, route or tunnel; NAT forwards`},
		{"hybrid without the module", defaults(some, "rr"), "sh route", "", routed(byIPVS("rr", program.InTurn)), "module ip_vs_sh|rr is used"},
		{"hybrid without both modules", defaults(some, "wlc"), "sh route", "", hash, "module ip_vs_sh|NAT forwards"},
		{"hybrid without IPVS", none, " route", "", random, "forwarding without NAT needs IPVS (the kernel has no IPVS); NAT forwards"},
		{"nft", nftOnly, "lc tunnel", "", random, "without NAT needs IPVS (--backend is nft)|lc needs IPVS"},
		{"prefers lc", prefers(hybrid, "lc"), " route", "", routed(byIPVS("lc", program.Random)), ""},
		{"ipvs", ipvs, " route", "", routed(byIPVS("wlc", program.Random)), ""},
	}
	for _, tt := range tests {
		t.Run(strings.Join([]string{tt.name, tt.asked, tt.flags}, "/"), func(t *testing.T) {
			scheduler, forwarding, _ := strings.Cut(tt.asked, " ")
			got := tt.s.choose(state.Balancing{Scheduler: scheduler, Flags: tt.flags, Forwarding: state.Forwarding(forwarding)})
			problem := got.problem
			if got.problem = ""; !got.ipvs {
				got.scheduler, got.flags, got.forwarding = "", 0, wire.Forwarding{} // of no consequence
			}
			if got != tt.want || (problem == "") != (tt.problem == "") {
				t.Errorf("got %+v, %q; want %+v, %q", got, problem, tt.want, tt.problem)
			}
			for part := range strings.SplitSeq(tt.problem, "|") {
				if !strings.Contains(problem, part) {
					t.Errorf("problem %q does not say %q", problem, part)
				}
			}
		})
	}
}

func TestHeaviest(t *testing.T) {
	list := []serviceport.Endpoint{{Weight: 1}, {Weight: 7, Local: true}, {Weight: 7}}
	if got := heaviest(list); len(got) != 2 || got[0].Weight != 7 || list[0].Weight != 1 {
		t.Errorf("got %+v of %+v", got, list)
	}
	if got := heaviest(nil); len(got) != 0 {
		t.Errorf("got %+v of nothing", got)
	}
}

func TestSlots(t *testing.T) {
	tests := []struct {
		weights []uint16
		want    string
	}{
		{[]uint16{1, 3}, "[1 3]"},
		{[]uint16{100, 300, 200}, "[1 3 2]"},
		{[]uint16{65535, 1}, "[256 1]"},
		{[]uint16{1000, 999, 1}, "[128 128 1]"},
		{[]uint16{7, 5, 3}, "[7 5 3]"},
		{[]uint16{255, 1}, "[255 1]"},
		{[]uint16{299, 1}, "[255 1]"},
		{[]uint16{510, 2}, "[255 1]"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.weights), func(t *testing.T) {
			var list []serviceport.Endpoint
			for _, w := range tt.weights {
				list = append(list, serviceport.Endpoint{Weight: w})
			}
			if got := fmt.Sprint(slots(list)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestSlotsOfALargePool: weights must not cost more slots than a pool can have.
func TestSlotsOfALargePool(t *testing.T) {
	for _, n := range []int{4096, 5000, 40000, poolSlots} {
		list := make([]serviceport.Endpoint, n)
		for i := range list {
			list[i].Weight = 37 + uint16(i%2)*63
		}
		total, heaviest := 0, uint16(0)
		for _, s := range slots(list) {
			total, heaviest = total+int(s), max(heaviest, s)
		}
		if total < n || total > poolSlots || n < 40000 && heaviest < 2 {
			t.Errorf("%d endpoints have %d slots, the heaviest %d; want at most %d, in proportion", n, total, heaviest, poolSlots)
		}
	}
}

func TestEqualWeightsNeedNoSlots(t *testing.T) {
	for _, e := range endpoints(&plan.Port{}, &method{}, []serviceport.Endpoint{{Weight: 50}, {Weight: 50}}) {
		if e.Slots != 0 {
			t.Errorf("%d slots for an endpoint like all others, want the default", e.Slots)
		}
	}
}
