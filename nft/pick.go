package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Pick is how the program picks the endpoint of a connection.
type Pick struct {
	Chain    string // of the class
	Pool     string // the number of the pool, in nft syntax
	Local    bool   // it is a local pool
	Method   Method
	Affinity time.Duration // 0: none

	// Candidates are the endpoints that a connection can get, sorted by address. Slots is their share of the total.
	Candidates []Candidate
	// Chosen is the endpoint that this client gets for certain: by a hash of its address, or by its affinity entry. If
	// it is not valid, chance or the turn decides.
	Chosen netip.AddrPort
	// Because is the look-up that leads to the chosen endpoint, in order.
	Because []Look
	// Entry is the client's affinity entry, if there is one. Stale: its endpoint has left the pool, so the program
	// deletes the entry and picks another endpoint.
	Entry *Look
	Stale bool
	// LeftOut are endpoints of the cluster pool that the local pool does not have.
	LeftOut []netip.AddrPort
}

// Candidate is an endpoint of a pool.
type Candidate struct {
	Addr    netip.AddrPort
	Slots   int
	Element string // the element that leads to it from its first slot; "": not read
	OnNode  bool   // it is on this node; only if the pool has at most maxOnNode endpoints
}

// maxOnNode is the largest number of endpoints for which a Pick says which ones are on this node.
const maxOnNode = 256

// maxTableRead is the largest hash table that a Pick reads to list its endpoints.
const maxTableRead = 4093

// pick follows the chain of a class.
func (w *walker) pick(chain string) error {
	c, ok := parseClass(chain)
	if !ok {
		return fmt.Errorf("the chain %s is not known", chain)
	}
	number := w.scratch & poolMask
	p := &Pick{
		Chain: chain, Pool: classID(number), Local: number&localBit != 0, Method: c.method, Affinity: c.affinity,
	}
	w.out.Fate, w.out.Pick = Translated, p
	client := w.packet.Src.AsSlice()
	var err error
	switch {
	case c.affinity > 0:
		err = w.view.pickSticky(p, c, number, client)
	case c.hashed():
		err = w.view.pickHashed(p, c, number, client)
	}
	if err == nil {
		err = w.view.listCandidates(p, c, number)
	}
	if err == nil && p.Local {
		err = w.view.findLeftOut(p, number)
	}
	return err
}

// pickSticky follows the client's affinity entry. Without an entry, source hashing still decides.
func (v *view) pickSticky(p *Pick, c class, number uint32, client []byte) error {
	share := v.program.affinityShare
	if share == 0 {
		share = defaultAffinityShare
	}
	entry, _, err := v.has(mapAffinity, func(b *builder) { b.word(number & groupMask); b.word(hashBelow(client, share)) })
	if err != nil {
		return err
	}
	if entry.Found {
		p.Entry = &entry
		chosen, look, err := v.token(entry.Number, number)
		if err != nil {
			return err
		}
		if p.Stale = !chosen.IsValid(); !p.Stale {
			p.Chosen, p.Because = chosen, []Look{entry, look}
			return nil
		}
	}
	if c.method != SourceHash {
		return nil
	}
	slot, _, err := v.has(mapStickySlots, func(b *builder) { b.word(number); b.word(hashBelow(client, c.size)) })
	if err != nil || !slot.Found {
		return err
	}
	chosen, look, err := v.token(slot.Number, number)
	p.Chosen, p.Because = chosen, []Look{slot, look}
	return err
}

// token is the endpoint of a token in a pool. In a local pool it has another token (see recall).
func (v *view) token(token, number uint32) (netip.AddrPort, Look, error) {
	look, data, err := v.has(mapStickyEndpoints, func(b *builder) { b.word(token ^ number&localBit) })
	if err != nil || !look.Found {
		return netip.AddrPort{}, look, err
	}
	return v.endpoint(data), look, nil
}

func (v *view) endpoint(data []byte) netip.AddrPort {
	l := lister{family: v.family}
	if list := l.appendEndpoint(nil, data); len(list) == 1 {
		return list[0]
	}
	return netip.AddrPort{}
}

// pickHashed finds the client's slot in the hash table of the pool.
func (v *view) pickHashed(p *Pick, c class, number uint32, client []byte) error {
	table, _, err := v.has(mapHashTables, func(b *builder) { b.word(number) })
	if err != nil || !table.Found {
		return err
	}
	port, slot := uint16(table.Number&portMask), hashBelow(client, c.size)
	set := mapHashSlots
	if port == 0 {
		set = mapEndpoints
	}
	look, data, err := v.has(set, func(b *builder) { b.word(table.Number & tableMask); b.word(slot) })
	if err != nil || !look.Found {
		return err
	}
	p.Because = []Look{table, look}
	if port == 0 {
		p.Chosen = v.endpoint(data)
		return nil
	}
	addr, _ := netip.AddrFromSlice(data[:min(len(data), v.family.addrLen())])
	p.Chosen = netip.AddrPortFrom(addr, port)
	return nil
}

// listCandidates reads the slots of the pool.
func (v *view) listCandidates(p *Pick, c class, number uint32) error {
	slots, err := v.slots(c, number)
	if err != nil {
		return err
	}
	first := map[netip.AddrPort]int{}
	for i, at := range slots {
		if _, seen := first[at]; !seen {
			first[at] = i
		}
	}
	for _, e := range countSlots(slices.Clone(slots)) {
		p.Candidates = append(p.Candidates, Candidate{
			Addr: e.Addr, Slots: e.Slots, Element: v.slotText(c, number, first[e.Addr], e.Addr),
		})
	}
	if len(slots) == 0 && p.Chosen.IsValid() {
		p.Candidates = []Candidate{{Addr: p.Chosen}} // the hash table is too large to list it
	}
	return v.findOnNode(p)
}

func (v *view) slots(c class, number uint32) ([]netip.AddrPort, error) {
	l := newLister(v.kernel, v.family, existing{}, nil)
	switch {
	case c.method == SourceHash && c.size > maxTableRead:
		return nil, nil
	case c.hashed():
		return l.tableSlots(number, c)
	}
	return l.slots(number, c)
}

// slotText is the element of a slot in a pool without affinity and without a hash table.
func (v *view) slotText(c class, number uint32, slot int, at netip.AddrPort) string {
	if c.affinity > 0 || c.hashed() {
		return ""
	}
	d := v.defs[mapEndpoints]
	var b builder
	b.word(number)
	b.word(uint32(slot))
	key := len(b.arena)
	b.addr(at.Addr())
	b.port(at.Port())
	return elementText(&d, foundElement{key: b.arena[:key], data: b.arena[key:]})
}

// findOnNode asks which endpoints are on this node: the set hairpin has them.
func (v *view) findOnNode(p *Pick) error {
	if len(p.Candidates) > maxOnNode {
		return nil
	}
	for i := range p.Candidates {
		a := p.Candidates[i].Addr.Addr()
		look, _, err := v.has(setHairpin, func(b *builder) { b.addr(a); b.addr(a) })
		if err != nil {
			return err
		}
		p.Candidates[i].OnNode = look.Found
	}
	return nil
}

// findLeftOut compares the local pool with the cluster pool of the service port, if the kernel has that one.
func (v *view) findLeftOut(p *Pick, number uint32) error {
	number &= groupMask
	found, data, err := v.has(mapPools, func(b *builder) { b.word(number) })
	if err != nil || !found.Found || len(data) != 4 {
		return err
	}
	_, chain, err := v.has(mapDispatch, func(b *builder) { b.word(binary.NativeEndian.Uint32(data) & classMask) })
	if err != nil {
		return err
	}
	c, ok := parseClass(string(chain))
	if !ok {
		return nil
	}
	all, err := v.slots(c, number)
	if err != nil {
		return err
	}
	for _, e := range countSlots(all) {
		if !slices.ContainsFunc(p.Candidates, func(o Candidate) bool { return o.Addr == e.Addr }) {
			p.LeftOut = append(p.LeftOut, e.Addr)
		}
	}
	return nil
}
