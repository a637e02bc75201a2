//go:build !nokernel

package nft

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// wantListing is the listing of tables with these ports and globals.
func wantListing(ports []contents.Port, g contents.Globals) inspect.Listing {
	out := inspect.Listing{NodePortAddresses: slices.Clone(g.NodePortAddresses)}
	slices.SortFunc(out.NodePortAddresses, netip.Addr.Compare)
	for i := range ports {
		for _, fe := range ports[i].Frontends {
			if s := wantStatus(&ports[i], &fe); s.Pool != program.NoPool || s.Refusal != program.NoRefusal || s.IPVS || s.Firewalled {
				out.Frontends = append(out.Frontends, s)
			}
		}
	}
	slices.SortStableFunc(out.Frontends, func(a, b inspect.FrontendStatus) int {
		if a.Family != b.Family {
			return int(a.Family) - int(b.Family)
		}
		return a.Compare(&b)
	})
	return out
}

func (n *namespace) listing(t testing.TB, match func(string) bool) inspect.Listing {
	t.Helper()
	l, err := inspect.List(kernel.Options{NetNS: n.Fd()}, match)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func compareListing(t *testing.T, when string, got, want inspect.Listing) {
	t.Helper()
	addrs := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	ends := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	if diff := cmp.Diff(want, got, addrs, ends); diff != "" {
		t.Fatalf("%s: not what the engine was asked for (- asked, + listed):\n%s", when, diff)
	}
}

func TestList(t *testing.T) {
	for _, x := range append(examples(), largePoolsExample()) {
		t.Run(x.name, func(t *testing.T) {
			n := newNamespace(t)
			x.install(t, n.engine(t))
			compareListing(t, "list", n.listing(t, nil), wantListing(x.ports, x.globals))

			m := OpenMemory(Options{})
			x.install(t, m.Engine)
			l, err := m.List(nil)
			if err != nil {
				t.Fatal(err)
			}
			compareListing(t, "in memory", l, wantListing(x.ports, x.globals))
		})
	}
}

// largePoolsExample has pools whose draws are not exact, and weights, with and without affinity.
func largePoolsExample() example {
	x := example{name: "large"}
	for i, count := range []int{program.ExactDraws, program.ExactDraws + 1, 32, 33, kernel.RowLength, kernel.RowLength + 1, 3*kernel.RowLength + 7} {
		for _, affinity := range []time.Duration{0, 3 * time.Hour} {
			for _, f := range program.Families() {
				p := contents.Port{Family: f, Name: fmt.Sprintf("large/%d:%s", count, affinity), Protocol: tcp, Affinity: affinity}
				for e := range count {
					p.Cluster = append(p.Cluster, contents.Endpoint{Addr: netip.AddrPortFrom(numbered4or6(f, 10, e), 8080), Slots: uint16(1 + e%3)})
				}
				p.Local = p.Cluster[:count/2]
				port := uint16(80 + i)
				if affinity > 0 {
					port += 1000
				}
				p.Frontends = []contents.Frontend{{Addr: numbered4or6(f, 20, 1), Port: port, Pool: program.BySource}, {Port: port, Pool: program.LocalPool}}
				x.ports = append(x.ports, p)
			}
		}
	}
	return x
}

// TestListAfterTransitions lists states after random changes.
func TestListAfterTransitions(t *testing.T) {
	w, n := newWorld(7), newNamespace(t)
	e := n.engine(t)
	for step := range 20 {
		for range 1 + w.rand.IntN(6) {
			w.change(t, e)
		}
		mustApply(t, e)
		ports := slices.Collect(maps.Values(w.ports))
		compareListing(t, fmt.Sprintf("step %d", step), n.listing(t, nil), wantListing(ports, w.globals))
	}
}

func TestListSome(t *testing.T) {
	n := newNamespace(t)
	x := kindsExample()
	x.install(t, n.engine(t))
	got := n.listing(t, func(name string) bool { return strings.HasPrefix(name, "default/web:") })
	ports := slices.DeleteFunc(x.ports, func(p contents.Port) bool { return p.Name != "default/web:http" })
	compareListing(t, "two ports", got, wantListing(ports, x.globals))

	l, err := inspect.List(kernel.Options{NetNS: n.Fd(), Families: []program.Family{program.IPv6}}, nil)
	if err != nil || len(l.Frontends) == 0 {
		t.Fatalf("IPv6: %d frontends, %v", len(l.Frontends), err)
	}
	for _, fe := range l.Frontends {
		if fe.Family != program.IPv6 {
			t.Errorf("IPv6 was asked for, and %+v listed", fe)
		}
	}
}

// TestListFromElsewhere lists tables of an engine that is closed, tables that another program has changed, and no
// tables.
func TestListFromElsewhere(t *testing.T) {
	n := newNamespace(t)
	if _, err := inspect.List(kernel.Options{NetNS: n.Fd()}, nil); !errors.Is(err, kernel.ErrNoTables) {
		t.Fatalf("without tables: %v", err)
	}
	x := kindsExample()
	e := n.engine(t)
	x.install(t, e)
	e.Close()
	compareListing(t, "after the engine", n.listing(t, nil), wantListing(x.ports, x.globals))

	n.nft(t, "delete table ip6 verdict")
	ports := slices.DeleteFunc(slices.Clone(x.ports), func(p contents.Port) bool { return p.Family == program.IPv6 })
	g := x.globals
	g.NodePortAddresses = addrs("192.168.7.1")
	compareListing(t, "one table", n.listing(t, nil), wantListing(ports, g))

	n.nft(t, "flush ruleset; add table ip verdict { comment \"verdict layout 0\"; }")
	if _, err := inspect.List(kernel.Options{NetNS: n.Fd()}, nil); err == nil || !strings.Contains(err.Error(), "with the version of Verdict that wrote it") {
		t.Fatalf("another layout: %v", err)
	}
	n.nft(t, "flush ruleset; add table ip verdict { comment \""+program.LayoutComment+"\"; }")
	if l := n.listing(t, nil); len(l.Frontends) > 0 {
		t.Fatalf("an empty table lists %v", l.Frontends)
	}
}

// changingTables are tables of the kernel in which something changes each time before their generation is read.
type changingTables struct {
	kernel.Reader
	change func()
}

func (c changingTables) Generation() (uint32, error) {
	c.change()
	return c.Reader.Generation()
}

// TestListWhileItChanges reads tables that change during each attempt to read them, and reports that. When a change falls
// into the first attempt only, the second one has everything.
func TestListWhileItChanges(t *testing.T) {
	n := newNamespace(t)
	e := n.engine(t)
	mustSet(t, e, manyPorts(program.IPv4, 0, 30)...)
	mustApply(t, e)
	c, err := kernel.Dial(n.Fd())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	changes := 0
	// asked counts the questions for the generation: two for each attempt.
	for name, tt := range map[string]struct {
		changes func(asked int) bool
		asked   int
		torn    bool
	}{
		"all the time":                {changes: func(int) bool { return true }, asked: 2 * 3, torn: true},
		"during the first attempt":    {changes: func(asked int) bool { return asked == 2 }, asked: 4},
		"before the first attempt":    {changes: func(asked int) bool { return asked == 1 }, asked: 2},
		"during the last attempt too": {changes: func(asked int) bool { return asked%2 == 0 }, asked: 2 * 3, torn: true},
	} {
		asked := 0
		l, err := inspect.ListFrom(changingTables{c, func() {
			if asked++; tt.changes(asked) {
				p := manyPorts(program.IPv4, 500, 1)[0]
				p.Cluster = p.Cluster[:1+changes%3] // each change differs from the last one
				changes++
				mustSet(t, e, p)
				mustApply(t, e)
			}
		}}, []program.Family{program.IPv4}, func(name string) bool { return name != "ns/svc-500:http" })
		if err != nil || l.Torn != tt.torn || asked != tt.asked {
			t.Errorf("%s: %d questions, marked as torn: %t, %v; want %d and %t", name, asked, l.Torn, err, tt.asked, tt.torn)
		}
		l.Torn = false // the other ports stay as they are
		compareListing(t, name, l, wantListing(manyPorts(program.IPv4, 0, 30), contents.Globals{}))
	}
}
