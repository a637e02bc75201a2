package nft

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestFrontend: what single look-ups say about each frontend is what the listing says.
func TestFrontend(t *testing.T) {
	for _, x := range examples() {
		m := OpenMemory(Options{})
		x.install(t, m.Engine)
		tables := m.Tables()
		l, err := m.List(nil)
		if err != nil {
			t.Fatal(err)
		}
		counted, err := inspect.CountersFrom(m.kernel, false, nil)
		if err != nil || len(counted) != len(l.Frontends) {
			t.Errorf("%s: %d frontends with counters, %v; want %d", x.name, len(counted), err, len(l.Frontends))
		}
		for _, want := range l.Frontends {
			got, found, err := tables.Frontend(want.Family, want.Addr, want.Protocol, want.Port)
			addrs := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
			ends := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
			if diff := cmp.Diff(want, got, addrs, ends); err != nil || !found || diff != "" {
				t.Errorf("%s: %s %s:%d: found %t, %v (- listed, + looked up)\n%s", x.name, want.Name, want.Addr, want.Port, found, err, diff)
			}
		}
		if _, found, err := tables.Frontend(program.IPv4, addr("192.0.2.222"), tcp, 1); found || err != nil {
			t.Errorf("%s: a frontend that does not exist: %t, %v", x.name, found, err)
		}
	}
}

func TestPool(t *testing.T) {
	m := OpenMemory(Options{})
	x := kindsExample()
	x.install(t, m.Engine)
	p := &x.ports[0]
	number, chain := m.poolOf(t, p, &p.Frontends[0])
	for i, want := range [][]contents.Endpoint{x.ports[0].Cluster, x.ports[0].Local} {
		got, found, err := m.Tables().Pool(program.IPv4, number|uint32(i))
		if err != nil || !found || len(got.Endpoints) != len(want) || i == 0 && got.Chain != chain {
			t.Errorf("pool %d: %+v, %t, %v", i, got, found, err)
		}
	}
	if _, found, err := m.Tables().Pool(program.IPv4, 0xffffe); found || err != nil {
		t.Errorf("a pool that does not exist: %t, %v", found, err)
	}
}

func TestParsePool(t *testing.T) {
	if n, err := inspect.ParsePool("f:fffe"); n != 0xffffe || err != nil {
		t.Errorf("f:fffe: %x, %v", n, err)
	}
	for _, wrong := range []string{"", "2", "0:0", "10:2", "0:2x", "x", "-1:2"} {
		if n, err := inspect.ParsePool(wrong); err == nil {
			t.Errorf("%q: %x, want an error", wrong, n)
		}
	}
}
