//go:build !nokernel

package nft

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestMemoryEqualsKernel makes the same random changes over memory and over the real kernel, with restarts in between.
func TestMemoryEqualsKernel(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			n, loaded := newNamespace(t), newNamespace(t)
			e, m := n.engine(t), OpenMemory(Options{})
			worlds := [2]*world{newWorld(seed), newWorld(seed)}
			for step := range 20 {
				if step%7 == 6 {
					e, m = n.engine(t), restart(t, m)
				}
				for i, e := range []*Engine{e, m.Engine} {
					for range 1 + worlds[i].rand.IntN(6) {
						worlds[i].change(t, e)
					}
				}
				checkSameApply(t, step, e, m)
				if step%3 == 0 {
					loaded.nft(t, "flush", "ruleset")
					loaded.load(t, m.String())
					compareListings(t, fmt.Sprintf("step %d: memory and kernel differ", step), loaded.list(t), n.list(t))
				}
			}
		})
	}
}

// TestMemoryRefuses gives the same transactions to the kernel and to the one in memory: both accept them, or refuse
// them for the same reason, blame the same change, and stay as they were.
func TestMemoryRefuses(t *testing.T) {
	for _, test := range strangeTransactions() {
		t.Run(test.name, func(t *testing.T) {
			n, m := newNamespace(t), OpenMemory(Options{})
			e := n.engine(t)
			kindsExample().install(t, e)
			kindsExample().install(t, m.Engine)
			before := m.String()

			var tx program.Transaction
			test.write(&tx)
			blamed := map[string]string{}
			for name, k := range map[string]kernel.NFTables{"kernel": e.conn, "memory": m.kernel} {
				var b kernel.Batch
				if err := b.Encode(&tx); err != nil {
					t.Fatal(err)
				}
				outcome, why, err := k.Send(&b)
				if refused := outcome == kernel.Rejected; refused != (test.errno != 0) || refused && !errors.Is(err, test.errno) {
					t.Errorf("%s: %s, %v; want %v", name, outcome, err, test.errno)
				}
				if why != nil {
					blamed[name] = b.Blame(&tx, why)
				}
			}
			if blamed["kernel"] != blamed["memory"] {
				t.Errorf("the kernel refuses %q, memory %q", blamed["kernel"], blamed["memory"])
			}
			if after := m.String(); test.errno != 0 && after != before {
				t.Errorf("a refused transaction has changed something:\n%s", cmp.Diff(before, after))
			}
			loaded := newNamespace(t)
			loaded.load(t, m.String())
			compareListings(t, "memory and kernel differ", loaded.list(t), n.list(t))
		})
	}
}

// TestAffinitySize: the size that is asked for is the size that is printed, and the one that the kernel has.
func TestAffinitySize(t *testing.T) {
	for _, size := range []uint32{0, 77} {
		want := "size 1048576"
		if size > 0 {
			want = "size 77"
		}
		n, m := newNamespace(t), OpenMemory(Options{AffinitySize: size})
		e, err := Open(Options{NetNS: n.Fd(), AffinitySize: size})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		mustApply(t, e)
		for where, text := range map[string]string{
			"transaction": mustApply(t, m.Engine).Text(), "memory": m.String(), "kernel": n.list(t),
		} {
			others := strings.Count(text, fmt.Sprint("size ", program.SuspectLimit)) + strings.Count(text, fmt.Sprint("size ", program.HeldBackLimit))
			if strings.Count(text, want) != 2 || strings.Count(text, "size ")-others != 2 || others != 8 {
				t.Errorf("AffinitySize %d, %s: want %q in both tables:\n%s", size, where, want, text)
			}
		}
	}
}
