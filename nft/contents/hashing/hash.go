package hashing

import (
	"container/list"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
)

// hashKey identifies the endpoints of a table. It is a cryptographic digest, so that no tenant can make endpoints that
// get the table of another one.
type hashKey [sha256.Size]byte

func newHashKey(endpoints []contents.Endpoint) hashKey {
	h := sha256.New()
	var b program.Builder
	for i := range endpoints {
		b.Arena = b.Arena[:0]
		b.Addr(endpoints[i].Addr.Addr())
		b.Port(endpoints[i].Addr.Port())
		b.Word(uint32(max(endpoints[i].Slots, 1)))
		h.Write(b.Arena)
	}
	return hashKey(h.Sum(nil))
}

// Pool is the hash table of a pool.
type Pool struct {
	account *ledger.Account // of the service port
	pool    uint32
	table   *hashTable // nil: none
	port    uint16     // of the endpoints; 0: the table has the ports
	value   uint32     // the data of the pool's element; 0: there is no element
	touched bool       // another one may be wanted
}

// HasTable reports whether the pool has a hash table.
func (h *Pool) HasTable() bool { return h != nil && h.table != nil }

// NewPool returns a pool of a service port without a table.
func NewPool(pool uint32, account *ledger.Account) *Pool { return &Pool{pool: pool, account: account} }

// Record adds the element that says which table the pool has.
func (h *Pool) Record(b *ledger.Builder) {
	if h != nil && h.value != 0 {
		b.Begin(program.HashTables)
		b.Word(h.pool)
		b.Value()
		b.Word(h.value)
		b.End()
	}
}

func (h *Pool) wanted() uint32 {
	if h.table == nil {
		return 0
	}
	return h.table.number<<program.TableShift | uint32(h.port)
}

// hashTable is a table.
type hashTable struct {
	key       hashKey
	number    uint32 // 0: the table is not in a transaction yet
	users     int    // pools
	endpoints []contents.Endpoint
	withPorts bool
	account   *ledger.Account   // of its slots; nil: the table is not in a transaction yet
	from      *hashTable        // which the first pool of this table had before
	waiting   map[*Awaited]bool // of service ports that are to have it; see ahead.go
	movers    map[*Awaited]bool // of those whose pools have the table from
	differ    int               // slots that differ from those of the table from
	inPlace   bool              // it takes the place of that with this transaction
	emptied   uint64            // the transaction in which the last pool left
	idle      bool              // it is in the list of tables without pools
	slots     *slots            // that are wanted; nil: nobody knows them yet
	marked    bool              // it has a mark; see leaving.go
	owner     string            // the service port that asked for it, or had it last
	place     *list.Element     // in the list of those to come; nil: it is not there
	turn      *turn             // of that place; nil: all slots are there
}

// Tables has the tables of one family.
type Tables struct {
	numbering
	ledger  *ledger.Ledger
	byKey   map[hashKey]*hashTable
	fresh   []*hashTable   // new since the last transaction
	idle    []*hashTable   // that have or had no pools
	coming  coming         // that service ports wait for, and no pool has
	settled []*hashTable   // of those, some that a pool has now, or that nobody waits for
	inPlace []*hashTable   // that change in place with this transaction
	ready   []string       // service ports that can have a table that they wait for
	leaving []*hashTable   // that no pool has had since an earlier transaction
	paid    map[string]int // slots that began to come or leave, by the service port that pays for them
	touched []*Pool        // pools, since the last transaction
	ports   targetPorts
	round   uint64 // counts transactions
}

// NewTables returns the tables of a family without pools.
func NewTables(l *ledger.Ledger) Tables {
	return Tables{
		numbering: numbering{used: map[uint32]*hashTable{}}, ledger: l, byKey: map[hashKey]*hashTable{},
		ports: targetPorts{ledger: l, used: map[uint16]*portUse{}}, paid: map[string]int{},
	}
}

// Count is the number of tables that pools have. Some of those that leave count, because there are not that many more numbers.
func (h *Tables) Count() int {
	return len(h.byKey) - h.coming.count + max(0, len(h.leaving)-program.MaxTables/4)
}

// numbering assigns numbers to tables.
type numbering struct {
	used map[uint32]*hashTable
	last uint32
	// preferred are the numbers of tables in an earlier process, by the number of the pool. Other tables do not get them.
	preferred map[uint32]uint32
	reserved  map[uint32]bool
}

// Prefer sets what the pools had in the map hash-tables of an earlier process; nil: there is none any more.
func (n *numbering) Prefer(earlier map[uint32]uint32) {
	n.preferred, n.reserved = nil, nil
	if len(earlier) > 0 {
		n.preferred, n.reserved = map[uint32]uint32{}, map[uint32]bool{}
	}
	for pool, value := range earlier {
		n.preferred[pool] = value >> program.TableShift
		n.reserved[value>>program.TableShift] = true
	}
}

// inherit gives a new table the number that its first pool had.
func (n *numbering) inherit(t *hashTable, pool uint32) {
	number := n.preferred[pool]
	if number >= program.FirstTable && n.used[number] == nil {
		t.number, n.used[number] = number, t
	}
}

// assign gives a table a number, unless it has one.
func (n *numbering) assign(t *hashTable) {
	if t.number == 0 {
		t.number = contents.NextNumber(&n.last, program.FirstTable, 1<<(32-program.TableShift), func(number uint32) bool {
			return n.used[number] != nil || n.reserved[number]
		})
	}
	n.used[t.number] = t
}

// Update changes the table of a pool to that of some endpoints; none: it has no table any more. The elements follow when all
// pools of the transaction are known.
func (h *Tables) Update(pl *Pool, endpoints []contents.Endpoint) {
	old := pl.table
	pl.table, pl.port = nil, 0
	if len(endpoints) > 0 {
		endpoints, pl.port = withoutPorts(endpoints)
		pl.table = h.acquire(endpoints, pl, old)
		if pl.table.number == 0 && pl.table.users == 1 {
			h.inherit(pl.table, pl.pool)
		}
	}
	if old != nil {
		h.release(old, pl.account.Owner())
	}
	if !pl.touched {
		pl.touched = true
		h.touched = append(h.touched, pl)
	}
}

// acquire adds a pool to the table of some endpoints.
func (h *Tables) acquire(endpoints []contents.Endpoint, pl *Pool, from *hashTable) *hashTable {
	key := newHashKey(endpoints)
	t := h.byKey[key]
	if t == nil {
		t = &hashTable{key: key, endpoints: slices.Clone(endpoints), withPorts: pl.port == 0, from: from, owner: pl.account.Owner()}
		h.byKey[key] = t
	}
	if t.users == 0 && !t.complete() {
		h.fresh = append(h.fresh, t)
		h.ready = t.appendWaiting(h.ready)
	}
	if t.users++; t.place != nil {
		h.settled = append(h.settled, t)
	}
	return t
}

func (h *Tables) release(t *hashTable, owner string) {
	if t.users--; t.users > 0 {
		return
	}
	t.owner = owner
	if t.emptied = h.round; !t.idle {
		t.idle = true
		h.idle = append(h.idle, t)
	}
}

// Finish enters what has changed since the last transaction into the ledger.
func (h *Tables) Finish() {
	for _, table := range h.fresh {
		if table.users > 0 {
			h.enter(table)
		} else {
			h.coming.add(table)
			h.settled = append(h.settled, table) // maybe somebody waits for it
		}
	}
	h.arrive()
	for _, pl := range h.touched {
		h.enterPool(pl)
	}
	h.fresh, h.touched = nil, nil
	h.idle = slices.DeleteFunc(h.idle, func(table *hashTable) bool { return h.leave(table) })
	h.ports.leave(h.round)
	h.round++
}

// enter enters the slots of a new table. It takes the place of the table that its first pool had, if no pool has that.
func (h *Tables) enter(table *hashTable) {
	table.fill()
	if from := table.from; h.replaces(table) && from.users == 0 {
		table.number, table.account = from.number, from.account
		from.account = nil
		h.forget(from)
		h.used[table.number] = table
		h.paid[table.owner] += 2 * table.differ
	}
	h.begin(table)
	table.from = nil
	table.resize(h.ledger, table.size())
}

// begin gives a new table a number and an account. The service port that asked for it pays for its slots.
func (h *Tables) begin(t *hashTable) {
	if t.account != nil {
		return
	}
	h.assign(t)
	t.account = h.ledger.Open("")
	h.paid[t.owner] += t.size()
}

// resize has a table have so many of its slots, the first ones.
func (t *hashTable) resize(l *ledger.Ledger, slots int) {
	next := *t.slots
	next.bySlot, next.Builder = next.bySlot[:slots], program.Builder{}
	t.want(l, &next)
}

// want enters the slots that a table is to have.
func (t *hashTable) want(l *ledger.Ledger, s *slots) {
	s.number, s.set = t.number<<program.TableShift, program.HashSlots
	if t.withPorts {
		s.set = program.Endpoints
	}
	t.slots = s
	l.Want(t.account, s)
}

// slots are those of a table, which take two bytes each.
type slots struct {
	set       program.SetID
	number    uint32
	endpoints []contents.Endpoint
	bySlot    []uint16 // indices into endpoints
	program.Builder
}

// At returns the element of a slot.
func (s *slots) At(slot int) (r ledger.Record, next int, ok bool) {
	if slot >= len(s.bySlot) {
		return r, slot, false
	}
	at := s.endpoints[s.bySlot[slot]].Addr
	s.Arena = s.Arena[:0]
	s.Word(s.number)
	s.Word(uint32(slot))
	key := len(s.Arena)
	s.Addr(at.Addr())
	if s.set == program.Endpoints {
		s.Port(at.Port())
	}
	return ledger.Record{Set: s.set, Key: s.Arena[:key], Data: s.Arena[key:]}, slot + 1, true
}

// Prefix is how many slots two tables have in common at least, if one is what is left of the other.
func (s *slots) Prefix(o ledger.Content) int {
	other, ok := o.(*slots)
	if !ok || len(s.bySlot) == 0 || len(other.bySlot) == 0 || &s.bySlot[0] != &other.bySlot[0] {
		return 0
	}
	return min(len(s.bySlot), len(other.bySlot))
}

// forget forgets a table.
func (h *Tables) forget(t *hashTable) {
	if h.byKey[t.key] == t {
		delete(h.byKey, t.key)
	}
	if h.used[t.number] == t {
		delete(h.used, t.number)
	}
	if t.account != nil {
		h.ledger.Close(t.account)
		t.account = nil
	}
}

// enterPool enters which table a pool has, and its target port.
func (h *Tables) enterPool(pl *Pool) {
	from, to := pl.value, pl.wanted()
	if pl.touched = false; from == to {
		return
	}
	if from != 0 {
		h.ports.release(uint16(from&program.PortMask), h.round)
	}
	if to != 0 {
		h.ports.acquire(uint16(to & program.PortMask))
	}
	pl.value = to
	var b program.Builder
	b.Word(pl.pool)
	b.Word(to)
	h.ledger.Set(pl.account, ledger.Record{Set: program.HashTables, Key: b.Arena[:4], Data: b.Arena[4:]}, to == 0)
}

// Needed are the hash tables that a port needs: the number of slots of each. Ports with the same endpoints share a table;
// with affinity, and of port ranges, no port shares one.
func Needed(p *contents.Port) map[string]int {
	if !p.Method.Hashes() {
		return nil
	}
	out := map[string]int{}
	for i, endpoints := range [2][]contents.Endpoint{p.Cluster, p.Local} {
		switch {
		case len(endpoints) == 0:
		case p.Affinity > 0 || endpoints[0].Addr.Port() == 0:
			out[fmt.Sprint(p.Family, " ", p.Name, " ", i)] = int(Size(len(endpoints)))
		default:
			list, _ := withoutPorts(endpoints)
			key := newHashKey(list)
			out[string(key[:])] = int(Size(len(endpoints)))
		}
	}
	return out
}
