package nft

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

func restart(t *testing.T, m *Memory) *Memory {
	t.Helper()
	again, err := m.Restart(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// checkSameApply applies over the kernel and in memory and compares the transactions and the structure that results.
func checkSameApply(t *testing.T, step int, e *Engine, m *Memory) {
	t.Helper()
	want, got := mustApply(t, e), mustApply(t, m.Engine)
	if diff := cmp.Diff(strings.Split(want.Text(), "\n"), strings.Split(got.Text(), "\n")); diff != "" {
		t.Fatalf("step %d: the transactions differ (- kernel, + memory):\n%s", step, diff)
	}
	want.Text, got.Text, want.Head, got.Head, want.InKernel, got.InKernel = nil, nil, nil, nil, 0, 0
	if !cmp.Equal(want, got) {
		t.Fatalf("step %d: result %+v over the kernel, %+v in memory", step, want, got)
	}
	for _, f := range program.Families() {
		want, err := e.conn.Survey(f)
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.kernel.Survey(f)
		want.Counts = nil // the kernel in memory does not count
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(kernel.Existing{}, program.SetShape{}, program.Tuning{}, program.ChainShape{}, rule.RulesShape{})); diff != "" || err != nil {
			t.Fatalf("step %d: chains or sets differ (- kernel, + memory): %v\n%s", step, err, diff)
		}
	}
	for name, e := range map[string]*Engine{"kernel": e, "memory": m.Engine} {
		if whole, err := e.Intact(); err != nil || !whole {
			t.Fatalf("step %d: the tables in the %s are intact: %t, %v", step, name, whole, err)
		}
	}
}

// strangeTransaction is one that the engine never makes.
type strangeTransaction struct {
	name  string
	write func(*program.Transaction)
	errno unix.Errno // 0: accepted
}

// strangeTransactions are for the tables of kindsExample.
func strangeTransactions() []strangeTransaction {
	operations := func(list ...program.Operation) func(*program.Transaction) {
		return func(t *program.Transaction) { t.Before = list }
	}
	address := func(id program.SetID, a string) func(*program.Transaction) {
		return func(t *program.Transaction) {
			t.For(program.IPv4).Insert(id, t.Element("", func(b *program.Builder) { b.Addr(addr(a)) }, nil))
		}
	}
	return []strangeTransaction{
		{"element with other data", func(t *program.Transaction) { t.For(program.IPv4).Insert(program.Pools, poolElement(t, 2, 7)) }, unix.EEXIST},
		{"element with the same data", func(t *program.Transaction) {
			t.For(program.IPv4).Insert(program.Pools, poolElement(t, 2, 4<<program.PoolBits|2))
		}, 0},
		{"the same element twice, with other data", func(t *program.Transaction) {
			t.For(program.IPv4).Insert(program.Pools, poolElement(t, 98, 1))
			t.For(program.IPv4).Insert(program.Pools, poolElement(t, 98, 2))
		}, unix.EEXIST},
		{"element replaced", func(t *program.Transaction) {
			t.For(program.IPv4).Remove(program.Pools, poolElement(t, 2, 0))
			t.For(program.IPv4).Insert(program.Pools, poolElement(t, 2, 7))
		}, 0},
		{"element of a set, there already", address(program.ClusterIPs, "10.96.0.10"), 0},
		{"missing element", func(t *program.Transaction) { t.For(program.IPv4).Remove(program.Pools, poolElement(t, 99, 0)) }, unix.ENOENT},
		{"the last of several elements is missing", func(t *program.Transaction) {
			t.For(program.IPv4).Remove(program.Pools, poolElement(t, 2, 0))
			t.For(program.IPv4).Remove(program.Pools, poolElement(t, 3, 0))
			t.For(program.IPv4).Remove(program.Pools, poolElement(t, 99, 0))
		}, unix.ENOENT},
		{"class without a chain", func(t *program.Transaction) {
			t.For(program.IPv4).Insert(program.Dispatch, classElement(t, "random-77", 77))
		}, unix.ENOENT},
		{"class with another chain", func(t *program.Transaction) {
			t.For(program.IPv4).Insert(program.Dispatch, classElement(t, "random-2", 1))
		}, unix.EEXIST},

		{"range inside another", rangeOf(program.PodCIDRs, "10.0.7.0/24"), unix.EEXIST},
		{"range around another", rangeOf(program.PodCIDRs, "10.0.0.0/8"), unix.EEXIST},
		{"range that begins where another does", rangeOf(program.PodCIDRs, "10.0.0.0/24"), unix.EEXIST},
		{"range next to another", rangeOf(program.PodCIDRs, "10.2.0.0/16"), 0},

		{"missing chain deleted", operations(program.Operation{Kind: program.DeleteChain, Family: program.IPv4, Name: "missing"}), unix.ENOENT},
		{"chain deleted that a rule jumps to", operations(program.Operation{Kind: program.DeleteChain, Family: program.IPv4, Name: "balance"}), unix.EBUSY},
		{"chain deleted that a class leads to", operations(program.Operation{Kind: program.DeleteChain, Family: program.IPv4, Name: "random-1"}), unix.EBUSY},
		{"base chain deleted", operations(program.Operation{Kind: program.DeleteChain, Family: program.IPv4, Name: "nat-output"}), 0},
		{"chain added again with another hook", operations(addedChain("nat-output", baseOf("nat-prerouting"))), unix.EOPNOTSUPP},
		{"chain added again with a hook", operations(addedChain("balance", baseOf("nat-prerouting"))), unix.EOPNOTSUPP},
		{"chain added again", operations(addedChain("nat-output", baseOf("nat-output"))), 0},
		{"rule in a missing chain", operations(addedRule("missing", rule.Statement{Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}})), unix.ENOENT},
		{"rule that jumps to a missing chain", operations(addedRule("balance", rule.Statement{Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: "missing"}}})), unix.ENOENT},
		{"rule that looks into a missing set", operations(addedRule("balance", rule.Statement{Exprs: []expr.Any{&expr.Lookup{SourceRegister: 8, SetName: "missing"}}})), unix.ENOENT},
		{"rule", operations(addedRule("balance", program.Program{Family: program.IPv4}.ClassChain(program.NewClass(program.Random, 1, 0, false)).Rules[0]...)), 0},

		{"missing set deleted", operations(program.Operation{Kind: program.DeleteSet, Family: program.IPv4, Name: "missing"}), unix.ENOENT},
		{"set deleted that a rule looks into", operations(program.Operation{Kind: program.DeleteSet, Family: program.IPv4, Name: program.Hairpin.Name()}), unix.EBUSY},
		{"missing set emptied", operations(program.Operation{Kind: program.FlushSet, Family: program.IPv4, Name: "missing"}), unix.ENOENT},
		{"map of classes emptied", operations(program.Operation{Kind: program.FlushSet, Family: program.IPv4, Name: program.Dispatch.Name(), Mapping: true}), 0},
		{"set added again with another key", operations(addedSet(declared(program.ClusterIPs))), unix.EEXIST},
		{"set added again", operations(addedSet(declared(program.Hairpin))), 0},

		{"rules removed", operations(program.Operation{Kind: program.FlushRules, Family: program.IPv4}), 0},
		{"table added again", operations(program.Operation{Kind: program.AddTable, Family: program.IPv4}), 0},
		{"table deleted", operations(program.Operation{Kind: program.DeleteTable, Family: program.IPv4}), 0},
		{"table deleted twice", operations(program.Operation{Kind: program.DeleteTable, Family: program.IPv4}, program.Operation{Kind: program.DeleteTable, Family: program.IPv4}), unix.ENOENT},
		{"element of a table that is gone", func(t *program.Transaction) {
			operations(program.Operation{Kind: program.DeleteTable, Family: program.IPv4})(t)
			address(program.ClusterIPs, "10.96.0.77")(t)
		}, unix.ENOENT},
	}
}

func poolElement(t *program.Transaction, pool, data uint32) program.Element {
	return t.Element("", func(b *program.Builder) { b.Word(pool) }, func(b *program.Builder) { b.Word(data) })
}

func classElement(t *program.Transaction, chain string, class uint32) program.Element {
	return t.Element(chain, func(b *program.Builder) { b.Word(class << program.PoolBits) }, nil)
}

func rangeOf(id program.SetID, prefix string) func(*program.Transaction) {
	return func(t *program.Transaction) {
		p := netip.MustParsePrefix(prefix)
		for end, a := range []netip.Addr{p.Addr(), program.LastAddr(p).Next()} {
			e := t.Element("", func(b *program.Builder) { b.Addr(a) }, nil)
			e.IntervalEnd = end == 1
			t.For(program.IPv4).Insert(id, e)
		}
	}
}

func addedChain(name string, base *program.Base) program.Operation {
	return program.Operation{Kind: program.AddChain, Family: program.IPv4, Name: name, Chain: &program.Chain{Name: name, Base: base}}
}

func addedRule(chain string, s ...rule.Statement) program.Operation {
	return program.Operation{Kind: program.AddRule, Family: program.IPv4, Name: chain, Rule: s}
}

func baseOf(chain string) *program.Base {
	p := program.Program{Family: program.IPv4}
	return p.ChainNamed(chain).Base
}

func declared(id program.SetID) program.Set { return program.Program{Family: program.IPv4}.Sets()[id] }

// addedSet adds the set hairpin as another one is declared.
func addedSet(d program.Set) program.Operation {
	d.Name = program.Hairpin.Name()
	return program.Operation{Kind: program.AddSet, Family: program.IPv4, Name: d.Name, Set: &d, ID: program.Hairpin}
}

// TestMemoryFamilies has only one family.
func TestMemoryFamilies(t *testing.T) {
	m := OpenMemory(Options{Families: []program.Family{program.IPv6}})
	if text := m.String(); text != "" {
		t.Fatalf("before the first apply: %s", text)
	}
	kindsExample().install(t, m.Engine)
	if text := m.String(); !strings.HasPrefix(text, "table ip6 verdict {") || strings.Contains(text, "table ip ") {
		t.Fatalf("IPv6 alone: %.100s", text)
	}
}

// TestInheritedInMemory: what an earlier process served is known before the first Apply, whichever engine served it.
func TestInheritedInMemory(t *testing.T) {
	m := OpenMemory(Options{})
	m.SetGlobals(contents.Globals{IPVS: true})
	p := manyPorts(program.IPv4, 0, 1)[0]
	p.Frontends = []contents.Frontend{{Addr: addr("20.0.0.1"), Port: 80, Pool: program.ClusterPool}, {Addr: addr("20.0.0.2"), Port: 80, IPVS: true}}
	mustSet(t, m.Engine, p)
	mustApply(t, m.Engine)
	again := restart(t, m)
	for at, want := range map[string]bool{"20.0.0.1": true, "20.0.0.2": true, "20.0.0.3": false} {
		if got, err := again.Inherited(program.IPv4, tcp, addr(at), 80); got != want || err != nil {
			t.Errorf("%s: %t, %v", at, got, err)
		}
	}
}
