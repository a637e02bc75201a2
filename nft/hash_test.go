package nft

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// hashPort is a service port that hashes clients, with endpoints 10.0.x.x at one target port.
func hashPort(name string, number int, target uint16, endpoints ...int) contents.Port {
	p := contents.Port{Family: program.IPv4, Name: "ns/" + name, Protocol: tcp, Method: program.SourceHash, Frontends: []contents.Frontend{
		{Addr: netip.MustParseAddr("10.96.0.1"), Port: uint16(number), ClusterIP: true, Pool: program.ClusterPool},
	}}
	for _, n := range endpoints {
		addr := netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
		p.Cluster = append(p.Cluster, contents.Endpoint{Addr: netip.AddrPortFrom(addr, target), Slots: 1})
	}
	return p
}

func upTo(n int) (out []int) {
	for i := range n {
		out = append(out, i+1)
	}
	return out
}

// counts of the elements in the maps of hash tables.
func (m *Memory) hashCounts() string {
	count := func(id program.SetID) (n int) {
		_ = m.kernel.DumpElements(program.IPv4, id, func(kernel.Found) { n++ }) // without a table there are none
		return n
	}
	return fmt.Sprintf("%d pools, %d slots, %d ports, %d endpoints", count(program.HashTables), count(program.HashSlots),
		count(program.TargetPorts), count(program.Endpoints))
}

func (m *Memory) expectCounts(t *testing.T, when, want string) {
	t.Helper()
	if got := m.hashCounts(); got != want {
		t.Errorf("%s: %s; want %s", when, got, want)
	}
}

// letLeave applies until no hash table without pools is left. No transaction deletes more than a piece of them.
func letLeave(t testing.TB, e *Engine) (pieces int) {
	t.Helper()
	for {
		r := mustApply(t, e)
		if pieces++; r.Full || r.Added+r.Deleted > piece+100 {
			t.Fatalf("piece %d: %d elements added, %d deleted, everything: %t", pieces, r.Added, r.Deleted, r.Full)
		}
		if !r.Leaving {
			return pieces
		}
	}
}

// TestPortsShareATable: ports with the same endpoint addresses have one table, and a change of all of them changes few
// of its slots.
func TestPortsShareATable(t *testing.T) {
	m := OpenMemory(Options{})
	const ports = 30
	set := func(n int, endpoints ...int) {
		for i := range n {
			mustSet(t, m.Engine, hashPort(fmt.Sprint("web:p", i), 1+i, uint16(8000+i), endpoints...))
		}
	}
	set(ports, upTo(170)...)
	mustApply(t, m.Engine)
	m.expectCounts(t, "170 endpoints", "30 pools, 16381 slots, 30 ports, 30 endpoints")

	set(ports, upTo(169)...)
	r := mustApply(t, m.Engine)
	if r.Full || r.Added+r.Deleted > 2*16381/20 || strings.Contains(r.Text(), "hash-tables") {
		t.Errorf("one endpoint less: %d elements added, %d deleted", r.Added, r.Deleted)
	}
	set(1, upTo(168)...)
	mustApply(t, m.Engine)
	m.expectCounts(t, "one port has other endpoints", "30 pools, 32762 slots, 30 ports, 30 endpoints")
	set(1, upTo(169)...)
	mustApply(t, m.Engine)
	m.expectCounts(t, "a packet may still use its table, which has a mark", "31 pools, 32762 slots, 30 ports, 30 endpoints")
	letLeave(t, m.Engine)
	m.expectCounts(t, "after the next transaction", "30 pools, 16381 slots, 30 ports, 30 endpoints")

	set(ports, upTo(2)...)
	mustApply(t, m.Engine)
	m.expectCounts(t, "two endpoints", "30 pools, 4093 slots, 30 ports, 30 endpoints")
	for i := range ports {
		m.Delete(program.IPv4, fmt.Sprint("ns/web:p", i))
	}
	mustApply(t, m.Engine)
	letLeave(t, m.Engine)
	m.expectCounts(t, "all ports gone", "0 pools, 0 slots, 0 ports, 0 endpoints")
}

// slotsOfPort lists the endpoint in each slot of a port's table, as the kernel has it.
func (m *Memory) slotsOfPort(t *testing.T, port int) (out []netip.AddrPort) {
	t.Helper()
	p := hashPort("", port, 0)
	number, _ := m.poolOf(t, &p, &p.Frontends[0])
	var pool program.Builder
	pool.Word(number)
	found, exists, err := m.kernel.Lookup(program.IPv4, program.HashTables, pool.Arena)
	if err != nil || !exists {
		t.Fatalf("hash table of the pool behind port %d: %t, %v", port, exists, err)
	}
	value := binary.NativeEndian.Uint32(found.Data)
	set, target := program.HashSlots, uint16(value&program.PortMask)
	if target == 0 {
		set = program.Endpoints
	}
	err = kernel.ReadRow(m.kernel, program.IPv4, set, value&program.TableMask, program.MaxSlots, func(data []byte) {
		at := target
		if target == 0 {
			at = binary.BigEndian.Uint16(data[4:])
		}
		out = append(out, netip.AddrPortFrom(netip.AddrFrom4([4]byte(data)), at))
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTenantsShareATable: when one Service changes, another one with the same endpoints keeps its table.
func TestTenantsShareATable(t *testing.T) {
	m := OpenMemory(Options{})
	mustSet(t, m.Engine, hashPort("a:p", 1, 80, 1, 2, 3), hashPort("b:p", 2, 8080, 1, 2, 3))
	mustApply(t, m.Engine)
	m.expectCounts(t, "shared", "2 pools, 4093 slots, 2 ports, 2 endpoints")
	before := m.slotsOfPort(t, 2)
	mustSet(t, m.Engine, hashPort("a:p", 1, 80, 1, 2, 4))
	if r := mustApply(t, m.Engine); strings.Contains(r.Text(), "ns/b:p") || r.Deleted > 2 {
		t.Errorf("%d elements deleted:\n%.500s", r.Deleted, r.Text())
	}
	if !slices.Equal(before, m.slotsOfPort(t, 2)) {
		t.Error("the table of the other Service changed")
	}
	m.Delete(program.IPv4, "ns/a:p")
	mustApply(t, m.Engine)
	letLeave(t, m.Engine)
	m.expectCounts(t, "alone", "1 pools, 4093 slots, 1 ports, 1 endpoints")
	if after := m.slotsOfPort(t, 2); !slices.Equal(before, after) || len(after) != 4093 {
		t.Error("the table of the other Service changed")
	}
	heavy := hashPort("b:p", 2, 8080, 1, 2, 3)
	heavy.Cluster[0].Slots = 2
	mustSet(t, m.Engine, heavy)
	mustApply(t, m.Engine)
	if slices.Equal(before, m.slotsOfPort(t, 2)) {
		t.Error("another weight has the same table")
	}
}

// TestTableOfSeveralPorts: endpoints at several ports have a table of their own, with the ports.
func TestTableOfSeveralPorts(t *testing.T) {
	m := OpenMemory(Options{})
	p := hashPort("a:p", 1, 80, 1, 2, 3)
	mustSet(t, m.Engine, p)
	mustApply(t, m.Engine)
	p.Cluster[1].Addr = netip.AddrPortFrom(p.Cluster[1].Addr.Addr(), 81)
	mustSet(t, m.Engine, p)
	mustApply(t, m.Engine)
	letLeave(t, m.Engine)
	m.expectCounts(t, "several ports", "1 pools, 0 slots, 0 ports, 4094 endpoints")
	got := map[netip.AddrPort]int{}
	for _, addr := range m.slotsOfPort(t, 1) {
		got[addr]++
	}
	if len(got) != 3 || got[p.Cluster[1].Addr] < 1364 {
		t.Errorf("the endpoints have these slots: %v", got)
	}
	mustSet(t, m.Engine, hashPort("a:p", 1, 80, 1, 2, 3))
	mustApply(t, m.Engine)
	letLeave(t, m.Engine)
	m.expectCounts(t, "one port", "1 pools, 4093 slots, 1 ports, 1 endpoints")
}

// TestSameTableEverywhere: the same endpoints have the same table whatever was before, and after a restart.
func TestSameTableEverywhere(t *testing.T) {
	one, other := OpenMemory(Options{}), OpenMemory(Options{})
	for n := 2; n <= 40; n++ {
		mustSet(t, one.Engine, hashPort("a:p", 1, 80, upTo(n)...))
		mustApply(t, one.Engine)
	}
	mustSet(t, one.Engine, hashPort("a:p", 1, 80, upTo(20)...))
	mustApply(t, one.Engine)
	mustSet(t, other.Engine, hashPort("b:p", 1, 80, 1), hashPort("a:p", 2, 80, upTo(20)...))
	mustApply(t, other.Engine)
	want := one.slotsOfPort(t, 1)
	if !slices.Equal(want, other.slotsOfPort(t, 2)) {
		t.Error("another node has another table")
	}
	again, err := one.Restart(Options{})
	if err != nil {
		t.Fatal(err)
	}
	mustSet(t, again.Engine, hashPort("a:p", 1, 80, upTo(20)...))
	mustApply(t, again.Engine)
	if !slices.Equal(want, again.slotsOfPort(t, 1)) {
		t.Error("the table is another one after a restart")
	}
}

// undumpable is a kernel that must not be asked for all hash slots: beyond 100,000, that takes seconds.
type undumpable struct {
	kernel.NFTables
	t *testing.T
}

func (k undumpable) DumpElements(f program.Family, set program.SetID, found func(kernel.Found)) error {
	if f == program.IPv4 && set == program.HashSlots {
		k.t.Error("all hash slots are read at once")
	}
	return k.NFTables.DumpElements(f, set, found)
}

// TestManyHashSlots: a process that starts asks for the slots of many hash tables by table, and finds what differs.
func TestManyHashSlots(t *testing.T) {
	m := OpenMemory(Options{})
	const tables = 33 // of 4,093 slots each
	for i := range tables {
		mustSet(t, m.Engine, hashPort(fmt.Sprintf("s%d:p", i), 1+i, uint16(80+i), 2*i, 2*i+1))
	}
	mustApply(t, m.Engine)
	k := undumpable{m.kernel, t}
	again := newEngine(k, Options{Instance: 2})
	if err := again.tables.Adopt(k); err != nil {
		t.Fatal(err)
	}
	for i := range tables {
		mustSet(t, again, hashPort(fmt.Sprintf("s%d:p", i), 1+i, uint16(80+i), 2*i, 2*i+1+i/(tables-1)))
	}
	r := mustApply(t, again)
	if n := strings.Count(r.Text(), "add element ip verdict hash-slots"); n == 0 || n > 4093 {
		t.Errorf("%d slots are written, want about half of one table", n)
	}
}

// TestTablesWithoutHistory: two nodes with the same objects have the same tables and answer for the same frontends,
// whatever each of them had before, in which order, with which weights, over which restarts, and beside which Services.
func TestTablesWithoutHistory(t *testing.T) {
	final := func(i int) contents.Port {
		p := hashPort(fmt.Sprintf("s%d:p", i), 1+i, uint16(80+i%2), upTo(2+3*i)...)
		p.Method = []program.Method{program.SourceHash, program.SourcePortHash}[i%2]
		p.Cluster[0].Slots = uint16(1 + i%3)
		p.Answers = netip.AddrPortFrom(p.Frontends[0].Addr, p.Frontends[0].Port)
		return p
	}
	const ports = 6
	node := func(seed uint64) *Memory {
		random := rand.New(rand.NewPCG(seed, 0))
		m := OpenMemory(Options{})
		for range 40 {
			i := random.IntN(ports + 2)
			p := final(i)
			p.Cluster = p.Cluster[:1+random.IntN(len(p.Cluster))]
			p.Cluster[random.IntN(len(p.Cluster))].Slots = uint16(1 + random.IntN(4))
			p.Cluster[random.IntN(len(p.Cluster))].Local = true
			switch random.IntN(5) {
			case 0:
				m.Delete(program.IPv4, p.Name)
			case 1:
				mustApply(t, m.Engine)
				again, err := m.Restart(Options{})
				if err != nil {
					t.Fatal(err)
				}
				m = again
			case 2:
				p.Method = program.Random
				fallthrough
			default:
				_ = m.Set(&p)
				mustApply(t, m.Engine)
			}
		}
		for _, i := range random.Perm(ports) {
			p := final(i)
			_ = m.Set(&p) // some endpoints have several frontends
			if random.IntN(2) == 0 {
				mustApply(t, m.Engine)
			}
		}
		m.Delete(program.IPv4, final(ports+1).Name)
		m.Delete(program.IPv4, final(ports).Name)
		mustApply(t, m.Engine)
		return m
	}
	answers := func(m *Memory) (list []string) {
		if err := m.kernel.DumpElements(program.IPv4, program.Answers, func(e kernel.Found) {
			list = append(list, string(e.Key)+" "+string(e.Data))
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(list)
		return list
	}
	one := node(0)
	if len(answers(one)) == 0 {
		t.Error("no endpoint has a frontend to answer for")
	}
	for seed := range uint64(6) {
		other := node(1 + seed)
		for i := range ports {
			if !slices.Equal(one.slotsOfPort(t, 1+i), other.slotsOfPort(t, 1+i)) {
				t.Errorf("seed %d: port %d has another table", seed, 1+i)
			}
		}
		if !slices.Equal(answers(one), answers(other)) {
			t.Errorf("seed %d: %v, and %v", seed, answers(one), answers(other))
		}
	}
}

// TestAuthorsOfAnEndpoint: a Service that lists the endpoint of an older one does not get what it sends, and has a problem. The other
// one is planned again whenever its part changes through others.
func TestAuthorsOfAnEndpoint(t *testing.T) {
	port := func(name string, created int64, n int) contents.Port {
		p := hashPort(name, n, 80, 1)
		p.Name, p.Answers, p.Created = name, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 80), created
		return p
	}
	victim, younger, older := port("good/web:p", 2, 1), port("evil/young:p", 3, 2), port("evil/old:p", 1, 3)
	m := OpenMemory(Options{})
	expect := func(when string, p *contents.Port, err error, holder string, again ...string) {
		t.Helper()
		if (err != nil) != (holder != "") || err != nil && !strings.Contains(err.Error(), " by "+holder+";") {
			t.Errorf("%s: error %v, want one that names %q", when, err, holder)
		}
		var names []string
		for _, id := range mustApply(t, m.Engine).Room {
			names = append(names, id.Name)
		}
		if !slices.Equal(names, again) {
			t.Errorf("%s: %v are to be planned again, want %v", when, names, again)
		}
		var at []netip.Addr
		if err := m.kernel.DumpElements(program.IPv4, program.Answers, func(e kernel.Found) {
			at = append(at, netip.AddrFrom4([4]byte(e.Data)))
		}); err != nil {
			t.Fatal(err)
		}
		if want := p.Answers.Addr(); want.IsValid() != (len(at) == 1) || len(at) == 1 && at[0] != want {
			t.Errorf("%s: the endpoint answers for %s, want %s", when, at, want)
		}
	}
	expect("alone", &victim, m.Set(&victim), "")
	expect("a younger one", &victim, m.Set(&younger), victim.Name)
	expect("the same again", &victim, m.Set(&victim), "")
	m.Delete(program.IPv4, victim.Name)
	expect("the victim goes", &younger, nil, "", younger.Name)
	expect("the younger one has it", &younger, m.Set(&younger), "")
	expect("the victim is back", &victim, m.Set(&victim), "", younger.Name)
	expect("an older one", &older, m.Set(&older), "", victim.Name)
	expect("the victim loses", &older, m.Set(&victim), older.Name)
	m.Delete(program.IPv4, older.Name)
	expect("the older one goes", &victim, nil, "", victim.Name)
	m.Delete(program.IPv4, younger.Name)
	second := port("good/web:q", 2, 4)
	expect("two ports of one Service", &contents.Port{}, m.Set(&second), victim.Name, victim.Name)
	m.Delete(program.IPv4, second.Name)
	expect("one port again", &victim, nil, "", victim.Name)

	old, late := port("old/web:p", 1, 5), port("late/web:p", 9, 6)
	old.Cluster, late.Cluster = hashPort("", 1, 80, 2).Cluster, hashPort("", 1, 80, 1, 2).Cluster
	mustSet(t, m.Engine, old)
	if err := m.Set(&late); err == nil || !strings.Contains(err.Error(), "2 endpoints are listed by other ports, too, the first by good/web:p;") {
		t.Errorf("both endpoints belong to others: %v", err)
	}
}

// TestRenamedHashPort: all elements of a port have its new name. A change that waits for the next Apply is known.
func TestRenamedHashPort(t *testing.T) {
	m := OpenMemory(Options{})
	p := hashPort("a:p", 1, 80, 1, 2, 3)
	mustSet(t, m.Engine, p)
	mustApply(t, m.Engine)
	p.Name, p.Formerly = "ns/b:p", "ns/a:p"
	mustSet(t, m.Engine, p)
	mustApply(t, m.Engine)
	if text := m.String(); strings.Contains(text, "ns/a:p") || !strings.Contains(text, "ns/b:p") {
		t.Error("the old name is in the tables, or the new one is not")
	}
	mustSet(t, m.Engine, hashPort("b:p", 1, 80, 1, 2))
	if m.settled() {
		t.Error("an endpoint less, and nothing waits")
	}
}

// TestHashChurn changes ports at random. After each transaction, the kernel must have what the ledger says, and each
// port must lead to its endpoints.
func TestHashChurn(t *testing.T) {
	seeds := uint64(6)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 0))
		m := OpenMemory(Options{})
		state := map[string]contents.Port{}
		for step := range 60 {
			for range 1 + random.IntN(4) {
				i := random.IntN(5)
				p := hashPort(fmt.Sprintf("s%d:p", i), 1+i, uint16(80+random.IntN(2)), upTo(1+random.IntN(4))...)
				switch random.IntN(6) {
				case 0:
					p.Method = program.Random
				case 1:
					p.Cluster[0].Addr = netip.AddrPortFrom(p.Cluster[0].Addr.Addr(), 99)
				case 2:
					delete(state, p.Name)
					m.Delete(program.IPv4, p.Name)
					continue
				}
				state[p.Name] = p
				mustSet(t, m.Engine, p)
			}
			mustApply(t, m.Engine)
			m.checkHashed(t, fmt.Sprintf("seed %d, step %d", seed, step), state)
			if random.IntN(3) > 0 {
				letLeave(t, m.Engine)
			}
			if step%10 == 9 {
				m = restart(t, m)
				for _, p := range state {
					mustSet(t, m.Engine, p)
				}
			}
		}
		mustApply(t, m.Engine)
		letLeave(t, m.Engine)
		m.checkHashed(t, fmt.Sprintf("seed %d, in the end", seed), state)
		pools := slices.DeleteFunc(slices.Collect(maps.Values(state)), func(p contents.Port) bool { return p.Method != program.SourceHash })
		if got := m.hashCounts(); !strings.HasPrefix(got, fmt.Sprintf("%d pools, ", len(pools))) {
			t.Errorf("seed %d: %s of %d Services", seed, got, len(pools))
		}
	}
}

func (m *Memory) checkHashed(t *testing.T, when string, state map[string]contents.Port) {
	t.Helper()
	l, err := m.List(nil)
	if err != nil || len(l.Frontends) != len(state) {
		t.Fatalf("%s: %d frontends, %v; want %d", when, len(l.Frontends), err, len(state))
	}
	for _, fe := range l.Frontends {
		p := state[fe.Name]
		if want := wantStatus(&p, &p.Frontends[0]); fmt.Sprint(fe) != fmt.Sprint(want) {
			t.Fatalf("%s: the kernel has %v, want %v", when, fe, want)
		}
	}
	// What the ledger would write again is what the kernel has.
	want := everything(m.tables[0])
	for _, id := range []program.SetID{program.HashTables, program.HashSlots, program.TargetPorts, program.Endpoints, program.Pools} {
		has := map[string]kernel.Found{}
		if err := m.kernel.DumpElements(program.IPv4, id, func(e kernel.Found) { has[string(e.Key)] = e.Clone() }); err != nil {
			t.Fatal(err)
		}
		list := want.Changes[0][id].Add
		if len(has) != len(list) {
			t.Fatalf("%s: the kernel has %d elements of %s, the ledger %d", when, len(has), id.Name(), len(list))
		}
		for _, e := range list {
			is, ok := has[string(e.Key(want.Arena))]
			if !ok || !kernel.SameValue(is.Data, e.Data(want.Arena)) || is.Comment != e.Label {
				t.Fatalf("%s: an element of %s differs", when, id.Name())
			}
		}
	}
}
