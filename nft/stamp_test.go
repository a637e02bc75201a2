//go:build !nokernel

package nft

import (
	"errors"
	"testing"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestReplacedContents has other processes replace what is in the tables. The next transaction of the engine must not
// reach the elements of other service ports: the kernel refuses it, and the one after it writes everything.
func TestReplacedContents(t *testing.T) {
	replace := map[string]func(*testing.T, *namespace, string){
		"an earlier ruleset is restored": func(t *testing.T, n *namespace, saved string) { n.load(t, "flush ruleset\n"+saved) },
		"another engine takes over": func(t *testing.T, n *namespace, _ string) {
			other := n.engine(t)
			mustSet(t, other, manyPorts(program.IPv4, 3, 5)...)
			mustApply(t, other)
		},
		"the stamp is gone": func(t *testing.T, n *namespace, _ string) {
			n.nft(t, "flush", "set", "ip", program.TableName, program.Generation.Name())
		},
	}
	for name, do := range replace {
		t.Run(name, func(t *testing.T) {
			n := newNamespace(t)
			e := n.engine(t)
			mustSet(t, e, manyPorts(program.IPv4, 0, 2)...)
			mustApply(t, e)
			saved := n.list(t)
			mustSet(t, e, manyPorts(program.IPv4, 2, 3)...)
			mustApply(t, e)
			do(t, n, saved)

			moved := manyPorts(program.IPv4, 1, 1)[0]
			moved.Cluster = endpoints("10.200.0.1:80")
			mustSet(t, e, moved)
			before := n.list(t)
			if r, err := e.Apply(); r.Outcome != kernel.Rejected || !errors.Is(err, errReplaced) {
				t.Fatalf("outcome %s, error %v; want a transaction that is rejected because of the stamp", r.Outcome, err)
			}
			compareListings(t, "a rejected transaction changed the tables", n.list(t), before)
			checkRepaired(t, n, e)
		})
	}
}

// TestIntactWithoutStamp has Intact find tables that another process has replaced by tables of the same form.
func TestIntactWithoutStamp(t *testing.T) {
	n := newNamespace(t)
	e := n.engine(t)
	mustSet(t, e, manyPorts(program.IPv6, 0, 2)...)
	mustApply(t, e)
	if intact, err := e.Intact(); !intact || err != nil {
		t.Fatalf("intact %t, error %v; want a table that is intact", intact, err)
	}
	other := n.engine(t)
	mustSet(t, other, manyPorts(program.IPv6, 0, 3)...)
	mustApply(t, other)
	if intact, err := e.Intact(); intact || err != nil {
		t.Fatalf("intact %t, error %v; want a table that is not", intact, err)
	}
	checkRepaired(t, n, e)
}
