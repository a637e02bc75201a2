package nft

import (
	"fmt"
	"net/netip"
	"slices"
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

	affinityShare  uint32  // as in Options
	globals        Globals // as wanted; the rules are always written for these
	written        Globals // those whose elements the latest transaction has
	globalsChanged bool

	clusterIPs refSet
	hairpin    refSet
	spare      []member                  // memory of an earlier pool, to be used again
	guarded    map[netip.Addr]bool       // addresses that are local for IPVS
	unguarded  map[netip.Addr]bool       // no longer guarded, but still in the kernel
	inherited  map[string]*inheritedPort // by name; affinity of an earlier process, until the first Apply

	owner bool // the kernel is to let no other process change the table

	stamp   stamp // in the kernel, as of the latest transaction
	coming  stamp // in the transaction that is being sent
	printed struct {
		of   program
		text string // the fingerprint of the program
	}
}

// port is the state of one service port.
type port struct {
	name        string
	number      uint32
	protocol    uint8
	frontends   []Frontend
	sources     []netip.Prefix // of the firewalled frontends
	pools       [2]pool        // cluster, local
	localIPs    []netip.Addr   // addresses of endpoints on this node, sorted
	ordinals    []ordinal      // sorted by address; only with affinity
	nextOrdinal uint32
	changed     uint64 // the latest transaction that changed it
}

func newTable(f Family) *table {
	return &table{
		family: f, defs: program{family: f}.sets(), ports: map[string]*port{},
		classes: newClassTable(), tokenDraws: map[draw]bool{},
		clusterIPs: newRefSet(), hairpin: newRefSet(), guarded: map[netip.Addr]bool{}, unguarded: map[netip.Addr]bool{},
	}
}

// numbers assigns numbers to service ports. A freed number is used again as late as possible, because the kernel may
// still have affinity entries of the port that had it.
type numbers struct {
	used map[uint32]struct{}
	next uint32
}

func (n *numbers) take() (uint32, error) {
	if len(n.used) >= maxPorts-1 {
		return 0, fmt.Errorf("all %d service port numbers of the family are in use", maxPorts-1)
	}
	for {
		n.next = (n.next + 1) % maxPorts
		if _, taken := n.used[n.next]; !taken && n.next != 0 {
			n.claim(n.next)
			return n.next, nil
		}
	}
}

func (n *numbers) claim(number uint32) {
	if n.used == nil {
		n.used = map[uint32]struct{}{}
	}
	n.used[number] = struct{}{}
}

func (n *numbers) free(number uint32) { delete(n.used, number) }

// set adds or changes a port. On error the port stays as it was, except that it loses the frontends that are not wanted
// any more.
func (tb *table) set(t *Transaction, want *Port) error {
	err := tb.replace(t, want)
	if err != nil {
		tb.dropUnwanted(t, want)
	}
	return err
}

// dropUnwanted removes the frontends that are not among the wanted ones. Another port may have them now, and the kernel
// refuses every transaction in which two ports have the same frontend. The other frontends stay as they were.
func (tb *table) dropUnwanted(t *Transaction, want *Port) {
	p := tb.ports[want.Name]
	if p == nil {
		return
	}
	if p.protocol != want.Protocol {
		tb.remove(t, p) // the protocol is a part of each frontend, so none of them is wanted
		return
	}
	type place struct {
		addr netip.Addr
		port uint16
	}
	wanted := make(map[place]bool, len(want.Frontends))
	for i := range want.Frontends {
		wanted[place{want.Frontends[i].Addr, want.Frontends[i].Port}] = true
	}
	tb.updateFrontends(t, p, slices.DeleteFunc(slices.Clone(p.frontends), func(old Frontend) bool {
		return !wanted[place{old.Addr, old.Port}]
	}), p.sources)
}

// replace adds or changes a port. On error it has changed nothing.
func (tb *table) replace(t *Transaction, want *Port) error {
	cluster, local := tb.newAssignment(want.Method, want.Cluster), tb.newAssignment(want.Method, want.Local)
	if err := checkLimits(want, cluster, local); err != nil {
		return err
	}
	p, err := tb.port(want)
	if err != nil {
		return err
	}
	classes := [2]class{
		classFor(want.Method, len(cluster.members), want.Affinity, false),
		classFor(want.Method, len(local.members), want.Affinity, true),
	}
	var ids [2]uint32
	for i, c := range classes {
		if ids[i], err = tb.acquire(t, c); err != nil {
			tb.releaseAll(classes[:i])
			tb.forgetIfNew(p)
			return err
		}
	}
	if old := tb.ports[p.name]; old != p {
		tb.remove(t, old)
		tb.ports[p.name] = p
	}
	tb.updateOrdinals(t, p, want)
	for i, wanted := range [2]assignment{cluster, local} {
		tb.updatePool(t, p, &p.pools[i], classes[i], ids[i], wanted)
	}
	tb.updateHairpin(p, want)
	tb.updateFrontends(t, p, want.Frontends, want.Sources)
	return nil
}

func checkLimits(want *Port, cluster, local assignment) error {
	if n := max(len(cluster.members), len(local.members)); n > maxSlots {
		return fmt.Errorf("%d slots are more than the %d that a pool can have", n, maxSlots)
	}
	if want.Affinity == 0 || len(want.Cluster)+len(want.Local) <= maxOrdinals {
		return nil
	}
	if n := sizeOfUnion(want.Cluster, want.Local); n > maxOrdinals {
		return fmt.Errorf("%d endpoints are more than the %d that a service port with session affinity can have",
			n, maxOrdinals)
	}
	return nil
}

// port finds the state of a port, or makes a new one. A new port with affinity gets the number that an earlier process
// gave it. A port whose protocol changes is a new port; replace exchanges the two when nothing can fail any more.
func (tb *table) port(want *Port) (*port, error) {
	if p := tb.ports[want.Name]; p != nil && p.protocol == want.Protocol {
		return p, nil
	}
	p := &port{name: want.Name, protocol: want.Protocol}
	if earlier := tb.inherited[truncateComment(want.Name)]; earlier != nil && want.Affinity > 0 {
		delete(tb.inherited, earlier.name)
		p.number, p.ordinals, p.nextOrdinal = earlier.number, earlier.ordinals, earlier.next
	} else {
		number, err := tb.numbers.take()
		if err != nil {
			return nil, err
		}
		p.number = number
	}
	p.pools[0].number, p.pools[1].number = p.number<<1, p.number<<1|localBit
	return p, nil
}

func (tb *table) forgetIfNew(p *port) {
	if tb.ports[p.name] != p {
		tb.numbers.free(p.number)
	}
}

// acquire adds a user to a class, and creates the chain of a new class.
func (tb *table) acquire(t *Transaction, c class) (uint32, error) {
	if c.empty() {
		return 0, nil
	}
	id, fresh, err := tb.classes.acquire(c)
	if fresh {
		tb.addClass(t, c, id)
	}
	return id, err
}

func (tb *table) addClass(t *Transaction, c class, id uint32) {
	if c.affinity > 0 && !tb.tokenDraws[c.draw] {
		tb.tokenDraws[c.draw] = true
		t.addChain(tb.family, tb.program().tokenDrawChain(c.draw))
	}
	t.addChain(tb.family, tb.program().classChain(c))
	t.add(tb.family, idDispatch, dispatchElement(t, c, id))
}

func dispatchElement(t *Transaction, c class, id uint32) element {
	return t.element(c.chain(), func(b *builder) { b.word(id << poolBits) }, nil)
}

func (tb *table) releaseAll(classes []class) {
	for _, c := range classes {
		if !c.empty() {
			tb.classes.release(c)
		}
	}
}

// delete removes a port. An unknown name changes nothing.
func (tb *table) delete(t *Transaction, name string) { tb.remove(t, tb.ports[name]) }

func (tb *table) remove(t *Transaction, p *port) {
	if p == nil {
		return
	}
	for i := range p.pools {
		tb.updatePool(t, p, &p.pools[i], class{}, 0, assignment{})
	}
	tb.updateOrdinals(t, p, &Port{})
	tb.updateHairpin(p, &Port{})
	tb.updateFrontends(t, p, nil, nil)
	tb.numbers.free(p.number)
	delete(tb.ports, p.name)
}

// updatePool changes a pool to the wanted endpoints and class.
func (tb *table) updatePool(t *Transaction, p *port, pl *pool, c class, id uint32, want assignment) {
	old := pl.class
	if old.affinity != c.affinity && (old.affinity == 0 || c.affinity == 0) {
		// The slots of pools with and without affinity are in different maps.
		_, changes := reassign(pl.members, nil)
		tb.writeSlots(t, p, pl, changes, old.affinity > 0)
		pl.members = nil
	}
	members, changes := want.apply(pl.members)
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
	if from != 0 {
		t.del(tb.family, idPools, t.element("", func(b *builder) { b.word(pl.number) }, nil))
	}
	if to != 0 {
		t.add(tb.family, idPools, tb.poolElement(t, p, pl, to))
	}
}

func (tb *table) poolElement(t *Transaction, p *port, pl *pool, classID uint32) element {
	label := p.name
	if pl.number&localBit != 0 {
		label += " local"
	}
	return t.element(truncateComment(label), func(b *builder) { b.word(pl.number) },
		func(b *builder) { b.word(classID<<poolBits | pl.number) })
}

func (tb *table) writeSlots(t *Transaction, p *port, pl *pool, changes []slotChange, sticky bool) {
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
	tb.clusterIPs.flush(func(ip netip.Addr, added bool) {
		tb.change(t, idClusterIPs, added, t.element("", func(b *builder) { b.addr(ip) }, nil))
	})
	tb.hairpin.flush(func(ip netip.Addr, added bool) {
		tb.change(t, idHairpin, added, t.element("", func(b *builder) { b.addr(ip); b.addr(ip) }, nil))
	})
}

// retireClasses deletes the chains of classes that no pool has used for long.
func (tb *table) retireClasses(t *Transaction) {
	for _, gone := range tb.classes.collect(spareClasses) {
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
