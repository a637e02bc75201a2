package nft

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// aheadPiece is the Options.Piece of these tests: a table of 4,093 slots takes nine transactions at least.
const aheadPiece = 500

// inTenant is hashPort in another namespace.
func inTenant(namespace, name string, number int, endpoints ...int) contents.Port {
	p := hashPort(name, number, 80, endpoints...)
	p.Name = namespace + "/" + name
	return p
}

// slotsOf are the endpoints in the slots that a port is to have.
func slotsOf(p *contents.Port) (out []netip.AddrPort) {
	for _, i := range hashing.Fill(p.Cluster) {
		out = append(out, p.Cluster[i].Addr)
	}
	return out
}

// until applies until nothing is postponed, and calls check after each transaction. It returns how many there were.
func (m *Memory) until(t *testing.T, most int, check func(n int, r *Result)) (transactions int) {
	t.Helper()
	for n := 1; ; n++ {
		r := mustApply(t, m.Engine)
		if changes := r.Added + r.Deleted; changes > most || r.Full {
			t.Fatalf("transaction %d: %d changes, want up to %d; everything: %t", n, changes, most, r.Full)
		}
		if check(n, &r); len(waiting(m.Engine)) == 0 {
			return n
		}
		if n == 1000 {
			t.Fatal("something waits for ever")
		}
	}
}

// TestTablesComeInPieces: a new hash table, and one that takes the place of another, are written in pieces. The port gets it with the
// last one, and has what it had until then. Others do not wait, and the port pays.
func TestTablesComeInPieces(t *testing.T) {
	m := OpenMemory(Options{Piece: aheadPiece})
	mustApply(t, m.Engine)
	p, other := inTenant("tenant", "a:p", 1, 1, 2, 3), manyPorts(program.IPv4, 1000, 1)
	var before []netip.AddrPort
	for round, endpoints := range [][]int{{1, 2, 3}, {11, 12, 13}, {1, 2, 3}} {
		p = inTenant("tenant", "a:p", 1, endpoints...)
		mustSet(t, m.Engine, p)
		paid := 0
		transactions := m.until(t, 3*piece, func(n int, r *Result) {
			paid += r.Changed[contents.PortID{Family: program.IPv4, Name: p.Name}].Sum()
			switch last := len(waiting(m.Engine)) == 0; {
			case last:
				if got := m.slotsOfPort(t, 1); !slices.Equal(got, slotsOf(&p)) {
					t.Fatalf("round %d: the port does not have its table", round)
				}
			case round == 0 && m.serves(t, p.Name):
				t.Fatalf("transaction %d: a port without a whole table is served", n)
			case round > 0 && !slices.Equal(m.slotsOfPort(t, 1), before):
				t.Fatalf("round %d, transaction %d: the table changes before all of it is there", round, n)
			}
			m.checkNothingFound(t, "in between")
			if n == 2 {
				mustSet(t, m.Engine, other...)
			} else if n == 3 && !m.serves(t, other[0].Name) {
				t.Fatal("another port waits")
			}
		})
		if leaves := 4093 * min(round, 1); transactions < 4093/aheadPiece || paid < 4093 || paid > 4093+leaves+50 {
			t.Errorf("round %d: %d transactions, the port pays for %d changes", round, transactions, paid)
		}
		before = m.slotsOfPort(t, 1)
		m.Delete(program.IPv4, other[0].Name)
		letLeave(t, m.Engine)
		m.expectCounts(t, "in the end", "1 pools, 4093 slots, 1 ports, 1 endpoints")
	}
}

// TestFewSlotsChangeInPlace: all ports that share a table get another one with one transaction, if few slots differ, also if a local
// pool of one of them needs a new table first.
func TestFewSlotsChangeInPlace(t *testing.T) {
	m := OpenMemory(Options{Piece: piece})
	mustApply(t, m.Engine)
	const ports = 20
	round := 0
	set := func(list ...int) (all []contents.Port) {
		round++
		for i := range ports {
			p := hashPort(fmt.Sprint("web:p", i), 1+i, uint16(8000+i), list...)
			if all = append(all, p); i == ports-1 {
				all[i].Local = hashPort("", 1, uint16(8000+i), upTo(300)[100*round:100*round+20]...).Cluster
				all[i].Frontends = append(all[i].Frontends, contents.Frontend{Addr: netip.MustParseAddr("10.97.0.1"), Port: 1, Pool: program.LocalPool})
			}
		}
		mustSet(t, m.Engine, all...)
		return all
	}
	set(upTo(100)...)
	m.until(t, 3*piece, func(int, *Result) {})
	var before [ports][]netip.AddrPort
	for i := range ports {
		before[i] = m.slotsOfPort(t, 1+i)
	}
	all := set(append(upTo(21), upTo(100)[22:]...)...) // the local pool gets another table
	m.until(t, 3*piece, func(n int, r *Result) {
		for _, i := range []int{0, ports - 1} {
			if got := m.slotsOfPort(t, 1+i); slices.Equal(got, before[i]) == (len(waiting(m.Engine)) == 0) {
				t.Fatalf("transaction %d: port %d, %v wait", n, i, waiting(m.Engine))
			}
		}
	})
	letLeave(t, m.Engine)
	state := map[string]contents.Port{}
	for _, p := range all[:ports-1] {
		state[p.Name] = p
	}
	m.Delete(program.IPv4, all[ports-1].Name)
	mustApply(t, m.Engine)
	letLeave(t, m.Engine)
	m.checkHashed(t, "in the end", state)
	m.expectCounts(t, "in the end", "19 pools, 16381 slots, 19 ports, 19 endpoints")
}

// TestTableIsNotWantedAnyMore: endpoints return before their new table is there. What is there of it leaves, and the port never changes.
func TestTableIsNotWantedAnyMore(t *testing.T) {
	m := OpenMemory(Options{Piece: aheadPiece})
	p := inTenant("tenant", "a:p", 1, 1, 2, 3)
	mustSet(t, m.Engine, p)
	mustApply(t, m.Engine)
	before := m.slotsOfPort(t, 1)
	for round := range 5 {
		mustSet(t, m.Engine, inTenant("tenant", "a:p", 1, 11+round, 12, 13))
		for range round {
			mustApply(t, m.Engine)
		}
		if round%2 == 0 {
			mustSet(t, m.Engine, p)
		} else {
			m.Delete(program.IPv4, p.Name)
			mustApply(t, m.Engine)
			mustSet(t, m.Engine, p)
		}
		m.until(t, 3*piece, func(int, *Result) {})
		letLeave(t, m.Engine)
		m.checkHashed(t, "the endpoints are back", map[string]contents.Port{p.Name: p})
		m.expectCounts(t, "the endpoints are back", "1 pools, 4093 slots, 1 ports, 1 endpoints")
		if !slices.Equal(before, m.slotsOfPort(t, 1)) {
			t.Error("the table is another one")
		}
	}
}

// TestTableStaysForAPortThatWaits: a table loses its last pool while another port waits for its turn to get the table.
func TestTableStaysForAPortThatWaits(t *testing.T) {
	m, p, q := OpenMemory(Options{}), hashPort("p:p", 1, 80, 1, 2, 3), hashPort("q:p", 2, 80, 1, 2, 3)
	mustSet(t, m.Engine, p)
	mustApply(t, m.Engine)
	m.piece = 8
	mustSet(t, m.Engine, manyPorts(program.IPv4, 1000, 3)...)
	m.Delete(program.IPv4, p.Name)
	mustSet(t, m.Engine, q)
	between := false
	m.until(t, 100, func(int, *Result) { between = between || !m.serves(t, p.Name) && !m.serves(t, q.Name) })
	if !between {
		t.Error("one transaction has both: the test shows nothing")
	}
	for _, other := range manyPorts(program.IPv4, 1000, 3) {
		m.Delete(program.IPv4, other.Name)
	}
	m.until(t, 100, func(int, *Result) {})
	mustApply(t, m.Engine)
	m.checkHashed(t, "in the end", map[string]contents.Port{q.Name: q})
	m.expectCounts(t, "in the end", "1 pools, 4093 slots, 1 ports, 1 endpoints")
}

// TestNamespacesTakeTurns: the small table of a tenant does not wait for the large ones of another one.
func TestNamespacesTakeTurns(t *testing.T) {
	m := OpenMemory(Options{Piece: aheadPiece})
	mustApply(t, m.Engine)
	for i := range 4 {
		mustSet(t, m.Engine, inTenant("tenant", fmt.Sprintf("a%d:p", i), 1+i, upTo(30+i)...))
	}
	mustApply(t, m.Engine)
	mustSet(t, m.Engine, inTenant("shop", "b:p", 50, 1, 2, 3))
	n := 0
	for ; !m.serves(t, "shop/b:p"); n++ {
		mustApply(t, m.Engine)
	}
	if most := 2*(4093/(aheadPiece/2)+1) + 2; n > most {
		t.Errorf("the table comes after %d transactions, want %d at most", n, most)
	}
}

// TestRangeElsewhere: a port that waits for its table does not come at once because of a port range that concerns other addresses.
func TestRangeElsewhere(t *testing.T) {
	for addr, elsewhere := range map[string]bool{"10.96.0.2": true, "10.96.0.1": false} {
		m := OpenMemory(Options{Piece: aheadPiece})
		mustApply(t, m.Engine)
		mustSet(t, m.Engine, inTenant("tenant", "a:p", 1, 1, 2, 3))
		r := manyPorts(program.IPv4, 0, 1)[0]
		for i := range r.Cluster {
			r.Cluster[i].Addr = netip.AddrPortFrom(r.Cluster[i].Addr.Addr(), 0)
		}
		r.Frontends = []contents.Frontend{ranged(contents.Frontend{Addr: netip.MustParseAddr(addr), Pool: program.ClusterPool}, 1000)}
		mustSet(t, m.Engine, r)
		mustApply(t, m.Engine)
		if !m.serves(t, r.Name) || m.serves(t, "tenant/a:p") == elsewhere {
			t.Errorf("a range at %s: it is served %t, and the port waits %t", addr, m.serves(t, r.Name), !elsewhere)
		}
	}
}

// failing is a kernel that does not take transactions, or takes them and loses its answers.
type failing struct {
	kernel.NFTables
	lost bool
}

func (k *failing) Send(b *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
	if !k.lost {
		return kernel.Rejected, &nlmsg.Ack{Seq: b.First, Errno: unix.EBUSY}, unix.EBUSY
	}
	_, _, _ = k.NFTables.Send(b)
	return kernel.Unknown, nil, errLost
}

// TestKilledWhileTablesCome: the process ends between two pieces, or the kernel refuses one. The next one has what is wanted, and what
// was written ahead is used or leaves.
func TestKilledWhileTablesCome(t *testing.T) {
	p, next := inTenant("tenant", "a:p", 1, 1, 2, 3), inTenant("tenant", "a:p", 1, 11, 12, 13)
	for _, applies := range []int{0, 1, 8, 9, 10} {
		for _, how := range []string{"killed", "killed, and the old endpoints return", "a piece is refused", "a piece gets lost"} {
			when := fmt.Sprintf("after %d pieces: %s", applies, how)
			m := OpenMemory(Options{Piece: aheadPiece})
			mustSet(t, m.Engine, p)
			mustApply(t, m.Engine)
			mustSet(t, m.Engine, next)
			for range applies {
				mustApply(t, m.Engine)
			}
			if applies > 0 && applies < 9 {
				m.expectCounts(t, "there is a mark", fmt.Sprintf("2 pools, %d slots, 1 ports, 1 endpoints", 4093+applies*aheadPiece))
			}
			old, fresh := slotsOf(&p), slotsOf(&next)
			if got := m.slotsOfPort(t, 1); !slices.Equal(got, old) && !slices.Equal(got, fresh) {
				t.Fatalf("%s: the port has neither table", when)
			}
			want := next
			switch how {
			case "a piece is refused", "a piece gets lost":
				k := &failing{NFTables: m.kernel, lost: how == "a piece gets lost"}
				m.conn = k
				if _, err := m.Apply(); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, errLost) {
					t.Fatal(when, err)
				}
				m.conn = k.NFTables
			default:
				if m = restart(t, m); how != "killed" {
					want = p
				}
				mustSet(t, m.Engine, want)
			}
			mustApply(t, m.Engine)
			m.checkNothingFound(t, when)
			for r := mustApply(t, m.Engine); len(waiting(m.Engine)) > 0 || r.Leaving; r = mustApply(t, m.Engine) {
			}
			m.checkHashed(t, when, map[string]contents.Port{want.Name: want})
			m.expectCounts(t, when, "1 pools, 4093 slots, 1 ports, 1 endpoints")
		}
	}
}

// TestTablesAtRandom makes random changes of ports that hash clients and share tables. After each transaction, each port has a
// table that it was to have at some time since nothing waited, and nothing waits for ever. Now and then, the kernel refuses or loses a
// transaction, or another process goes on.
func TestTablesAtRandom(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 3
	}
	waited := 0
	for seed := range seeds {
		w, o := newWorld(seed), Options{Piece: []int{200, 1000, 2500}[seed%3]}
		m := OpenMemory(o)
		mustApply(t, m.Engine)
		fragile := &brittle{NFTables: m.kernel, w: w}
		ports, wanted, numbers := map[string]contents.Port{}, map[string][][]netip.AddrPort{}, map[string]int{}
		check := func(when string) {
			t.Helper()
			served := map[string]bool{}
			l, err := m.List(nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range l.Frontends {
				served[l.Frontends[i].Name] = true
			}
			for name, states := range wanted {
				var is []netip.AddrPort
				if served[name] {
					is = m.slotsOfPort(t, numbers[name])
				}
				if !slices.ContainsFunc(states, func(s []netip.AddrPort) bool { return slices.Equal(s, is) }) {
					t.Fatalf("%s: %s has a table that nobody wanted, of %d slots", when, name, len(is))
				}
			}
		}
		for step := range 12 {
			if step%5 == 4 {
				again, err := m.Restart(o)
				if err != nil {
					t.Fatal(err)
				}
				m = again
				mustSet(t, m.Engine, slices.Collect(maps.Values(ports))...)
			}
			m.conn = fragile
			for range 1 + w.rand.IntN(4) {
				list := upTo(2 + w.rand.IntN(15))[w.rand.IntN(2):]
				for range w.rand.IntN(3) { // neighbors share tables
					i := w.rand.IntN(8)
					p := inTenant(fmt.Sprint("ns", i/3), fmt.Sprint("s:p", i), 1+i, list...)
					if wanted[p.Name] == nil {
						wanted[p.Name] = [][]netip.AddrPort{nil}
					}
					if numbers[p.Name] = 1 + i; w.one(5) {
						m.Delete(program.IPv4, p.Name)
						delete(ports, p.Name)
						wanted[p.Name] = append(wanted[p.Name], nil)
						continue
					}
					mustSet(t, m.Engine, p)
					ports[p.Name], wanted[p.Name] = p, append(wanted[p.Name], slotsOf(&p))
				}
			}
			for range w.rand.IntN(12) {
				_, err := m.Apply()
				check(fmt.Sprintf("seed %d, step %d", seed, step))
				if waited += len(waiting(m.Engine)); err == nil && len(waiting(m.Engine)) == 0 {
					break
				}
			}
		}
		m.conn = fragile.NFTables
		n := 0
		for r := mustApply(t, m.Engine); len(waiting(m.Engine)) > 0 || r.Leaving; r = mustApply(t, m.Engine) {
			if n++; n > 2000 {
				t.Fatalf("seed %d: %v wait for ever", seed, waiting(m.Engine))
			}
			if n%8 == 0 {
				check(fmt.Sprintf("seed %d, in the end", seed))
			}
		}
		fresh := OpenMemory(Options{})
		mustSet(t, fresh.Engine, slices.Collect(maps.Values(ports))...)
		mustApply(t, fresh.Engine)
		if is, want := m.hashCounts(), fresh.hashCounts(); is != want {
			t.Fatalf("seed %d: %s; want %s", seed, is, want)
		}
		for name := range ports {
			if !slices.Equal(m.slotsOfPort(t, numbers[name]), fresh.slotsOfPort(t, numbers[name])) {
				t.Fatalf("seed %d: %s has another table", seed, name)
			}
		}
	}
	if waited < 100 {
		t.Errorf("%d changes waited: the test shows too little", waited)
	}
}
