package nft

import (
	"net/netip"
	"slices"
	"time"
)

// table is the mirror of one family's table after the latest transaction, in compact form. From it, the engine finds
// what a change needs, and can write the whole table again.
type table struct {
	family  Family
	defs    [setCount]setDef
	ports   map[string]*port
	numbers numbers
	classes *classTable
	// tokenDraws are the draws that have a token chain, for session affinity. These chains stay.
	tokenDraws map[draw]bool

	lengths        lengthGroups // of source ranges, that have a chain; these chains stay, too
	lengthsBefore  lengthGroups // the same as of the latest transaction
	affinityShare  uint32       // as in Options
	globals        Globals      // as wanted; the rules are always written for these
	written        Globals      // those whose elements the latest transaction has
	globalsChanged bool

	clusterIPs refSet
	hairpin    refSet
	spare      []member                  // memory of an earlier pool, to be used again
	guarded    map[netip.Addr]bool       // addresses that are local for IPVS
	unguarded  map[netip.Addr]bool       // no longer guarded, but still in the kernel
	inherited  map[string]*inheritedPort // by name; ports of an earlier process, until the first Apply
	image      *image                    // what the kernel has, until the first Apply
	swept      sweep
	totals     [setCount]int // elements of each set after a difference to what the kernel had
	waiting    waiting
	hash       hashTables

	owner     bool   // the kernel is to let no other process change the table
	reflag    bool   // after the next transaction the table gets other flags
	nextFlags uint32 // these

	stamp  stamp // in the kernel, as of the latest transaction
	coming stamp // in the transaction that is being sent
	shapes struct {
		of      program
		byChain map[string]rulesShape
	}
	printed struct {
		of   program
		text string // the fingerprint of the program
	}
}

// port is the state of one service port.
type port struct {
	name        string
	number      uint32 // 0: there was none left; then the port has no pools
	protocol    uint8
	frontends   []Frontend
	sources     []netip.Prefix // of the firewalled frontends
	pools       [2]pool        // cluster, local
	localIPs    []netip.Addr   // addresses of endpoints on this node, sorted
	ordinals    []ordinal      // sorted by address; only with affinity
	nextOrdinal uint32
	changed     uint64        // the latest transaction that changed it
	waitsFor    time.Duration // the timeout that the port is to have when there is room; 0: it has what it asked for
}

func newTable(f Family) *table {
	return &table{
		family: f, defs: program{family: f}.sets(), ports: map[string]*port{},
		classes: newClassTable(), tokenDraws: map[draw]bool{}, hash: newHashTables(),
		clusterIPs: newRefSet(), hairpin: newRefSet(), guarded: map[netip.Addr]bool{}, unguarded: map[netip.Addr]bool{},
	}
}

// numbers assigns numbers to service ports. A freed number is used again as late as possible, because the kernel may
// still have affinity entries of the port that had it.
type numbers struct {
	used map[uint32]struct{}
	next uint32
}

// take returns a free number; 0: there is none.
func (n *numbers) take() uint32 {
	if n.room() == 0 {
		return 0
	}
	for {
		n.next = (n.next + 1) % maxPorts
		if _, taken := n.used[n.next]; !taken && n.next != 0 {
			n.claim(n.next)
			return n.next
		}
	}
}

// room is how many numbers are free.
func (n *numbers) room() int { return max(0, maxPorts-1-len(n.used)) }

func (n *numbers) claim(number uint32) {
	if n.used == nil {
		n.used = map[uint32]struct{}{}
	}
	n.used[number] = struct{}{}
}

func (n *numbers) free(number uint32) { delete(n.used, number) }

// set adds or changes a port. It returns what the port gets less than it asked for.
func (tb *table) set(t *Transaction, want *Port) shortfall {
	var short shortfall
	fits := tb.fit(want, &short)
	p := tb.port(t, &fits)
	if p.number == 0 {
		fits = withoutNumber(fits)
		short.add("all %d service port numbers of the family are in use; the port is served as soon as one is free, "+
			"and refuses its clients until then", maxPorts-1)
	}
	tb.noteWaiting(p, want, &fits)
	tb.update(t, p, &fits)
	return short
}

// update changes a port to what the program can serve.
func (tb *table) update(t *Transaction, p *port, want *Port) {
	tb.updateOrdinals(t, p, want)
	for i, endpoints := range [2][]Endpoint{want.Cluster, want.Local} {
		c := classFor(want.Method, slotsOf(want.Method, endpoints), want.Affinity, i == 1)
		tb.updatePool(t, p, &p.pools[i], c, endpoints)
	}
	tb.updateHairpin(p, want)
	tb.updateFrontends(t, p, want.Frontends, want.Sources)
}

// port finds the state of a port, or makes a new one. A port whose protocol changes is a new port. A port without a
// number gets one, if one is free.
func (tb *table) port(t *Transaction, want *Port) *port {
	p := tb.ports[want.Name]
	if p != nil && p.protocol != want.Protocol {
		tb.remove(t, p)
		p = nil
	}
	if p == nil {
		p = &port{name: want.Name, protocol: want.Protocol}
		tb.ports[p.name] = p
	}
	if p.number == 0 {
		tb.number(p)
	}
	return p
}

// number gives a port its number. A new port gets the number and the slots that an earlier process gave it.
func (tb *table) number(p *port) {
	if !tb.takeInherited(p) {
		p.number = tb.numbers.take()
	}
	p.pools[0].number, p.pools[1].number = p.number<<1, p.number<<1|localBit
}

// acquire adds a user to a class, and creates the chain of a new class.
func (tb *table) acquire(t *Transaction, c class) uint32 {
	if c.empty() {
		return 0
	}
	id, fresh := tb.classes.acquire(c)
	if fresh {
		tb.addClass(t, c, id)
	}
	return id
}

func (tb *table) addClass(t *Transaction, c class, id uint32) {
	if c.affinity > 0 && !tb.tokenDraws[c.draw] {
		tb.tokenDraws[c.draw] = true
		t.addChain(tb.family, tb.program().tokenDrawChain(c.draw))
	}
	if c.hashed() {
		t.addChain(tb.family, tb.program().hashTableChain(c.draw))
	}
	t.addChain(tb.family, tb.program().classChain(c))
	t.add(tb.family, idDispatch, dispatchElement(t, c, id))
}

func dispatchElement(t *Transaction, c class, id uint32) element {
	return t.element(c.chain(), func(b *builder) { b.word(id << poolBits) }, nil)
}

// delete removes a port. An unknown name changes nothing.
func (tb *table) delete(t *Transaction, name string) { tb.remove(t, tb.ports[name]) }

func (tb *table) remove(t *Transaction, p *port) {
	if p == nil {
		return
	}
	for i := range p.pools {
		tb.updatePool(t, p, &p.pools[i], class{}, nil)
	}
	tb.updateOrdinals(t, p, &Port{})
	tb.updateHairpin(p, &Port{})
	tb.updateFrontends(t, p, nil, nil)
	tb.numbers.free(p.number)
	tb.stopWaiting(p)
	delete(tb.ports, p.name)
}

// updatePool changes a pool to the wanted endpoints and class.
func (tb *table) updatePool(t *Transaction, p *port, pl *pool, c class, endpoints []Endpoint) {
	old, id := pl.class, tb.acquire(t, c)
	if old.affinity != c.affinity && (old.affinity == 0 || c.affinity == 0) {
		// The slots of pools with and without affinity are in different maps.
		_, changes := reassign(pl.members, nil)
		tb.writeSlots(t, p, pl, changes, old.affinity > 0)
		pl.members = nil
	}
	if old.hashed() || c.hashed() {
		tb.updateHashed(p, pl, c, endpoints)
	}
	if pl.earlier != nil {
		pl.members, pl.earlier = pl.earlier, nil
	}
	members, changes := tb.newAssignment(c, endpoints).apply(pl.members)
	tb.writeSlots(t, p, pl, changes, p.slotsAreTokens(old, c))
	if cap(pl.members) > cap(tb.spare) {
		tb.spare = pl.members
	}
	pl.members = members
	if old != c || pl.classID != id {
		tb.writePool(t, p, pl, pl.classID, id)
	}
	if !old.empty() {
		tb.classes.release(old)
	}
	pl.class, pl.classID = c, id
}

// slotsAreTokens reports whether the slots of a pool are in the map of tokens: by its new class, or by the old one if
// the pool becomes empty.
func (p *port) slotsAreTokens(old, c class) bool {
	if c.empty() {
		return old.affinity > 0
	}
	return c.affinity > 0
}

func (tb *table) writePool(t *Transaction, p *port, pl *pool, from, to uint32) {
	if t.unread {
		return
	}
	if from != 0 {
		t.del(tb.family, idPools, t.element("", func(b *builder) { b.word(pl.number) }, nil))
	}
	if to != 0 {
		t.add(tb.family, idPools, tb.poolElement(t, p, pl, to))
	}
}

func (tb *table) poolElement(t *Transaction, p *port, pl *pool, classID uint32) element {
	return t.element(p.label(pl), func(b *builder) { b.word(pl.number) },
		func(b *builder) { b.word(classID<<poolBits | pl.number) })
}

// label is the comment of a pool's elements.
func (p *port) label(pl *pool) string {
	if pl.number&localBit != 0 {
		return Label(p.name) + localSuffix
	}
	return Label(p.name)
}

func (tb *table) writeSlots(t *Transaction, p *port, pl *pool, changes []slotChange, sticky bool) {
	if t.unread {
		return
	}
	id := idEndpoints
	if sticky {
		id = idStickySlots
	}
	for _, c := range changes {
		if c.from == c.to {
			continue
		}
		if c.from.IsValid() {
			t.del(tb.family, id, tb.slotElement(t, p, pl, c.slot, netip.AddrPort{}, sticky))
		}
		if c.to.IsValid() {
			t.add(tb.family, id, tb.slotElement(t, p, pl, c.slot, c.to, sticky))
		}
	}
}

// slotElement is the element of a slot; without an address, only its key.
func (tb *table) slotElement(t *Transaction, p *port, pl *pool, slot uint32, addr netip.AddrPort, sticky bool) element {
	start := t.mark()
	t.word(pl.number)
	t.word(slot)
	e := element{offset: start, key: t.since(start)}
	if !addr.IsValid() {
		return e
	}
	start = t.mark()
	if sticky {
		t.word(p.token(p.ordinal(addr), 0))
	} else {
		t.addr(addr.Addr())
		t.port(addr.Port())
	}
	e.data = t.since(start)
	return e
}

// updateHairpin counts the port's endpoints on this node. Their connections to themselves need masquerading; otherwise,
// the answers do not come back through the node.
func (tb *table) updateHairpin(p *port, want *Port) {
	ips := slices.Clone(want.Hairpin)
	for _, list := range [][]Endpoint{want.Cluster, want.Local} {
		for _, e := range list {
			if e.Local {
				ips = append(ips, e.Addr.Addr())
			}
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	ips = slices.Compact(ips)
	if slices.Equal(ips, p.localIPs) {
		return
	}
	for _, ip := range ips {
		tb.hairpin.change(ip, 1)
	}
	for _, ip := range p.localIPs {
		tb.hairpin.change(ip, -1)
	}
	p.localIPs = ips
}

// writeShared writes the elements that belong to no service port, or that several service ports share.
func (tb *table) writeShared(t *Transaction) {
	tb.writeGlobals(t)
	tb.writeGuards(t)
	tb.writeHashTables(t)
	tb.clusterIPs.flush(func(ip netip.Addr, added bool) {
		tb.change(t, idClusterIPs, added, t.element("", func(b *builder) { b.addr(ip) }, nil))
	})
	tb.hairpin.flush(func(ip netip.Addr, added bool) {
		tb.change(t, idHairpin, added, t.element("", func(b *builder) { b.addr(ip); b.addr(ip) }, nil))
	})
}

// retireClasses deletes the chains of classes that no pool has used for long, and of all unused ones if a service port
// waits for their timeouts.
func (tb *table) retireClasses(t *Transaction) {
	keep := spareClasses
	if tb.waiting.timeouts.any() {
		keep = 0
	}
	for _, gone := range tb.classes.collect(keep) {
		t.del(tb.family, idDispatch, dispatchElement(t, gone.class, gone.id))
		t.afterwards(operation{kind: opDeleteChain, family: tb.family, name: gone.class.chain()})
	}
}

func (tb *table) change(t *Transaction, id setID, added bool, e element) {
	if added {
		t.add(tb.family, id, e)
	} else {
		t.del(tb.family, id, e)
	}
}

// element writes a key and data into the arena; nil: no data.
func (t *Transaction) element(label string, key, data func(*builder)) element {
	start := t.mark()
	key(&t.builder)
	e := element{offset: start, key: t.since(start), label: label}
	if data != nil {
		start = t.mark()
		data(&t.builder)
		e.data = t.since(start)
	}
	return e
}

// refSet counts the users of addresses. Between two flushes, it notes the addresses that get their first user or lose
// their last one.
type refSet struct {
	count  map[netip.Addr]int32
	before map[netip.Addr]int32
}

func newRefSet() refSet {
	return refSet{count: map[netip.Addr]int32{}, before: map[netip.Addr]int32{}}
}

func (s *refSet) change(ip netip.Addr, by int32) {
	if _, seen := s.before[ip]; !seen {
		s.before[ip] = s.count[ip]
	}
	if s.count[ip] += by; s.count[ip] == 0 {
		delete(s.count, ip)
	}
}

func (s *refSet) flush(changed func(ip netip.Addr, added bool)) {
	var differ []netip.Addr
	for ip, before := range s.before {
		if (before > 0) != (s.count[ip] > 0) {
			differ = append(differ, ip)
		}
	}
	slices.SortFunc(differ, netip.Addr.Compare) // so that equal changes make equal transactions
	for _, ip := range differ {
		changed(ip, s.count[ip] > 0)
	}
	if len(s.before) > 0 {
		// A map never shrinks, and a walk over it takes time by its size. If the map of the first pass were only
		// cleared, every later pass would take time for all cluster IPs.
		s.before = map[netip.Addr]int32{}
	}
}

func sortPrefixes(list []netip.Prefix) { slices.SortFunc(list, comparePrefixes) }
