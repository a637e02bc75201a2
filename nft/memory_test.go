package nft

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
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
	want.Text, got.Text, want.Head, got.Head, want.Kernel, got.Kernel = nil, nil, nil, nil, 0, 0
	if !cmp.Equal(want, got) {
		t.Fatalf("step %d: result %+v over the kernel, %+v in memory", step, want, got)
	}
	for _, f := range Families() {
		want, err := e.conn.survey(f)
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.kernel.survey(f)
		want.counts = nil // the kernel in memory does not count
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(existing{}, setShape{}, tuning{}, chainShape{}, rulesShape{})); diff != "" || err != nil {
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
	write func(*Transaction)
	errno unix.Errno // 0: accepted
}

// strangeTransactions are for the tables of kindsExample.
func strangeTransactions() []strangeTransaction {
	operations := func(list ...operation) func(*Transaction) {
		return func(t *Transaction) { t.before = list }
	}
	address := func(id setID, a string) func(*Transaction) {
		return func(t *Transaction) {
			t.add(IPv4, id, t.element("", func(b *builder) { b.addr(addr(a)) }, nil))
		}
	}
	return []strangeTransaction{
		{"element with other data", func(t *Transaction) { t.add(IPv4, idPools, poolElement(t, 2, 7)) }, unix.EEXIST},
		{"element with the same data", func(t *Transaction) { t.add(IPv4, idPools, poolElement(t, 2, 4<<poolBits|2)) }, 0},
		{"the same element twice, with other data", func(t *Transaction) {
			t.add(IPv4, idPools, poolElement(t, 98, 1))
			t.add(IPv4, idPools, poolElement(t, 98, 2))
		}, unix.EEXIST},
		{"element replaced", func(t *Transaction) {
			t.del(IPv4, idPools, poolElement(t, 2, 0))
			t.add(IPv4, idPools, poolElement(t, 2, 7))
		}, 0},
		{"element of a set, there already", address(idClusterIPs, "10.96.0.10"), 0},
		{"missing element", func(t *Transaction) { t.del(IPv4, idPools, poolElement(t, 99, 0)) }, unix.ENOENT},
		{"the last of several elements is missing", func(t *Transaction) {
			t.del(IPv4, idPools, poolElement(t, 2, 0))
			t.del(IPv4, idPools, poolElement(t, 3, 0))
			t.del(IPv4, idPools, poolElement(t, 99, 0))
		}, unix.ENOENT},
		{"class without a chain", func(t *Transaction) { t.add(IPv4, idDispatch, dispatchElement(t, class{draw: draw{Random, 77}}, 77)) }, unix.ENOENT},
		{"class with another chain", func(t *Transaction) { t.add(IPv4, idDispatch, dispatchElement(t, class{draw: draw{Random, 2}}, 1)) }, unix.EEXIST},

		{"range inside another", rangeOf(idPodCIDRs, "10.0.7.0/24"), unix.EEXIST},
		{"range around another", rangeOf(idPodCIDRs, "10.0.0.0/8"), unix.EEXIST},
		{"range that begins where another does", rangeOf(idPodCIDRs, "10.0.0.0/24"), unix.EEXIST},
		{"range next to another", rangeOf(idPodCIDRs, "10.2.0.0/16"), 0},

		{"missing chain deleted", operations(operation{kind: opDeleteChain, family: IPv4, name: "missing"}), unix.ENOENT},
		{"chain deleted that a rule jumps to", operations(operation{kind: opDeleteChain, family: IPv4, name: "balance"}), unix.EBUSY},
		{"chain deleted that a class leads to", operations(operation{kind: opDeleteChain, family: IPv4, name: "random-1"}), unix.EBUSY},
		{"base chain deleted", operations(operation{kind: opDeleteChain, family: IPv4, name: "nat-output"}), 0},
		{"chain added again with another hook", operations(addedChain("nat-output", natPrerouting())), unix.EOPNOTSUPP},
		{"chain added again with a hook", operations(addedChain("balance", natPrerouting())), unix.EOPNOTSUPP},
		{"chain added again", operations(addedChain("nat-output", natOutput())), 0},
		{"rule in a missing chain", operations(addedRule("missing", drop())), unix.ENOENT},
		{"rule that jumps to a missing chain", operations(addedRule("balance", jump("missing"))), unix.ENOENT},
		{"rule that looks into a missing set", operations(addedRule("balance", in("missing", program{family: IPv4}.saddr()))), unix.ENOENT},
		{"rule", operations(addedRule("balance", program{family: IPv4}.dnat(mapEndpoints, masked(poolMask), numgen("random", 1)))), 0},

		{"missing set deleted", operations(operation{kind: opDeleteSet, family: IPv4, name: "missing"}), unix.ENOENT},
		{"set deleted that a rule looks into", operations(operation{kind: opDeleteSet, family: IPv4, name: setHairpin}), unix.EBUSY},
		{"missing set emptied", operations(operation{kind: opFlushSet, family: IPv4, name: "missing"}), unix.ENOENT},
		{"map of classes emptied", operations(operation{kind: opFlushSet, family: IPv4, name: mapDispatch, mapping: true}), 0},
		{"set added again with another key", operations(addedSet(setDef{name: setHairpin, key: []dataType{typeIPv4}})), unix.EEXIST},
		{"set added again", operations(addedSet(setDef{name: setHairpin, key: []dataType{typeIPv4, typeIPv4}})), 0},

		{"rules removed", operations(operation{kind: opFlushRules, family: IPv4}), 0},
		{"table added again", operations(operation{kind: opAddTable, family: IPv4}), 0},
		{"table deleted", operations(operation{kind: opDeleteTable, family: IPv4}), 0},
		{"table deleted twice", operations(operation{kind: opDeleteTable, family: IPv4}, operation{kind: opDeleteTable, family: IPv4}), unix.ENOENT},
		{"element of a table that is gone", func(t *Transaction) {
			operations(operation{kind: opDeleteTable, family: IPv4})(t)
			address(idClusterIPs, "10.96.0.77")(t)
		}, unix.ENOENT},
	}
}

func poolElement(t *Transaction, pool, data uint32) element {
	return t.element("", func(b *builder) { b.word(pool) }, func(b *builder) { b.word(data) })
}

func rangeOf(id setID, prefix string) func(*Transaction) {
	return func(t *Transaction) {
		newTable(IPv4).rangeElements(t, netip.MustParsePrefix(prefix), func(e element) { t.add(IPv4, id, e) })
	}
}

func addedChain(name string, base *baseDef) operation {
	return operation{kind: opAddChain, family: IPv4, name: name, chain: &chainDef{name: name, base: base}}
}

func addedRule(chain string, s ...statement) operation {
	return operation{kind: opAddRule, family: IPv4, name: chain, rule: s}
}

func addedSet(d setDef) operation {
	return operation{kind: opAddSet, family: IPv4, name: d.name, set: &d, id: idHairpin}
}

// TestMemoryFamilies has only one family.
func TestMemoryFamilies(t *testing.T) {
	m := OpenMemory(Options{Families: []Family{IPv6}})
	if text := m.String(); text != "" {
		t.Fatalf("before the first apply: %s", text)
	}
	kindsExample().install(t, m.Engine)
	if text := m.String(); !strings.HasPrefix(text, "table ip6 verdict {") || strings.Contains(text, "table ip ") {
		t.Fatalf("IPv6 alone: %.100s", text)
	}
}

// TestMemoryRecords: what was applied is recorded once, also a first transaction that is so large that it comes in
// parts.
func TestMemoryRecords(t *testing.T) {
	m := OpenMemory(Options{})
	var texts []string
	m.Record(func(text string) { texts = append(texts, text) })
	for i := range 3000 {
		mustSet(t, m.Engine, scalePort(IPv4, i, 10))
	}
	first := mustApply(t, m.Engine)
	want := []string{first.Text()}
	if first.Bytes < maxPart {
		t.Fatalf("%d bytes are one part", first.Bytes)
	}
	mustGuard(t, m.Engine, true, "192.0.2.1")
	want = append(want, "add element ip verdict ipvs-addresses { 192.0.2.1 }\n")
	m.Delete(IPv4, scalePort(IPv4, 7, 10).Name)
	want = append(want, mustApply(t, m.Engine).Text())
	if !slices.Equal(texts, want) {
		t.Fatalf("%d transactions were recorded, want %d", len(texts), len(want))
	}
}
