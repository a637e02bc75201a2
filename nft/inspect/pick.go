package inspect

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// Pick is how the program picks the endpoint of a connection.
type Pick struct {
	Chain    string // of the class
	Pool     string // the number of the pool, in nft syntax
	Local    bool   // it is a local pool
	Method   program.Method
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
	c, ok := program.ParseClass(chain)
	if !ok {
		return fmt.Errorf("the chain %s is not known", chain)
	}
	number := w.scratch & program.PoolMask
	p := &Pick{
		Chain: chain, Pool: rule.NumberText(number), Local: number&program.LocalBit != 0, Method: c.Method, Affinity: c.Affinity,
	}
	w.out.Fate, w.out.Pick = Translated, p
	var err error
	switch {
	case c.Affinity > 0:
		err = w.pickSticky(p, c, number)
	case c.Hashed():
		err = w.pickHashed(p, c, number)
	case c.Method.Hashes():
		if slot, certain := w.drawnSlot(c); certain {
			err = w.view.pickSlot(p, program.Addresses, number, slot)
		}
	}
	if err == nil {
		err = w.view.listCandidates(p, c, number)
	}
	if err == nil && p.Local {
		err = w.view.findLeftOut(p, number)
	}
	p.keepPort(w.packet.DstPort)
	return err
}

// drawnSlot is the slot that the client gets for certain, if the class hashes clients.
func (w *walker) drawnSlot(c program.Class) (slot uint32, certain bool) {
	client := w.packet.Src.AsSlice()
	switch {
	case c.Method == program.SourceHash:
	case c.Method == program.SourcePortHash && w.packet.SrcPort != 0:
		client = append(binary.BigEndian.AppendUint16(client, w.packet.SrcPort), 0, 0) // a register is a word
	default:
		return 0, false
	}
	return hashBelow(client, c.Size), true
}

// keepPort gives endpoints without a port that of the packet, which keeps it.
func (p *Pick) keepPort(port uint16) {
	keep := func(at *netip.AddrPort) {
		if at.IsValid() && at.Port() == 0 {
			*at = netip.AddrPortFrom(at.Addr(), port)
		}
	}
	keep(&p.Chosen)
	for i := range p.Candidates {
		keep(&p.Candidates[i].Addr)
	}
	for i := range p.LeftOut {
		keep(&p.LeftOut[i])
	}
}

// pickSticky follows the client's affinity entry. Without an entry, source hashing still decides.
func (w *walker) pickSticky(p *Pick, c program.Class, number uint32) error {
	v, client := w.view, w.packet.Src.AsSlice()
	share := v.program.AffinityShare
	if share == 0 {
		share = program.DefaultAffinityShare
	}
	entry, _, err := v.has(program.Affinity.Name(), func(b *program.Builder) { b.Word(number & program.GroupMask); b.Word(hashBelow(client, share)) })
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
	drawn, certain := w.drawnSlot(c)
	if !certain {
		return nil
	}
	slot, _, err := v.has(program.StickySlots.Name(), func(b *program.Builder) { b.Word(number); b.Word(drawn) })
	if err != nil || !slot.Found {
		return err
	}
	chosen, look, err := v.token(slot.Number, number)
	p.Chosen, p.Because = chosen, []Look{slot, look}
	return err
}

// token is the endpoint of a token in a pool. In a local pool it has another token (see recall).
func (v *view) token(token, number uint32) (netip.AddrPort, Look, error) {
	key := func(b *program.Builder) { b.Word(token ^ number&program.LocalBit) }
	look, data, err := v.has(program.StickyEndpoints.Name(), key)
	if err == nil && !look.Found {
		look, data, err = v.has(program.StickyAddresses.Name(), key)
	}
	if err != nil || !look.Found {
		return netip.AddrPort{}, look, err
	}
	return v.endpoint(data), look, nil
}

func (v *view) endpoint(data []byte) netip.AddrPort {
	at, _ := program.EndpointOf(v.family, data)
	return at
}

// pickHashed finds the client's slot in the hash table of the pool.
func (w *walker) pickHashed(p *Pick, c program.Class, number uint32) error {
	v := w.view
	slot, certain := w.drawnSlot(c)
	if !certain {
		return nil
	}
	table, _, err := v.has(program.HashTables.Name(), func(b *program.Builder) { b.Word(number) })
	if err != nil || !table.Found {
		return err
	}
	port, set := uint16(table.Number&program.PortMask), program.HashSlots
	if port == 0 {
		set = program.Endpoints
	}
	err = v.pickSlot(p, set, table.Number&program.TableMask, slot)
	if p.Chosen.IsValid() {
		p.Because = append([]Look{table}, p.Because...)
		p.Chosen = netip.AddrPortFrom(p.Chosen.Addr(), max(port, p.Chosen.Port()))
	}
	return err
}

// pickSlot chooses the endpoint in a slot of a map.
func (v *view) pickSlot(p *Pick, set program.SetID, number, slot uint32) error {
	look, data, err := v.has(set.Name(), func(b *program.Builder) { b.Word(number); b.Word(slot) })
	if err == nil && look.Found {
		p.Chosen, p.Because = v.endpoint(data), []Look{look}
	}
	return err
}

// listCandidates reads the slots of the pool.
func (v *view) listCandidates(p *Pick, c program.Class, number uint32) error {
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

func (v *view) slots(c program.Class, number uint32) ([]netip.AddrPort, error) {
	l := newLister(v.kernel, v.family, kernel.Existing{}, nil)
	switch {
	case c.Method.Hashes() && c.Size > maxTableRead:
		return nil, nil
	case c.Hashed():
		return l.tableSlots(number, c)
	}
	return l.slots(number, c)
}

// slotText is the element of a slot in a pool without affinity and without a hash table.
func (v *view) slotText(c program.Class, number uint32, slot int, at netip.AddrPort) string {
	if c.Affinity > 0 || c.Hashed() {
		return ""
	}
	d := v.defs[c.Slots().Name()]
	var b program.Builder
	b.Word(number)
	b.Word(uint32(slot))
	key := len(b.Arena)
	b.Addr(at.Addr())
	if !c.SamePort {
		b.Port(at.Port())
	}
	return elementText(&d, kernel.Found{Key: b.Arena[:key], Data: b.Arena[key:]})
}

// findOnNode asks which endpoints are on this node: the set hairpin has them.
func (v *view) findOnNode(p *Pick) error {
	if len(p.Candidates) > maxOnNode {
		return nil
	}
	for i := range p.Candidates {
		a := p.Candidates[i].Addr.Addr()
		look, _, err := v.has(program.Hairpin.Name(), func(b *program.Builder) { b.Addr(a); b.Addr(a) })
		if err != nil {
			return err
		}
		p.Candidates[i].OnNode = look.Found
	}
	return nil
}

// findLeftOut compares the local pool with the cluster pool of the service port, if the kernel has that one.
func (v *view) findLeftOut(p *Pick, number uint32) error {
	number &= program.GroupMask
	l := newLister(v.kernel, v.family, kernel.Existing{}, nil)
	if err := v.readClassOf(l, number); err != nil {
		return err
	}
	c, ok := l.classes[l.classOf[number]]
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

// jhash is the kernel's hash of the same name (linux/jhash.h) for a client: one word or more, but not a multiple of three.
func jhash(client []byte, seed uint32) uint32 {
	const initial = 0xdeadbeef
	a := uint32(initial) + uint32(len(client)) + seed
	b, c := a, a
	for ; len(client) > 12; client = client[12:] {
		word := func(i int) uint32 { return binary.NativeEndian.Uint32(client[4*i:]) }
		a, b, c = jhashMix(a+word(0), b+word(1), c+word(2))
	}
	if len(client) > 4 {
		b += binary.LittleEndian.Uint32(client[4:])
	}
	return jhashFinal(a+binary.LittleEndian.Uint32(client), b, c)
}

func jhashMix(a, b, c uint32) (uint32, uint32, uint32) {
	rol := bits.RotateLeft32
	a = (a - c) ^ rol(c, 4)
	c += b
	b = (b - a) ^ rol(a, 6)
	a += c
	c = (c - b) ^ rol(b, 8)
	b += a
	a = (a - c) ^ rol(c, 16)
	c += b
	b = (b - a) ^ rol(a, 19)
	a += c
	c = (c - b) ^ rol(b, 4)
	b += a
	return a, b, c
}

func jhashFinal(a, b, c uint32) uint32 {
	rol := bits.RotateLeft32
	c = (c ^ b) - rol(b, 14)
	a = (a ^ c) - rol(c, 11)
	b = (b ^ a) - rol(a, 25)
	c = (c ^ b) - rol(b, 16)
	a = (a ^ c) - rol(c, 4)
	b = (b ^ a) - rol(a, 14)
	c = (c ^ b) - rol(b, 24)
	return c
}

// hashBelow is what the expression "jhash ... mod n" of the program yields for a client.
func hashBelow(client []byte, n uint32) uint32 {
	return uint32(uint64(jhash(client, rule.HashSeed)) * uint64(n) >> 32)
}
