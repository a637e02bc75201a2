//go:build !nokernel

package nft

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestContentInKernel: the kernel has the content of a kernel in memory.
func TestContentInKernel(t *testing.T) {
	for _, x := range examples() {
		n, m := newNamespace(t), OpenMemory(Options{})
		x.install(t, n.engine(t))
		x.install(t, m.Engine)
		have, torn, err := inspect.Content(kernel.Options{NetNS: n.Fd()})
		if err != nil || torn {
			t.Fatalf("%s: torn %t, %v", x.name, torn, err)
		}
		want, err := m.Content()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s (- memory, + kernel)\n%s", x.name, diff)
		}
	}
}

// BenchmarkContent shows that ten times as many service ports take about ten times as long.
func BenchmarkContent(b *testing.B) {
	for _, services := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			n := newNamespace(b)
			growing(b, n.engine(b), program.IPv4, 0, services, 10)
			for b.Loop() {
				if _, _, err := inspect.Content(kernel.Options{NetNS: n.Fd()}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
