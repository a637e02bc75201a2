package nft

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A probe finds out what the kernel lacks of what the program needs. It sends trial transactions: the kernel checks
// them as always, loads modules for them, and undoes them. They write a table of their own that is dormant, so no
// packet sees anything of it.
//
// Kernels ignore attributes that they do not know. So a trial cannot tell that a kernel lacks comments of tables (5.10)
// or counters of elements (5.7). Such a kernel lacks "delete" in dynamic sets, too, which a trial does tell.

// probeTable is the name of the table in trial transactions.
const probeTable = "verdict-probe"

// Feature is something of nf_tables that the program needs.
type Feature struct {
	Family Family
	Name   string
	Module string // the kernel modules that have it, unless they are built in
	Err    error  // nil: the kernel has it; otherwise: what the kernel refused, and its error
}

// feature is a Feature with rules that need it.
type feature struct {
	name, module string
	base         *baseDef
	rules        func(program) []rule
}

// Probe lists what the program needs, and what of it the kernel refuses. It changes nothing.
func Probe(o Options) (list []Feature, err error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	families := o.Families
	if len(families) == 0 {
		families = []Family{IPv4, IPv6}
	}
	return tryFeatures(c, families, features())
}

// tryFeatures tries everything at once. Only if the kernel refuses that, it tries each feature alone, because the
// kernel takes milliseconds to undo a trial.
func tryFeatures(k kernel, families []Family, list []feature) ([]Feature, error) {
	var all Transaction
	var result []Feature
	for _, f := range families {
		all.operation(tableForTrial(f))
		for i, x := range list {
			all.try(f, &x, fmt.Sprintf("probe-%d", i))
			result = append(result, Feature{Family: f, Name: x.name, Module: x.modules(f)})
		}
	}
	refused := sendTrial(k, &all)
	if refused == nil {
		return result, nil
	}
	found := false
	for i := range result {
		var one Transaction
		f := result[i].Family
		one.operation(tableForTrial(f))
		one.try(f, &list[i%len(list)], "probe")
		if err := sendTrial(k, &one); lacking(err) {
			result[i].Err, found = err, true
		} else if err != nil {
			return nil, fmt.Errorf("probe nf_tables for %s: %w", result[i].Name, err)
		}
	}
	if !found {
		return result, fmt.Errorf("probe nf_tables: it takes each feature alone, but not all of them: %w", refused)
	}
	return result, nil
}

// lacking reports whether an error says that the kernel does not have something. All others may come from a kernel that
// is short of memory, or from a process without rights.
func lacking(err error) bool {
	for _, lack := range []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EINVAL, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ENOSYS} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}

func tableForTrial(f Family) operation {
	return operation{kind: opAddTable, family: f, table: probeTable, flags: unix.NFT_TABLE_F_DORMANT}
}

// try adds a chain with the rules of a feature, and the sets and chains that these need.
func (t *Transaction) try(f Family, x *feature, name string) {
	p := program{family: f}
	rules, defs := x.rules(p), p.sets()
	var needed []string
	for _, r := range rules {
		sets, chains := r.references()
		for _, c := range chains {
			t.operation(operation{kind: opAddChain, family: f, table: probeTable, name: c, chain: &chainDef{name: c}})
		}
		needed = append(needed, sets...)
	}
	for id := range defs {
		if d := &defs[id]; slices.Contains(needed, d.name) {
			t.operation(operation{kind: opAddSet, family: f, table: probeTable, name: d.name, set: d, id: setID(id)})
		}
	}
	chain := &chainDef{name: name, base: x.base}
	t.operation(operation{kind: opAddChain, family: f, table: probeTable, name: name, chain: chain})
	for _, r := range rules {
		t.operation(operation{kind: opAddRule, family: f, table: probeTable, name: name, rule: r})
	}
}

// sendTrial returns what the kernel refused, and why; nil: it took everything.
func sendTrial(k kernel, t *Transaction) error {
	var b batch
	if err := b.trial(t); err != nil {
		return err
	}
	_, why, err := k.send(&b)
	if why != nil {
		return fmt.Errorf("nf_tables refused %s: %w", b.blame(t, why), why.Err())
	}
	return err
}

// modules names the modules of a family: a * in their names stands for it.
func (x *feature) modules(f Family) string {
	family := "ipv4"
	if f == IPv6 {
		family = "ipv6"
	}
	return strings.ReplaceAll(x.module, "*", family)
}

// features lists everything that not every nf_tables has. A test compares it with the expressions of the program.
func features() []feature {
	base := filterBase(unix.NF_INET_FORWARD, "forward", 0, "filter")
	return []feature{
		{"meta, payload, jump", "nf_tables", base, one(func(p program) rule {
			match := rule{interfaceName("lo", true), in(setClusterIPs, p.daddr()), scratchHas(limitedBit)}
			return append(match, clearScratch(), jump("x"))
		})},
		{"verdict maps", "nf_tables", base, one(func(program) rule {
			return rule{dispatchTo(mapDispatch, masked(classMask))}
		})},
		{"sets of ranges", "nf_tables", base, one(func(p program) rule { return rule{in(setPodCIDRs, p.saddr())} })},
		{"counters of elements", "nf_tables, nft_counter", base, one(func(p program) rule {
			return rule{setScratch(mapServices, p.daddr(), l4proto(), dport())}
		})},
		{"update in dynamic maps", "nf_tables, nft_hash", base, one(func(p program) rule {
			return rule{p.affinityEntry("update", time.Minute)}
		})},
		{"delete in dynamic maps", "nf_tables, nft_hash", base, one(func(p program) rule {
			return rule{p.affinityEntry("delete", 0)}
		})},
		{"counters in dynamic sets", "nf_tables, nft_hash, nft_counter", base, one(func(p program) rule {
			return rule{tcpOnly(), isReset(), p.suspect(setRefusing, key{p.daddr(), tcpDport()})}
		})},
		{"numgen random", "nft_numgen", base, drawing(Random)},
		{"numgen inc", "nft_numgen", base, drawing(InTurn)},
		{"jhash", "nft_hash", base, drawing(SourceHash)},
		{"ct state, ct status, ct direction, ct original", "nft_ct", base, one(func(p program) rule {
			original := key{p.originalDaddr(), l4proto(), originalDport()}
			client := key{p.originalSaddr(), trackedProtocol(), originalSport()}
			return rule{isProtocol(unix.IPPROTO_TCP), isNew(), isTranslated(), isReply(),
				in(setMasqueradeAlways, original...), in(setMasqueradeAlways, client...)}
		})},
		{"fib saddr type, fib daddr type", "nft_fib, nft_fib_*", base, one(func(program) rule {
			return rule{fromThisNode(), notToThisNode()}
		})},
		{"reject", "nft_reject, nft_reject_*", base, func(p program) []rule { return p.refuse() }},
		{"dnat", "nft_chain_nat, nft_nat", natPrerouting(), one(func(p program) rule {
			return rule{p.dnat(mapStickyEndpoints, scratch())}
		})},
		{"masquerade", "nft_chain_nat, nft_masq", natPostrouting(), one(func(program) rule { return rule{masquerade()} })},
	}
}

func one(of func(program) rule) func(program) []rule {
	return func(p program) []rule { return []rule{of(p)} }
}

// drawing looks up what a class looks up: a slot in a map with concatenated keys.
func drawing(m Method) func(program) []rule {
	return one(func(p program) rule {
		return rule{setScratch(mapStickySlots, masked(poolMask), p.drawn(draw{m, 2}))}
	})
}
