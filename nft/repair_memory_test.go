package nft

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// waysToLearn are how an engine can learn of an interference.
func waysToLearn() map[string]func(touched kernel.Interference) kernel.Interference {
	return map[string]func(touched kernel.Interference) kernel.Interference{
		"each key is known": func(touched kernel.Interference) kernel.Interference { return touched },
		"the sets are known": func(touched kernel.Interference) kernel.Interference {
			for _, set := range touched.Sets {
				set.Many, set.Keys = true, nil
			}
			return touched
		},
		"events were lost": func(kernel.Interference) kernel.Interference { return kernel.Interference{Lost: true} },
		"tables were made again": func(kernel.Interference) kernel.Interference {
			return kernel.Interference{Replaced: true, Structure: true}
		},
	}
}

// TestRepairInMemory: others delete elements of each set, and add elements that nobody wants. Whether a report
// or a look shows it to the engine, everything is as before afterwards.
func TestRepairInMemory(t *testing.T) {
	for _, x := range examples() {
		for way, heard := range waysToLearn() {
			t.Run(x.name+"/"+way, func(t *testing.T) {
				m := OpenMemory(Options{})
				x.install(t, m.Engine)
				if _, err := m.Guard([]netip.Addr{addr("10.96.0.20"), addr("fd00:96::20")}); err != nil {
					t.Fatal(err)
				}
				before := parseListing(t, m.String())
				touched := m.damage(t, rand.New(rand.NewPCG(1, 0)))
				if cmp.Equal(before, parseListing(t, m.String())) {
					t.Fatal("nothing was damaged")
				}
				r, err := m.Repair(heard(touched))
				for ; err == nil && r.More; r, err = m.RepairMore() {
				}
				if err != nil {
					t.Fatal(err)
				}
				is := parseListing(t, m.String())
				for _, l := range []listing{before, is} {
					for _, f := range program.Families() {
						delete(l, f.String()+" set "+program.Generation.Name()) // counts transactions
					}
				}
				if diff := cmp.Diff(before, is); diff != "" {
					t.Errorf("before and after the repair:\n%s", diff)
				}
			})
		}
	}
}

// damage deletes the first element of each set and every third of the others, and adds some. It returns which keys it touched.
func (m *Memory) damage(t *testing.T, random *rand.Rand) (touched kernel.Interference) {
	t.Helper()
	tx := &program.Transaction{}
	for _, tb := range m.tables {
		all, w := everything(tb), tx.For(tb.Family)
		for id := range program.SetCount {
			if id == program.Generation {
				continue // without the stamp, the engine compares both tables as a whole
			}
			touch := func(key []byte) {
				touched.At(kernel.TableSet{Family: tb.Family, Set: id}).Keys[string(key)] = true
			}
			list := all.Changes[tb.Family.Index()][id].Add
			whole := tb.Defs[id].Interval && len(list) > 0 // both ends of each range
			for i, e := range list {
				if whole || i == 0 || random.IntN(3) == 0 {
					copyElement(w, id, e, all.Arena)
					touch(e.Key(all.Arena))
				}
			}
			c := &tx.Changes[tb.Family.Index()][id]
			c.Delete, c.Add = c.Add, nil
			if e, some := m.foreign(tx, tb.Family, id); some {
				tx.For(tb.Family).Insert(id, e)
				touch(e.Key(tx.Arena))
			}
		}
	}
	var b kernel.Batch
	if err := b.Encode(tx); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.kernel.Send(&b); err != nil {
		t.Fatal(err)
	}
	return touched
}

// foreign makes an element of a set that nobody wants.
func (m *Memory) foreign(tx *program.Transaction, f program.Family, id program.SetID) (program.Element, bool) {
	a := addr(fmt.Sprintf("10.99.0.%d", id))
	if f == program.IPv6 {
		a = addr(fmt.Sprintf("fd00:99::%d", id))
	}
	word := func(n uint32) func(*program.Builder) { return func(b *program.Builder) { b.Word(n) } }
	switch id {
	case program.ClusterIPs, program.IPVSAddresses, program.NodePortAddresses:
		return tx.Element("", func(b *program.Builder) { b.Addr(a) }, nil), true
	case program.Hairpin:
		return tx.Element("", func(b *program.Builder) { b.Addr(a); b.Addr(a) }, nil), true
	case program.Services:
		return tx.Element("foreign", func(b *program.Builder) { b.Frontend(a, 99, 0, tcp) }, word(2)), true
	case program.NoEndpoints, program.MasqueradeAlways:
		return tx.Element("foreign", func(b *program.Builder) { b.Frontend(a, 99, 0, tcp) }, nil), true
	case program.Pools, program.HashTables:
		return tx.Element("foreign", word(9998), word(1)), true
	}
	return program.Element{}, false
}

// TestGuardsInMemory: a guard is there at once, and until the transaction after its end.
func TestGuardsInMemory(t *testing.T) {
	m := OpenMemory(Options{})
	mustApply(t, m.Engine)
	has := func(a string) bool { return strings.Contains(m.String(), "elements = { "+a+" }") }
	check := func(when string, want bool) {
		t.Helper()
		for _, a := range []string{"192.0.2.1", "2001:db8::1"} {
			if has(a) != want {
				t.Errorf("%s: %s is guarded: %t", when, a, !want)
			}
		}
	}
	both := addrs("192.0.2.1", "2001:db8::1")
	mustGuard(t, m.Engine, true, "192.0.2.1", "2001:db8::1")
	check("guarded", true)
	m.Unguard(both)
	check("before the transaction", true)
	mustGuard(t, m.Engine, true, "192.0.2.1", "2001:db8::1")
	mustApply(t, m.Engine)
	check("guarded again", true)
	m.Unguard(both)
	m.Unguard(both)
	mustApply(t, m.Engine)
	check("ended", false)
	mustGuard(t, m.Engine, true, "192.0.2.1", "2001:db8::1")
	check("and guarded once more", true)
}
