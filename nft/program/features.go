package program

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/rule"
)

// Feature is a Feature with rules that need it.
type Feature struct {
	Name, Module string
	Base         *Base
	Rules        func(Program) []rule.Rule
}

// Modules names the modules of a family: a * in their names stands for it.
func (x *Feature) Modules(f Family) string {
	return strings.ReplaceAll(x.Module, "*", rule.Choose(f, "ipv4", "ipv6"))
}

// Features lists everything that not every nf_tables has. A test compares it with the expressions of the program.
func Features() []Feature {
	base := filterBase(unix.NF_INET_FORWARD, "forward", 0, "filter")
	return []Feature{
		{"meta, payload, jump", "nf_tables", base, one(func(p Program) rule.Rule {
			match := rule.Rule{rule.InterfaceName("lo", true), rule.In(ClusterIPs, rule.Daddr(p.Family)), rule.ScratchHas(LimitedBit)}
			return append(match, rule.ClearScratch(), rule.Jump("x"))
		})},
		{"verdict maps", "nf_tables", base, one(func(Program) rule.Rule {
			return rule.Rule{rule.DispatchTo(Dispatch, rule.Masked(ClassMask))}
		})},
		{"sets of ranges", "nf_tables", base, one(func(p Program) rule.Rule { return rule.Rule{rule.In(PodCIDRs, rule.Saddr(p.Family))} })},
		{"sets of addresses and ranges of ports", "nf_tables, nft_counter", base, one(func(p Program) rule.Rule {
			frontend := rule.Key{rule.Daddr(p.Family), rule.L4Proto(), rule.Dport()}
			return rule.Rule{rule.In(RangeNoEndpoints, frontend...), rule.In(RangeMasqueradeNode, frontend...),
				rule.SetScratch(RangeServices, frontend...), rule.SetScratch(RangeFirewalled, frontend...)}
		})},
		{"counters of elements", "nf_tables, nft_counter", base, one(func(p Program) rule.Rule {
			return rule.Rule{rule.SetScratch(Services, rule.Daddr(p.Family), rule.L4Proto(), rule.Dport())}
		})},
		{"update in dynamic maps", "nf_tables, nft_hash", base, one(func(p Program) rule.Rule {
			return rule.Rule{affinityEntry(p, "update", time.Minute)}
		})},
		{"delete in dynamic maps", "nf_tables, nft_hash", base, one(func(p Program) rule.Rule {
			return rule.Rule{affinityEntry(p, "delete", 0)}
		})},
		{"counters in dynamic sets", "nf_tables, nft_hash, nft_counter", base, one(func(p Program) rule.Rule {
			return rule.Rule{rule.TCPOnly(), rule.IsReset(), suspect(Refusing, rule.Key{rule.Daddr(p.Family), rule.TCPDport()})}
		})},
		{"limits of elements", "nf_tables, nft_limit, nft_counter", base, one(func(p Program) rule.Rule {
			frontend := rule.Key{rule.Daddr(p.Family), rule.L4Proto(), rule.Dport()}
			return rule.Rule{rule.TCPOnly(), rule.In(HoldsRefusals, frontend...), rule.In(HoldsRefusalsNodePorts, frontend[1:]...),
				rule.In(RangeHoldsRefusals, frontend...), rule.AddTo(HeldBack, rule.Key{frontend[0], rule.TCPDport()}, heldBackTimeout)}
		})},
		{"numgen random", "nft_numgen", base, drawing(Random)},
		{"numgen inc", "nft_numgen", base, drawing(InTurn)},
		{"jhash", "nft_hash", base, drawing(SourceHash)},
		{"ct state, ct status, ct direction, ct original", "nft_ct", base, one(func(p Program) rule.Rule {
			original := rule.Key{rule.OriginalDaddr(p.Family), rule.L4Proto(), rule.OriginalDport()}
			client := rule.Key{rule.OriginalSaddr(p.Family), rule.TrackedProtocol(), rule.OriginalSport()}
			return rule.Rule{rule.IsProtocol(unix.IPPROTO_TCP), rule.IsNew(), rule.IsTranslated(), rule.IsReply(),
				rule.In(MasqueradeAlways, original...), rule.In(MasqueradeAlways, client...)}
		})},
		{"fib saddr type, fib daddr type", "nft_fib, nft_fib_*", base, one(func(Program) rule.Rule {
			return rule.Rule{rule.FromThisNode(), rule.NotToThisNode()}
		})},
		{"reject", "nft_reject, nft_reject_*", base, func(p Program) []rule.Rule { return refuse(p.Family) }},
		{"dnat", "nft_chain_nat, nft_nat", natPrerouting(), one(func(p Program) rule.Rule {
			return rule.Rule{rule.DNAT(p.Family, StickyEndpoints, rule.Scratch())}
		})},
		{"snat", "nft_chain_nat, nft_nat", natPostrouting(), one(func(p Program) rule.Rule {
			return rule.Rule{rule.TCPOnly(), rule.SNAT(p.Family, Answers, rule.Saddr(p.Family), rule.TCPSport())}
		})},
		{"masquerade", "nft_chain_nat, nft_masq", natPostrouting(), one(func(Program) rule.Rule { return rule.Rule{rule.Masquerade()} })},
	}
}

// GoingBack is what the program can do without: see Program.Circles.
func GoingBack() Feature {
	return Feature{"fib daddr . iif oif", "nft_fib, nft_fib_*", filterBase(unix.NF_INET_FORWARD, "forward", 0, "filter"),
		one(func(Program) rule.Rule { return rule.Rule{rule.GoesBack(), rule.NotBy("vrf")} })}
}

func one(of func(Program) rule.Rule) func(Program) []rule.Rule {
	return func(p Program) []rule.Rule { return []rule.Rule{of(p)} }
}

// drawing looks up what a class looks up: a slot in a map with concatenated keys.
func drawing(m Method) func(Program) []rule.Rule {
	return one(func(p Program) rule.Rule {
		return rule.Rule{rule.SetScratch(StickySlots, rule.Masked(PoolMask), drawn(p.Family, Draw{m, 2}))}
	})
}
