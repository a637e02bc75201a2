//go:build e2e

package chaos

import (
	"fmt"
	"math/rand/v2"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
)

// editFaults are changes of the tables of Verdict by another program, the real nft.
func editFaults() []fault {
	var list []fault
	for _, e := range []struct {
		name   string
		weight int
		script func(r *rand.Rand, table string) string
	}{
		{"frontend deleted", 3, func(_ *rand.Rand, table string) string {
			return deleteElement(table, "services", frontendOf(table, "VIP1", "tcp", 80))
		}},
		{"node port deleted", 2, func(_ *rand.Rand, table string) string {
			return deleteElement(table, "nodeports", "tcp . 30080")
		}},
		{"frontend led elsewhere", 3, func(_ *rand.Rand, table string) string {
			key := frontendOf(table, "LB1", "tcp", 80)
			return deleteElement(table, "services", key) + fmt.Sprintf("add element %s verdict services { %s : 7:fff0 }\n", table, key)
		}},
		{"map of frontends flushed", 3, flushed("map", "services")},
		{"map of pools flushed", 3, flushed("map", "pools")},
		{"map of endpoints flushed", 3, flushed("map", "endpoints")},
		{"map of classes flushed", 2, flushed("map", "dispatch")},
		{"affinity flushed", 2, flushed("map", "affinity")},
		{"tokens flushed", 2, flushed("map", "sticky-slots")},
		{"set flushed", 3, func(r *rand.Rand, table string) string {
			return flushed("set", objects.OneOf(r, "cluster-ips", "nodeport-addresses", "pod-cidrs", "hairpin", "service-cidrs",
				"fast-path", "fast-path-nodeports", "fast-path-devices"))(r, table)
		}},
		{"foreign element", 3, func(r *rand.Rand, table string) string {
			key := frontendOf(table, "VIP5", objects.OneOf(r, "tcp", "udp", "sctp"), 1+r.IntN(9))
			return fmt.Sprintf("add element %s verdict services { %s : 0:2 }\n", table, key)
		}},
		{"foreign rule", 3, func(r *rand.Rand, table string) string {
			return fmt.Sprintf("insert rule %s verdict %s drop\n", table, objects.OneOf(r, "services", "balance", "filter-forward", "unserved"))
		}},
		{"chain flushed", 3, func(r *rand.Rand, table string) string {
			chain := objects.OneOf(r, "services", "balance", "nat-prerouting", "nat-postrouting", "unserved", "random-2")
			return fmt.Sprintf("flush chain %s verdict %s\n", table, chain)
		}},
		{"base chain deleted", 3, func(r *rand.Rand, table string) string {
			return fmt.Sprintf("delete chain %s verdict %s\n", table, objects.OneOf(r, "nat-prerouting", "nat-output", "nat-postrouting", "filter-forward"))
		}},
		{"policy drop", 3, func(r *rand.Rand, table string) string {
			// At input and output it would keep a daemon that starts from the API server, like any other rule of the host.
			return fmt.Sprintf("add chain %s verdict %s { policy drop; }\n", table, objects.OneOf(r, "filter-forward", "nat-prerouting"))
		}},
		{"table put to sleep", 3, func(_ *rand.Rand, table string) string {
			return fmt.Sprintf("add table %s verdict { flags dormant; }\n", table)
		}},
		{"table deleted", 4, func(_ *rand.Rand, table string) string { return "delete table " + table + " verdict\n" }},
		{"both tables deleted", 3, func(*rand.Rand, string) string { return "delete table ip verdict\ndelete table ip6 verdict\n" }},
		{"ruleset flushed", 4, func(*rand.Rand, string) string { return "flush ruleset\n" + foreign }},
	} {
		list = append(list, fault{name: "nft: " + e.name, weight: e.weight, begin: func(b *bed, r *rand.Rand) (func() error, error) {
			return nil, b.editor.edit(r, e.script(r, objects.OneOf(r, "ip", "ip6")))
		}})
	}
	list = append(list, fault{name: "nft: flowtable deleted", weight: 3, fast: true, begin: func(b *bed, r *rand.Rand) (func() error, error) {
		table := objects.OneOf(r, "ip", "ip6")
		return nil, b.editor.edit(r, fmt.Sprintf("flush chain %s verdict to-fast-path\ndelete flowtable %[1]s verdict fast-path\n", table))
	}})
	return append(list, fault{name: "nft: ruleset saved and restored", weight: 4, begin: saveAndRestore})
}

func flushed(kind, name string) func(*rand.Rand, string) string {
	return func(_ *rand.Rand, table string) string {
		return fmt.Sprintf("flush %s %s verdict %s\n", kind, table, name)
	}
}

func deleteElement(table, set, key string) string {
	return fmt.Sprintf("delete element %s verdict %s { %s }\n", table, set, key)
}

// frontendOf is the key of a frontend, with an address of the table's family.
func frontendOf(table, name, protocol string, port int) string {
	f := lab.IPv4
	if table == "ip6" {
		f = lab.IPv6
	}
	return fmt.Sprintf("%s . %s . %d", lab.Address(f, name), protocol, port)
}

// saveAndRestore saves the ruleset, and loads it after a while as an operator would, with a flush in the same
// transaction.
func saveAndRestore(b *bed, r *rand.Rand) (func() error, error) {
	saved, err := b.world.Node.Command("nft", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	return func() error { return b.editor.edit(r, "flush ruleset\n"+b.oracle.loadable(saved)) }, nil
}
