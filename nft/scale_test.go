//go:build !nokernel

package nft

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/program"
)

// growing adds service ports of one family. Each batch fits in the socket buffer of an ordinary user.
func growing(t testing.TB, e *Engine, f program.Family, have, want, endpointsEach int) {
	t.Helper()
	const step = 250
	for ; have < want; have += step {
		for i := have; i < min(have+step, want); i++ {
			mustSet(t, e, scalePort(f, i, endpointsEach))
		}
		mustApply(t, e)
	}
}

// TestStructureStays counts the objects in the kernel at 10 and at 10,000 services. Only elements may be more.
func TestStructureStays(t *testing.T) {
	n := newNamespace(t)
	e := n.engine(t)
	count := func() map[string]int {
		out := map[string]int{}
		for line := range strings.Lines(n.nft(t, "--terse", "list", "ruleset")) {
			words := strings.Fields(line)
			switch {
			case len(words) == 3 && words[2] == "{":
				out[words[0]]++
			case len(words) > 0:
				out["lines"]++
			}
		}
		return out
	}
	growing(t, e, program.IPv4, 0, 10, 10)
	few := count()
	growing(t, e, program.IPv4, 10, 10000, 10)
	many := count()
	t.Logf("10 services: %v, 10,000 services: %v", few, many)
	if fmt.Sprint(few) != fmt.Sprint(many) {
		t.Fatalf("10 services: %v, 10,000 services: %v", few, many)
	}

	p := scalePort(program.IPv4, 5000, 10)
	p.Cluster = append(p.Cluster[:3:3], p.Cluster[4:]...)
	mustSet(t, e, p)
	text := e.tx.String()
	r := mustApply(t, e)
	t.Logf("one of 10 endpoints removed at 10,000 services: %d elements added, %d deleted, %d bytes, %v in the kernel:\n%s",
		r.Added, r.Deleted, r.Bytes, r.InKernel, text)
	if r.Full || r.Added+r.Deleted > 10*len(p.Frontends) {
		t.Fatalf("%d element operations", r.Added+r.Deleted)
	}
	if r := mustApply(t, e); r.Bytes != 0 {
		t.Fatalf("%d bytes were sent although nothing had changed", r.Bytes)
	}
}

// TestManyEndpoints changes one of 5,000 endpoints of a service port.
func TestManyEndpoints(t *testing.T) {
	e := newNamespace(t).engine(t)
	p := scalePort(program.IPv4, 0, 5000)
	mustSet(t, e, p)
	mustApply(t, e)
	p.Cluster[2500].Addr = netip.MustParseAddrPort("10.200.0.1:80")
	sortEndpoints(p.Cluster)
	mustSet(t, e, p)
	r := mustApply(t, e)
	t.Logf("%v in the kernel", r.InKernel)
	if r.Added != 1 || r.Deleted != 1 {
		t.Fatalf("%d elements added, %d deleted; wanted one of each", r.Added, r.Deleted)
	}
}
