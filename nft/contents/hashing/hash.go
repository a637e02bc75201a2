package hashing

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
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
	name  string // of the service port
	pool  uint32
	table *hashTable // nil: none
	port  uint16     // of the endpoints; 0: the table has the ports
	// written is the data of the pool's element in the latest transaction; 0: there is no element.
	written uint32
	touched bool // it may differ
	renamed bool // since the latest transaction
}

// HasTable reports whether the pool has a hash table.
func (h *Pool) HasTable() bool { return h != nil && h.table != nil }

func NewPool(pool uint32) *Pool { return &Pool{pool: pool} }

// Name sets the name of the service port. renamed is set if its elements have another one.
func (h *Pool) Name(name string, renamed bool) { h.name, h.renamed = name, h.renamed || renamed }

// List adds the element that says which table the pool has, as of the latest transaction.
func (h *Pool) List(w program.Writer) {
	if h != nil && h.written != 0 {
		w.Insert(program.HashTables, h.element(w, h.written))
	}
}

func (h *Pool) wanted() uint32 {
	if h.table == nil {
		return 0
	}
	return h.table.number<<program.TableShift | uint32(h.port)
}

// hashTable is a table, and the endpoint in each slot as of the latest transaction.
type hashTable struct {
	key       hashKey
	number    uint32 // 0: the table is not in a transaction yet
	users     int    // pools
	endpoints []contents.Endpoint
	withPorts bool
	slots     []uint16   // indices into endpoints; nil: the table is not in the kernel
	from      *hashTable // which the first pool of this table had before
	emptied   uint64     // the transaction in which the last pool left
	idle      bool       // it is in the list of tables without pools
	marked    bool       // the kernel has its mark; see leaving.go
	owner     string     // the service port that had it last
}

// Tables has the tables of one family.
type Tables struct {
	byKey   map[hashKey]*hashTable
	numbers map[uint32]*hashTable
	next    uint32
	fresh   []*hashTable // new since the last transaction
	idle    []*hashTable // that have or had no pools
	leaving leaving
	touched []*Pool // pools, since the last transaction
	ports   targetPorts
	round   uint64 // counts transactions
	// preferred are the numbers of tables in an earlier process, by the number of the pool. Other tables do not get them.
	preferred map[uint32]uint32
	reserved  map[uint32]bool
}

// Count is the number of tables. Some of those that leave do not count, because there are more numbers than tables.
func (h *Tables) Count() int { return len(h.byKey) + max(0, len(h.leaving.tables)-program.MaxTables/4) }

// Unwritten reports whether tables have changed since the last transaction.
func (h *Tables) Unwritten() bool { return len(h.touched) > 0 }

// Numbers are those of the tables that are in a transaction, in no order.
func (h *Tables) Numbers() []uint32 { return slices.Collect(maps.Keys(h.numbers)) }

// Prefer sets what the pools had in the map hash-tables of an earlier process; nil: there is none any more.
func (h *Tables) Prefer(earlier map[uint32]uint32) {
	h.preferred, h.reserved = nil, nil
	if len(earlier) > 0 {
		h.preferred, h.reserved = map[uint32]uint32{}, map[uint32]bool{}
	}
	for pool, value := range earlier {
		h.preferred[pool] = value >> program.TableShift
		h.reserved[value>>program.TableShift] = true
	}
}

// number gives a new table the number that its first pool had.
func (h *Tables) number(t *hashTable, pool uint32) {
	number := h.preferred[pool]
	if number >= program.FirstTable && h.numbers[number] == nil {
		t.number, h.numbers[number] = number, t
	}
}

func NewTables() Tables {
	return Tables{byKey: map[hashKey]*hashTable{}, numbers: map[uint32]*hashTable{}, next: program.FirstTable}
}

// Update changes the table of a pool to that of some endpoints; none: it has no table any more. The elements are written
// when all pools of the transaction are known.
func (h *Tables) Update(pl *Pool, endpoints []contents.Endpoint) {
	old := pl.table
	pl.table, pl.port = nil, 0
	if len(endpoints) > 0 {
		endpoints, pl.port = withoutPorts(endpoints)
		pl.table = h.acquire(endpoints, pl.port == 0, old)
		if pl.table.number == 0 && pl.table.users == 1 {
			h.number(pl.table, pl.pool)
		}
	}
	if old != nil {
		h.release(old, pl.name)
	}
	h.touch(pl)
}

func (h *Tables) touch(pl *Pool) {
	if !pl.touched {
		pl.touched = true
		h.touched = append(h.touched, pl)
	}
}

// acquire adds a pool to the table of some endpoints.
func (h *Tables) acquire(endpoints []contents.Endpoint, withPorts bool, from *hashTable) *hashTable {
	key := newHashKey(endpoints)
	t := h.byKey[key]
	if t == nil {
		t = &hashTable{key: key, endpoints: slices.Clone(endpoints), withPorts: withPorts, from: from}
		h.byKey[key] = t
		h.fresh = append(h.fresh, t)
	}
	t.users++
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

// Write writes what has changed since the last transaction.
func (h *Tables) Write(w program.Writer) {
	for _, table := range h.fresh {
		if table.users > 0 {
			h.writeTable(w, table)
		} else {
			h.forget(table)
		}
	}
	for _, pl := range h.touched {
		h.writeHashed(w, pl)
	}
	h.fresh, h.touched = nil, nil
	h.idle = slices.DeleteFunc(h.idle, func(table *hashTable) bool { return h.leave(w, table) })
	h.ports.leave(w, h.round)
	h.round++
}

// writeTable writes a new table. It takes the place of the table that its first pool had, if no pool has that.
func (h *Tables) writeTable(w program.Writer, table *hashTable) {
	old := &hashTable{}
	if from := table.from; from != nil && from.users == 0 && from.slots != nil && from.withPorts == table.withPorts {
		was := *from
		old, table.number = &was, from.number
		h.forget(from)
	}
	table.from = nil
	if table.number == 0 {
		table.number = h.freeNumber()
	}
	h.numbers[table.number] = table
	table.slots = maglev(table.endpoints)
	table.writeSlots(w, old)
}

func (h *Tables) freeNumber() uint32 {
	for {
		number := h.next
		if h.next++; h.next >= 1<<(32-program.TableShift) {
			h.next = program.FirstTable
		}
		if h.numbers[number] == nil && !h.reserved[number] {
			return number
		}
	}
}

// forget takes a table out of the mirror.
func (h *Tables) forget(t *hashTable) {
	if h.byKey[t.key] == t {
		delete(h.byKey, t.key)
	}
	if h.numbers[t.number] == t {
		delete(h.numbers, t.number)
	}
	t.slots = nil
}

// writeSlots writes the differences to an earlier table of the same number.
func (t *hashTable) writeSlots(w program.Writer, old *hashTable) {
	for slot := range max(len(t.slots), len(old.slots)) {
		from, to := old.at(slot), t.at(slot)
		if from == to {
			continue
		}
		if from.IsValid() {
			w.Remove(old.set(), old.slotElement(w, slot, netip.AddrPort{}))
		}
		if to.IsValid() {
			w.Insert(t.set(), t.slotElement(w, slot, to))
		}
	}
}

// at is the endpoint in a slot; the zero AddrPort: the table has no such slot.
func (t *hashTable) at(slot int) netip.AddrPort {
	if slot >= len(t.slots) {
		return netip.AddrPort{}
	}
	return t.endpoints[t.slots[slot]].Addr
}

// set is the map that has the slots.
func (t *hashTable) set() program.SetID {
	if t.withPorts {
		return program.Endpoints
	}
	return program.HashSlots
}

// slotElement is the element of a slot; without an address, only its key.
func (t *hashTable) slotElement(w program.Writer, slot int, addr netip.AddrPort) program.Element {
	start := w.Mark()
	w.Word(t.number << program.TableShift)
	w.Word(uint32(slot))
	e := program.Element{Offset: start, KeyLen: w.Since(start)}
	if !addr.IsValid() {
		return e
	}
	start = w.Mark()
	w.Addr(addr.Addr())
	if t.withPorts {
		w.Port(addr.Port())
	}
	e.DataLen = w.Since(start)
	return e
}

// list adds some slots, as far as the table has them, and its mark with the first one.
func (t *hashTable) list(w program.Writer, from, to int) {
	if from == 0 && t.marked {
		w.Insert(program.HashTables, t.mark(w))
	}
	for slot := from; slot < min(to, len(t.slots)); slot++ {
		w.Insert(t.set(), t.slotElement(w, slot, t.at(slot)))
	}
}

// List adds some slots of the table with a number. It reports whether the table has more.
func (h *Tables) List(w program.Writer, number uint32, from, to int) (more bool) {
	table := h.numbers[number]
	if table == nil {
		return false
	}
	table.list(w, from, to)
	return to < len(table.slots)
}

// ListAll adds the slots of all tables.
func (h *Tables) ListAll(w program.Writer) {
	for _, table := range h.numbers {
		table.list(w, 0, len(table.slots))
	}
}

// ListPorts adds the target ports.
func (h *Tables) ListPorts(w program.Writer) { h.ports.list(w) }

// ListSlot adds the slot with a key in one of the maps that have slots of tables, or the mark with a key.
func (h *Tables) ListSlot(w program.Writer, id program.SetID, key []byte) {
	if len(key) < 4 || !IsMark(binary.NativeEndian.Uint32(key)) {
		return
	}
	switch table := h.numbers[binary.NativeEndian.Uint32(key)>>program.TableShift]; {
	case table == nil:
	case id == program.HashTables && table.marked:
		w.Insert(id, table.mark(w))
	case len(key) == 8 && table.set() == id:
		if slot := int(binary.NativeEndian.Uint32(key[4:])); slot < len(table.slots) {
			w.Insert(id, table.slotElement(w, slot, table.at(slot)))
		}
	}
}

// writeHashed writes which table a pool has, and its target port.
func (h *Tables) writeHashed(w program.Writer, pl *Pool) {
	from, to := pl.written, pl.wanted()
	same := from == to && !pl.renamed
	pl.touched, pl.renamed = false, false
	if same {
		return
	}
	if from != 0 {
		w.Remove(program.HashTables, pl.element(w, 0))
		h.ports.release(uint16(from&program.PortMask), h.round)
	}
	if to != 0 {
		w.Insert(program.HashTables, pl.element(w, to))
		h.ports.acquire(w, uint16(to&program.PortMask))
	}
	pl.written = to
}

// element says which table a pool has; 0: only its key.
func (h *Pool) element(w program.Writer, value uint32) program.Element {
	pool := func(b *program.Builder) { b.Word(h.pool) }
	if value == 0 {
		return w.Element("", pool, nil)
	}
	return w.Element(program.PoolLabel(h.name, h.pool), pool, func(b *program.Builder) { b.Word(value) })
}

// Rewrite has write add the tables of these pools, as for an empty table.
func (h *Tables) Rewrite(pools []*Pool) {
	h.fresh, h.idle, h.touched, h.ports, h.leaving = nil, nil, nil, targetPorts{}, leaving{}
	h.byKey, h.numbers = map[hashKey]*hashTable{}, map[uint32]*hashTable{}
	for _, pl := range pools {
		pl.written, pl.touched, pl.renamed = 0, false, false
		table := pl.table
		if table == nil {
			continue
		}
		h.touch(pl)
		if h.byKey[table.key] == nil {
			h.byKey[table.key] = table
			h.fresh = append(h.fresh, table)
			table.from, table.slots, table.idle, table.marked = nil, nil, false, false
			if table.number != 0 {
				h.numbers[table.number] = table
			}
		}
	}
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
