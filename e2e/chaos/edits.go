package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
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
		{"map of frontends flushed", 3, flush("map", "services")},
		{"map of pools flushed", 3, flush("map", "pools")},
		{"map of endpoints flushed", 3, flush("map", "endpoints")},
		{"map of classes flushed", 2, flush("map", "dispatch")},
		{"affinity flushed", 2, flush("map", "affinity")},
		{"tokens flushed", 2, flush("map", "sticky-slots")},
		{"set flushed", 3, func(r *rand.Rand, table string) string {
			return flush("set", oneOf(r, "cluster-ips", "nodeport-addresses", "pod-cidrs", "hairpin", "service-cidrs"))(r, table)
		}},
		{"foreign element", 3, func(r *rand.Rand, table string) string {
			key := frontendOf(table, "VIP5", oneOf(r, "tcp", "udp", "sctp"), 1+r.IntN(9))
			return fmt.Sprintf("add element %s verdict services { %s : 0:2 }\n", table, key)
		}},
		{"foreign rule", 3, func(r *rand.Rand, table string) string {
			return fmt.Sprintf("insert rule %s verdict %s drop\n", table, oneOf(r, "services", "balance", "filter-forward", "unserved"))
		}},
		{"chain flushed", 3, func(r *rand.Rand, table string) string {
			chain := oneOf(r, "services", "balance", "nat-prerouting", "nat-postrouting", "unserved", "random-2")
			return fmt.Sprintf("flush chain %s verdict %s\n", table, chain)
		}},
		{"base chain deleted", 3, func(r *rand.Rand, table string) string {
			return fmt.Sprintf("delete chain %s verdict %s\n", table, oneOf(r, "nat-prerouting", "nat-output", "nat-postrouting", "filter-forward"))
		}},
		{"table deleted", 4, func(_ *rand.Rand, table string) string { return "delete table " + table + " verdict\n" }},
	} {
		list = append(list, fault{"nft: " + e.name, e.weight, func(b *bed, r *rand.Rand) (func() error, error) {
			return b.edit(r, e.script(r, oneOf(r, "ip", "ip6")))
		}})
	}
	return append(list,
		fault{"nft: both tables deleted", 3, func(b *bed, r *rand.Rand) (func() error, error) {
			return b.edit(r, "delete table ip verdict\ndelete table ip6 verdict\n")
		}},
		fault{"nft: ruleset flushed", 4, func(b *bed, r *rand.Rand) (func() error, error) {
			return b.edit(r, "flush ruleset\n"+others)
		}},
		fault{"nft: ruleset saved and restored", 4, saveAndRestore},
	)
}

func flush(kind, name string) func(*rand.Rand, string) string {
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
	return fmt.Sprintf("%s . %s . %d", named(f, name), protocol, port)
}

// repairPatience is how long an edit may stay when the daemon runs and has nothing else to do. The aim is 100 ms.
const repairPatience = 5 * time.Second

// edit changes the ruleset. In half of the cases it stops the churn and measures how long the repair takes; then the
// next commit of verdict can only be the repair.
func (b *bed) edit(r *rand.Rand, script string) (func() error, error) {
	measured := r.IntN(2) == 0 && b.canRepair() && !strings.Contains(script, "affinity") // clients fill that map
	if measured {
		b.churn.pause()
		defer b.churn.resume()
		time.Sleep(quiet) // until the daemon has followed the last changes
	}
	w := b.ledger.open()
	from := time.Now()
	b.ledger.note("edit: %s", strings.TrimSpace(script))
	if err := b.world.Node.Load(script); err != nil {
		b.ledger.note("nft refuses the edit: %v", err) // another fault had removed what it edits
		return nil, nil
	}
	if !measured {
		return nil, nil
	}
	took, at, ok := b.monitor.repair(from, repairPatience)
	if !ok {
		return nil, fmt.Errorf("nothing repaired this edit within %s:\n%s", repairPatience, script)
	}
	b.repairs = append(b.repairs, took)
	b.ledger.note("repaired after %s", took)
	if err := b.equal(time.Now().Add(repairPatience)); err != nil {
		return nil, fmt.Errorf("after the repair of %q: %w", strings.TrimSpace(script), err)
	}
	b.ledger.close(w, at)
	return nil, nil
}

// quiet is longer than --min-sync-period and a pass.
const quiet = 300 * time.Millisecond

// saveAndRestore saves the ruleset, and loads it after a while as an operator would, with a flush in the same
// transaction.
func saveAndRestore(b *bed, r *rand.Rand) (func() error, error) {
	saved, err := b.world.Node.Command("nft", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(b.options.logs, "saved.ruleset")
	if err := os.WriteFile(path, []byte(saved), 0o644); err != nil {
		return nil, err
	}
	return func() error {
		_, err := b.edit(r, "flush ruleset\n"+saved)
		return err
	}, nil
}

// canRepair reports whether the daemon is there to repair at once.
func (b *bed) canRepair() bool {
	p := b.daemon.running()
	return p != nil && !slices.Contains(b.daemon.extra, "--repair=false") && !b.suspended
}
