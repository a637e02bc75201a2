package mirror

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// numbered is one of many addresses.
func numberedAddr(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

// endpointsAt makes remote endpoints of one slot.
func endpointsAt(list ...string) []contents.Endpoint {
	var out []contents.Endpoint
	for _, s := range list {
		out = append(out, contents.Endpoint{Addr: netip.MustParseAddrPort(s)})
	}
	return out
}

// FuzzReassign changes a pool again and again. Each byte is the number of slots of the next endpoint; the byte 255 ends
// one change.
func FuzzReassign(f *testing.F) {
	f.Add([]byte{1, 1, 1, 255, 1, 0, 1, 255, 1, 1, 1, 1})
	f.Add([]byte{3, 2, 0, 255, 2, 2, 1, 255, 1, 1, 255, 255, 3})
	f.Add([]byte{1, 3, 255, 0, 2, 1, 255, 2, 1, 255, 0, 1, 0, 1})
	// Slots of one endpoint out of order, then fewer of them.
	f.Add([]byte("027070710000000000\xff0000000200000000000000000000000000000000000000000000000000212072000000011"))
	f.Fuzz(func(t *testing.T, script []byte) {
		var members []member
		var want []netip.AddrPort
		endpoint := 0
		for _, b := range append(script, 255) {
			if b != 255 && endpoint < 64 {
				want = append(want, slices.Repeat([]netip.AddrPort{fuzzEndpoint(endpoint)}, int(b%4))...)
				endpoint++
				continue
			}
			members = checkReassign(t, members, want)
			want, endpoint = nil, 0
		}
	})
}

func fuzzEndpoint(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)
}

// unassigned are members without slots.
func unassigned(list []netip.AddrPort) []member {
	var out []member
	for _, addr := range list {
		out = append(out, newMember(addr, 0))
	}
	return out
}

func addresses(list []member) []netip.AddrPort {
	var out []netip.AddrPort
	for _, m := range list {
		out = append(out, m.addr())
	}
	return out
}

// checkReassign checks one change against the definition of reassign.
func checkReassign(t *testing.T, old []member, want []netip.AddrPort) []member {
	t.Helper()
	before := bySlot(t, old)
	members, changes := reassign(old, unassigned(want))
	after := bySlot(t, members)

	if got := addresses(members); !slices.Equal(got, want) {
		t.Fatalf("members %v, wanted %v", got, want)
	}

	replayed := slices.Clone(before)
	replayed = append(replayed, make([]netip.AddrPort, max(0, len(after)-len(before)))...)
	real := 0
	for _, c := range changes {
		if replayed[c.slot] != c.from {
			t.Fatalf("change %v, but the slot held %v", c, replayed[c.slot])
		}
		replayed[c.slot] = c.to
		if c.from != c.to {
			real++
		}
	}
	for _, gone := range replayed[len(after):] {
		if gone.IsValid() {
			t.Fatalf("%v is still in a slot beyond the pool", gone)
		}
	}
	if !slices.Equal(replayed[:len(after)], after) {
		t.Fatalf("changes %v lead to %v, not to %v", changes, replayed, after)
	}
	if least := fewestChanges(before, want); real != least {
		t.Fatalf("from %v to %v: %d changes %v, want %d", before, want, real, changes, least)
	}
	return members
}

// bySlot lists the endpoints by slot and checks that every slot from 0 on is filled exactly once.
func bySlot(t *testing.T, members []member) []netip.AddrPort {
	t.Helper()
	out := make([]netip.AddrPort, len(members))
	for _, m := range members {
		if int(m.slot) >= len(out) || out[m.slot].IsValid() {
			t.Fatalf("slot %d of %d is outside the pool or filled twice: %v", m.slot, len(out), members)
		}
		out[m.slot] = m.addr()
	}
	return out
}

// fewestChanges counts the slots that must change: an endpoint can keep its slots that still exist, up to the number
// that it is to have.
func fewestChanges(before, want []netip.AddrPort) int {
	had, wants := map[netip.AddrPort]int{}, map[netip.AddrPort]int{}
	for slot, addr := range before {
		if slot < len(want) {
			had[addr]++
		}
	}
	for _, addr := range want {
		wants[addr]++
	}
	keep := 0
	for addr, n := range wants {
		keep += min(n, had[addr])
	}
	return max(len(before), len(want)) - keep
}

// TestMembersAreEndpoints: endpoints in the form of members keep their addresses and their order.
func TestMembersAreEndpoints(t *testing.T) {
	for _, list := range [][]string{
		{"0.0.0.1:1", "10.0.0.1:80", "10.0.0.1:81", "10.0.1.0:1", "255.255.255.255:65535"},
		{"[::1]:1", "[::ffff:10.0.0.1]:80", "[2001:db8::1]:80", "[2001:db8:0:1::]:80", "[ffff::]:1"},
	} {
		for i, text := range list {
			a := netip.MustParseAddrPort(text)
			m := newMember(a, 7)
			if m.addr() != a || m.slot != 7 {
				t.Errorf("%s became %s, slot %d", a, m.addr(), m.slot)
			}
			for j, text := range list {
				b := netip.MustParseAddrPort(text)
				n := newMember(b, 0)
				if m.compare(&n) != a.Compare(b) || m.same(&n) != (i == j) {
					t.Errorf("%s and %s: order %d, same %t", a, b, m.compare(&n), m.same(&n))
				}
			}
		}
	}
	if none := (member{}); none.addr().IsValid() {
		t.Errorf("the zero member is %s", none.addr())
	}
}

func TestExpand(t *testing.T) {
	got := addresses(expand([]contents.Endpoint{{Addr: fuzzEndpoint(1)}, {Addr: fuzzEndpoint(2), Slots: 3}, {Addr: fuzzEndpoint(3), Slots: 1}}, nil))
	want := []netip.AddrPort{fuzzEndpoint(1), fuzzEndpoint(2), fuzzEndpoint(2), fuzzEndpoint(2), fuzzEndpoint(3)}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, wanted %v", got, want)
	}
}

// TestMemoryOfLargePoolsIsUsedAgain changes large pools in turn. They use the memory of earlier lists again; it
// must not use memory of a list that another pool has.
func TestMemoryOfLargePoolsIsUsedAgain(t *testing.T) {
	c := New(program.IPv4, 0)
	random := rand.New(rand.NewPCG(1, 2))
	want := map[string][]netip.AddrPort{}
	for step := range 200 {
		p := contents.Port{Family: program.IPv4, Name: fmt.Sprintf("ns/large-%d:p", step%3), Protocol: 6}
		want[p.Name] = nil
		for n := range manyMembers + random.IntN(manyMembers) {
			if random.IntN(10) > 0 {
				addr := netip.AddrPortFrom(numberedAddr(step%3<<16+n), 80)
				p.Cluster, want[p.Name] = append(p.Cluster, contents.Endpoint{Addr: addr}), append(want[p.Name], addr)
			}
		}
		c.Set(program.NewWriter(program.IPv4), &p)
		for name, port := range c.Ports.byName {
			members := port.pools[0].members
			if !slices.Equal(addresses(members), want[name]) {
				t.Fatalf("step %d: %s does not have the endpoints that it was given", step, name)
			}
			bySlot(t, members)
		}
	}
}

func TestAssignFixedWritesOnlyDifferences(t *testing.T) {
	a, b := fuzzEndpoint(1), fuzzEndpoint(2)
	membersOf := func(table ...netip.AddrPort) (out []member) {
		for slot, addr := range table {
			out = append(out, newMember(addr, uint32(slot)))
		}
		return out
	}
	members, changes := assignFixed(nil, membersOf(a, b, a))
	if len(changes) != 3 || len(members) != 3 {
		t.Fatalf("into an empty pool: %d changes, %d members; want 3 and 3", len(changes), len(members))
	}
	members, changes = assignFixed(members, membersOf(a, a))
	want := []slotChange{{slot: 1, from: b, to: a}, {slot: 2, from: a}}
	if !slices.Equal(changes, want) {
		t.Errorf("changes %v, want %v", changes, want)
	}
	if !slices.Equal(members, []member{newMember(a, 0), newMember(a, 1)}) {
		t.Errorf("members %v", members)
	}
}
