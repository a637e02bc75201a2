package nft

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
)

// A pool whose class hashes the client's address has a hash table, which leads from a slot to an endpoint. The pools of
// a family share a table if they have the same endpoints with the same weights. Service ports of one Service usually
// have the same endpoints at different target ports, so a table has addresses only, and the target port belongs to the
// pool:
//
//	hash-tables     pool                 -> table and target port, 16 bits each
//	hash-slots      table . slot         -> address
//	target-ports    target port          -> the same as a port: the program cannot compute it
//
// If the endpoints of a pool have several ports, the table has addresses with ports. Its slots are in the map endpoints,
// under the number of the table, which is larger than that of any pool.
//
// A table that no pool uses any more stays in the kernel until the next transaction, for packets that have read its
// number. If a pool changes its endpoints, and no other pool has the old ones, the table changes with it.

const (
	tableShift        = 16
	tableMask  uint32 = 0xffff << tableShift
	portMask   uint32 = ^tableMask
	// firstTable makes the keys of tables in the map endpoints larger than those of pools.
	firstTable = 1 << (poolBits - tableShift)
	maxTables  = 1 << 15 // of a family; the other half of the numbers is for tables that leave
)

// hashKey identifies the endpoints of a table. It is a cryptographic digest, so that no tenant can make endpoints that
// get the table of another one.
type hashKey [sha256.Size]byte

func newHashKey(endpoints []Endpoint) hashKey {
	h := sha256.New()
	var b builder
	for i := range endpoints {
		b.arena = b.arena[:0]
		b.addr(endpoints[i].Addr.Addr())
		b.port(endpoints[i].Addr.Port())
		b.word(uint32(max(endpoints[i].Slots, 1)))
		h.Write(b.arena)
	}
	return hashKey(h.Sum(nil))
}

// hashed is the hash table of a pool.
type hashed struct {
	table *hashTable // nil: none
	port  uint16     // of the endpoints; 0: the table has the ports
	// written is the data of the pool's element in the latest transaction; 0: there is no element.
	written uint32
	touched bool // it may differ
}

func (h *hashed) wanted() uint32 {
	if h.table == nil {
		return 0
	}
	return h.table.number<<tableShift | uint32(h.port)
}

// hashTable is a table, and the endpoint in each slot as of the latest transaction.
type hashTable struct {
	key       hashKey
	number    uint32 // 0: the table is not in a transaction yet
	users     int    // pools
	endpoints []Endpoint
	withPorts bool
	slots     []uint16   // indices into endpoints; nil: the table is not in the kernel
	from      *hashTable // which the first pool of this table had before
	emptied   uint64     // the transaction in which the last pool left
	idle      bool       // it is in the list of tables without pools
}

// hashTables has the tables of one family.
type hashTables struct {
	byKey   map[hashKey]*hashTable
	numbers map[uint32]*hashTable
	next    uint32
	fresh   []*hashTable  // new since the last transaction
	idle    []*hashTable  // that have or had no pools
	touched []touchedPool // since the last transaction
	ports   map[uint16]*portUse
	unused  []uint16 // target ports that have or had no pools
	round   uint64   // counts transactions
	// preferred are the numbers of tables in an earlier process, by the number of the pool. Other tables do not get them.
	preferred map[uint32]uint32
	reserved  map[uint32]bool
}

// prefer sets what the pools had in the map hash-tables of an earlier process; nil: there is none any more.
func (h *hashTables) prefer(earlier map[uint32]uint32) {
	h.preferred, h.reserved = nil, nil
	if len(earlier) > 0 {
		h.preferred, h.reserved = map[uint32]uint32{}, map[uint32]bool{}
	}
	for pool, value := range earlier {
		h.preferred[pool] = value >> tableShift
		h.reserved[value>>tableShift] = true
	}
}

// number gives a new table the number that its first pool had.
func (h *hashTables) number(t *hashTable, pool uint32) {
	number := h.preferred[pool]
	if number >= firstTable && h.numbers[number] == nil {
		t.number, h.numbers[number] = number, t
	}
}

type touchedPool struct {
	port *port
	pool *pool
}

// portUse counts the pools with a target port.
type portUse struct {
	pools   int
	emptied uint64
}

func newHashTables() hashTables {
	return hashTables{
		byKey: map[hashKey]*hashTable{}, numbers: map[uint32]*hashTable{}, next: firstTable, ports: map[uint16]*portUse{},
	}
}

// updateHashed changes the table of a pool. The elements are written when all pools of the transaction are known.
func (tb *table) updateHashed(p *port, pl *pool, c class, endpoints []Endpoint) {
	old := pl.hash.table
	pl.hash.table, pl.hash.port = nil, 0
	if c.hashed() {
		var list []Endpoint
		list, pl.hash.port = withoutPorts(endpoints)
		pl.hash.table = tb.hash.acquire(list, pl.hash.port == 0, old)
		if table := pl.hash.table; table.number == 0 && table.users == 1 {
			tb.hash.number(table, pl.number)
		}
	}
	if old != nil {
		tb.hash.release(old)
	}
	tb.hash.touch(p, pl)
}

func (h *hashTables) touch(p *port, pl *pool) {
	if !pl.hash.touched {
		pl.hash.touched = true
		h.touched = append(h.touched, touchedPool{p, pl})
	}
}

// acquire adds a pool to the table of some endpoints.
func (h *hashTables) acquire(endpoints []Endpoint, withPorts bool, from *hashTable) *hashTable {
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

func (h *hashTables) release(t *hashTable) {
	if t.users--; t.users > 0 {
		return
	}
	if t.emptied = h.round; !t.idle {
		t.idle = true
		h.idle = append(h.idle, t)
	}
}

// writeHashTables writes what has changed since the last transaction.
func (tb *table) writeHashTables(t *Transaction) {
	h := &tb.hash
	for _, table := range h.fresh {
		if table.users > 0 {
			tb.writeHashTable(t, table)
		} else {
			h.forget(table)
		}
	}
	for _, at := range h.touched {
		tb.writeHashed(t, at)
	}
	h.fresh, h.touched = nil, nil
	h.idle = slices.DeleteFunc(h.idle, func(table *hashTable) bool { return tb.leave(t, table) })
	h.unused = slices.DeleteFunc(h.unused, func(port uint16) bool { return tb.leavePort(t, port) })
	h.round++
}

// writeHashTable writes a new table. It takes the place of the table that its first pool had, if no pool has that.
func (tb *table) writeHashTable(t *Transaction, table *hashTable) {
	old := &hashTable{}
	if from := table.from; from != nil && from.users == 0 && from.slots != nil && from.withPorts == table.withPorts {
		was := *from
		old, table.number = &was, from.number
		tb.hash.forget(from)
	}
	table.from = nil
	if table.number == 0 {
		table.number = tb.hash.freeNumber()
	}
	tb.hash.numbers[table.number] = table
	table.slots = maglev(table.endpoints)
	tb.writeTableSlots(t, table, old)
}

func (h *hashTables) freeNumber() uint32 {
	for {
		number := h.next
		if h.next++; h.next >= 1<<(32-tableShift) {
			h.next = firstTable
		}
		if h.numbers[number] == nil && !h.reserved[number] {
			return number
		}
	}
}

// forget takes a table out of the mirror.
func (h *hashTables) forget(t *hashTable) {
	if h.byKey[t.key] == t {
		delete(h.byKey, t.key)
	}
	if h.numbers[t.number] == t {
		delete(h.numbers, t.number)
	}
	t.slots = nil
}

// writeTableSlots writes the differences between two tables of the same number.
func (tb *table) writeTableSlots(t *Transaction, table, old *hashTable) {
	for slot := range max(len(table.slots), len(old.slots)) {
		from, to := old.at(slot), table.at(slot)
		if from == to {
			continue
		}
		if from.IsValid() {
			t.del(tb.family, old.set(), tb.hashSlot(t, table.number, slot, netip.AddrPort{}, old.withPorts))
		}
		if to.IsValid() {
			t.add(tb.family, table.set(), tb.hashSlot(t, table.number, slot, to, table.withPorts))
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
func (t *hashTable) set() setID {
	if t.withPorts {
		return idEndpoints
	}
	return idHashSlots
}

// hashSlot is the element of a slot; without an address, only its key.
func (tb *table) hashSlot(t *Transaction, number uint32, slot int, addr netip.AddrPort, withPort bool) element {
	start := t.mark()
	t.word(number << tableShift)
	t.word(uint32(slot))
	e := element{offset: start, key: t.since(start)}
	if !addr.IsValid() {
		return e
	}
	start = t.mark()
	t.addr(addr.Addr())
	if withPort {
		t.port(addr.Port())
	}
	e.data = t.since(start)
	return e
}

// writeHashed writes which table a pool has, and its target port.
func (tb *table) writeHashed(t *Transaction, at touchedPool) {
	h := &at.pool.hash
	from, to := h.written, h.wanted()
	h.touched = false
	if from == to {
		return
	}
	if from != 0 {
		t.del(tb.family, idHashTables, tb.hashedElement(t, at, 0))
		tb.hash.releasePort(uint16(from & portMask))
	}
	if to != 0 {
		t.add(tb.family, idHashTables, tb.hashedElement(t, at, to))
		tb.acquirePort(t, uint16(to&portMask))
	}
	h.written = to
}

func (tb *table) hashedElement(t *Transaction, at touchedPool, value uint32) element {
	if value == 0 {
		return t.element("", func(b *builder) { b.word(at.pool.number) }, nil)
	}
	return t.element(at.port.label(at.pool), func(b *builder) { b.word(at.pool.number) }, func(b *builder) { b.word(value) })
}

func (tb *table) acquirePort(t *Transaction, port uint16) {
	if port == 0 {
		return
	}
	if tb.hash.ports[port] == nil {
		tb.hash.ports[port] = &portUse{}
		t.add(tb.family, idTargetPorts, targetPort(t, port))
	}
	tb.hash.ports[port].pools++
}

func (h *hashTables) releasePort(port uint16) {
	if port == 0 {
		return
	}
	use := h.ports[port]
	if use.pools--; use.pools == 0 {
		use.emptied = h.round
		h.unused = append(h.unused, port)
	}
}

func targetPort(t *Transaction, port uint16) element {
	e := t.element("", func(b *builder) { b.word(uint32(port)) }, func(b *builder) { b.port(port) })
	e.data = uint8(typeService.bytes) // without padding: it is no concatenation
	return e
}

// leave deletes a table that has had no pool since an earlier transaction. It reports whether the table is off the list.
func (tb *table) leave(t *Transaction, table *hashTable) bool {
	if table.users == 0 && table.slots != nil && table.emptied == tb.hash.round {
		return false
	}
	if table.users == 0 && table.slots != nil {
		tb.writeTableSlots(t, &hashTable{number: table.number}, table)
		tb.hash.forget(table)
	}
	table.idle = false
	return true
}

// leavePort does the same for a target port.
func (tb *table) leavePort(t *Transaction, port uint16) bool {
	use := tb.hash.ports[port]
	if use == nil || use.pools > 0 {
		return true
	}
	if use.emptied == tb.hash.round {
		return false
	}
	t.del(tb.family, idTargetPorts, t.element("", func(b *builder) { b.word(uint32(port)) }, nil))
	delete(tb.hash.ports, port)
	return true
}

// rewriteHashTables has writeHashTables write all tables that the pools of these ports have, as for an empty kernel.
func (tb *table) rewriteHashTables(ports []*port) {
	h := &tb.hash
	h.fresh, h.idle, h.touched, h.unused = nil, nil, nil, nil
	h.ports, h.byKey, h.numbers = map[uint16]*portUse{}, map[hashKey]*hashTable{}, map[uint32]*hashTable{}
	for _, p := range ports {
		for i := range p.pools {
			hash := &p.pools[i].hash
			hash.written, hash.touched = 0, false
			table := hash.table
			if table == nil {
				continue
			}
			h.touch(p, &p.pools[i])
			if h.byKey[table.key] == nil {
				h.byKey[table.key] = table
				h.fresh = append(h.fresh, table)
				table.from, table.slots, table.idle = nil, nil, false
				if table.number != 0 {
					h.numbers[table.number] = table
				}
			}
		}
	}
}

// HashTables are the hash tables that a port needs: the number of slots of each. Ports with the same endpoints share a
// table; with affinity, no port shares one.
func (p *Port) HashTables() map[string]int {
	if p.Method != SourceHash {
		return nil
	}
	out := map[string]int{}
	for i, endpoints := range [2][]Endpoint{p.Cluster, p.Local} {
		switch {
		case len(endpoints) == 0:
		case p.Affinity > 0:
			out[fmt.Sprint(p.Family, " ", p.Name, " ", i)] = int(maglevSize(len(endpoints)))
		default:
			list, _ := withoutPorts(endpoints)
			key := newHashKey(list)
			out[string(key[:])] = int(maglevSize(len(endpoints)))
		}
	}
	return out
}

// The program.

const hashTablePrefix = "table-"

func (d draw) hashTableChain() string { return hashTablePrefix + d.String() }

// hashedRules find the table of the pool in the scratch number. A packet whose pool changed its class at this moment
// takes the first slot of the pool.
func (p program) hashedRules(c class) []rule {
	return []rule{
		{setScratch(mapHashTables, masked(poolMask)), goTo(c.hashTableChain())},
		{p.dnat(mapEndpoints, masked(poolMask), p.drawn(draw{Random, 1}))},
	}
}

// hashTableChain translates by the table in the scratch number. The last two rules are for a packet whose table gets
// smaller at this moment.
func (p program) hashTableChain(d draw) chainDef {
	var rules []rule
	for _, d := range []draw{d, {Random, 1}} {
		rules = append(rules,
			rule{p.dnatToPort(key{masked(tableMask), p.drawn(d)}, key{masked(portMask)})},
			rule{p.dnat(mapEndpoints, masked(tableMask), p.drawn(d))})
	}
	return chainDef{name: d.hashTableChain(), rules: rules}
}

// portRegister holds a target port. Neither a key nor an address reaches it.
const portRegister = firstRegister + 4

// dnatToPort translates to the address of a slot and to a target port.
func (p program) dnatToPort(slot, port key) statement {
	exprs := append(protocolsLookup(), slot.lookup(mapHashSlots, true, firstRegister, false)...)
	exprs = append(exprs, port[0].load(portRegister)...)
	exprs = append(exprs, &expr.Lookup{
		SourceRegister: portRegister, SetName: mapTargetPorts, IsDestRegSet: true, DestRegister: portRegister,
	}, &expr.NAT{
		Type: expr.NATTypeDestNAT, Family: uint32(p.family), RegAddrMin: firstRegister, RegProtoMin: portRegister,
	})
	return statement{
		text: fmt.Sprintf("meta l4proto { tcp, udp, sctp } dnat to %s map @%s:%s map @%s", slot, mapHashSlots, port,
			mapTargetPorts),
		exprs: exprs, protocols: true,
	}
}

func (p program) hashSlotsMap() setDef {
	return setDef{
		key: []dataType{typeClassID, typeInteger}, data: []dataType{p.addrType()},
		typeof: &typeofDef{
			text: "meta priority . numgen random mod 65536 : " + p.family.String() + " daddr",
			key:  []typeofExpr{typeofPriority(), typeofNumgen()}, data: []typeofExpr{p.typeofDaddr()},
		},
	}
}
