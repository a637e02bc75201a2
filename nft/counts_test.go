package nft

import (
	"testing"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestElements compares the counts with what the kernel in memory has, after each step of a history.
func TestElements(t *testing.T) {
	m := OpenMemory(Options{})
	check := func(step string) {
		t.Helper()
		if r := mustApply(t, m.Engine); r.Outcome != kernel.Applied {
			t.Fatalf("%s: %v", step, r.Outcome)
		}
		for _, got := range m.Elements() {
			want := 0
			if err := m.kernel.DumpElements(got.Family, got.Set, func(kernel.Found) { want++ }); err != nil {
				t.Fatal(err)
			}
			if got.Elements != want {
				t.Errorf("%s: %s %s: counted %d elements, the kernel has %d", step, got.Family, got.Set, got.Elements, want)
			}
		}
	}
	check("the program alone")
	mustSet(t, m.Engine, manyPorts(program.IPv4, 0, 20)...)
	mustSet(t, m.Engine, manyPorts(program.IPv6, 0, 5)...)
	check("ports")
	m.SetGlobals(contents.Globals{NodePortAddresses: addrs("192.0.2.1", "2001:db8::1"), ServiceCIDRs: prefixes("10.96.0.0/16")})
	check("globals")
	m.Delete(program.IPv4, "ns/svc-3:http")
	ports := manyPorts(program.IPv4, 4, 1)
	ports[0].Cluster = ports[0].Cluster[:1]
	ports[0].Affinity = 3600e9
	mustSet(t, m.Engine, ports...)
	check("a port goes, another one changes")
	mustGuard(t, m.Engine, true, "10.96.0.99", "fd00::99")
	check("guards")
	m.Unguard(addrs("10.96.0.99"))
	check("a guard goes")
	m.distrust()
	check("everything is written again")
	const filledByRules = 5 // affinity, unanswered, refusing, held-back, just-held-back
	if len(m.Elements()) != 2*(int(program.SetCount)-filledByRules) {
		t.Errorf("%d sets", len(m.Elements()))
	}
}
