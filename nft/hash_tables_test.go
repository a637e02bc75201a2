package nft

import (
	"fmt"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestHashTables: a port names the tables that it needs, and ports with the same endpoints name the same ones.
func TestHashTables(t *testing.T) {
	a, b, c := hashPort("a:p", 1, 80, 1, 2, 3), hashPort("a:q", 2, 81, 1, 2, 3), hashPort("a:r", 3, 82, 1, 2)
	c.Local = a.Cluster
	all := map[string]int{}
	slots := func(p contents.Port) (n int) {
		for key, size := range hashing.Needed(&p) {
			n += size
			all[key] = size
		}
		return n
	}
	if got := []int{slots(a), slots(b), slots(c)}; !slices.Equal(got, []int{4093, 4093, 4093 + 4093}) || len(all) != 2 {
		t.Errorf("%v slots, %d tables", got, len(all))
	}
	a.Affinity, b.Affinity, c.Method = 1, 1, program.Random
	if got := []int{slots(a), slots(b), slots(c)}; !slices.Equal(got, []int{4093, 4093, 0}) || len(all) != 4 {
		t.Errorf("with affinity: %v slots, %d tables", got, len(all))
	}
}

// BenchmarkHashPorts sets a Service whose ports hash clients, and applies it to tables in memory.
func BenchmarkHashPorts(b *testing.B) {
	for _, c := range []struct{ ports, endpoints int }{{3, 170}, {30, 170}, {30, 17}} {
		b.Run(fmt.Sprintf("ports=%d/endpoints=%d", c.ports, c.endpoints), func(b *testing.B) {
			var elements int
			for b.Loop() {
				m := OpenMemory(Options{})
				for i := range c.ports {
					mustSet(b, m.Engine, hashPort(fmt.Sprint("web:p", i), 1+i, uint16(8000+i), upTo(c.endpoints)...))
				}
				elements = mustApply(b, m.Engine).Added
			}
			b.ReportMetric(float64(elements), "elements")
		})
	}
}
