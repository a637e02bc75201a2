package elements

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/ledger"
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
		var s slotting
		var before []netip.AddrPort // by slot
		var row ledger.Row
		pl := &poolState{family: program.IPv4, number: 1}
		var order []uint16
		var want []contents.Endpoint
		endpoint := 0
		for _, b := range append(script, 255) {
			if b != 255 && endpoint < 64 {
				if b%4 > 0 {
					want = append(want, contents.Endpoint{Addr: fuzzEndpoint(endpoint), Slots: uint16(b % 4)})
				}
				endpoint++
				continue
			}
			order = s.reassign(row, program.Endpoints, want, order)
			after := checkReassign(t, &s, order, before, want)
			var whole ledger.Records
			for slot, at := range after {
				whole = putSlot(whole, pl, program.Endpoints, slot, at)
			}
			pl.order = order
			if edited := s.edit(nil, row, pl, program.Endpoints, want); len(before) > 0 && len(after) > 0 && !bytes.Equal(edited, whole) {
				t.Fatalf("only some slots are written: %x, all of them: %x", edited, whole)
			}
			row = whole.Row(program.Endpoints, pl.number)
			before, want, endpoint = after, nil, 0
		}
	})
}

func fuzzEndpoint(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)
}

// checkReassign checks one change against the definition of reassign, and returns the endpoints by slot.
func checkReassign(t *testing.T, s *slotting, order []uint16, before []netip.AddrPort, want []contents.Endpoint) (after []netip.AddrPort) {
	t.Helper()
	var expanded []netip.AddrPort
	for _, e := range want {
		expanded = append(expanded, slices.Repeat([]netip.AddrPort{e.Addr}, int(e.Slots))...)
	}
	for _, i := range s.bySlot {
		after = append(after, want[i].Addr) // panics if a slot is free
	}
	if len(order) != len(expanded) {
		t.Fatalf("%d slots in order, want %d", len(order), len(expanded))
	}
	for i, slot := range order {
		if after[slot] != expanded[i] {
			t.Fatalf("slot %d has %s, want %s", slot, after[slot], expanded[i])
		}
		if i > 0 && expanded[i-1] == expanded[i] && order[i-1] >= slot {
			t.Fatalf("the slots of %s are %d and %d", expanded[i], order[i-1], slot)
		}
	}
	changes := 0
	for slot := range max(len(before), len(after)) {
		if slot >= len(before) || slot >= len(after) || before[slot] != after[slot] {
			changes++
		}
	}
	if least := fewestChanges(before, expanded); changes != least {
		t.Fatalf("from %v to %v: %d changes, want %d", before, after, changes, least)
	}
	return after
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

// TestPresentSlots: the slots that a pool has are read back from what is wanted, of each kind of pool, in both families, also
// while other pools use the same memory.
func TestPresentSlots(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, f := range program.Families() {
		c, before := New(f, program.Program{}), map[string]map[netip.AddrPort]int{}
		for step := range 300 {
			p := contents.Port{Family: f, Name: fmt.Sprintf("ns/pool-%d:p", step%3), Protocol: 6}
			port := uint16(80)
			switch step % 3 {
			case 1:
				p.Affinity = 3600e9
			case 2:
				port = 0
			}
			for n := range 1 + random.IntN(3000) {
				at := netip.AddrFrom4([4]byte{10, byte(step % 3), byte(n >> 8), byte(n)})
				if f == program.IPv6 {
					at = netip.AddrFrom16([16]byte{0: 0xfd, 13: byte(step % 3), 14: byte(n >> 8), 15: byte(n)})
				}
				if random.IntN(10) > 0 {
					p.Cluster = append(p.Cluster, contents.Endpoint{Addr: netip.AddrPortFrom(at, port)})
				}
			}
			c.Set(program.NewWriter(f), &p)
			is := c.Ports.byName[p.Name]
			now := map[netip.AddrPort]int{}
			set, pl := is.pools[0].class.Slots(), &is.pools[0]
			row, _ := c.slots.read(is, pl, set, is.ordinals.list)
			for i, slot := range pl.order {
				at, _ := program.EndpointOf(f, row.Data(int(slot)))
				if at != p.Cluster[i].Addr {
					t.Fatalf("step %d: %s is in the place of %s", step, at, p.Cluster[i].Addr)
				}
				now[at] = int(slot)
			}
			moved := 0
			for addr, slot := range before[p.Name] {
				if is, stayed := now[addr]; stayed && slot < len(now) && is != slot {
					moved++
				}
			}
			if before[p.Name] = now; moved > 0 || len(now) != len(p.Cluster) {
				t.Fatalf("step %d: %d endpoints that stayed have other slots; %d endpoints, want %d", step, moved, len(now), len(p.Cluster))
			}
		}
	}
}

// TestComments: each element has the comment of its set, for a name of any length.
func TestComments(t *testing.T) {
	c := New(program.IPv4, program.Program{})
	p := clusterIPPort(1, "10.0.0.1:80")
	p.Sources = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	p.Frontends[0].Firewalled = true
	c.Set(program.NewWriter(program.IPv4), &p)
	got := map[program.SetID]string{}
	c.Each((*ledger.Account).Wanted, func(a *ledger.Account, r *ledger.Record) {
		if a.Owner() != "" {
			got[r.Set] = c.Comment(a, r)
		}
	})
	for id, want := range map[program.SetID]string{
		program.Services: p.Name, program.Pools: p.Name, program.Endpoints: "", program.AllowedSources: "10.0.0.0/8 " + p.Name, program.SourceLengths: p.Name,
	} {
		if is, there := got[id]; !there || is != want {
			t.Errorf("%s: comment %q, there %t; want %q", id.Name(), is, there, want)
		}
	}
}
