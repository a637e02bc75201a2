package inspect

import (
	"cmp"
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
	if c.Affinity > 0 {
		err = w.recall(p, number)
	}
	if slot, certain := w.drawnSlot(c); err == nil && !p.Chosen.IsValid() && certain {
		p.Because, err = w.view.noting(func() error { return p.choose(w.view.slots(number, c, slot)) })
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

// recall follows the client's affinity entry.
func (w *walker) recall(p *Pick, number uint32) error {
	v := w.view
	share := cmp.Or(v.program.AffinityShare, program.DefaultAffinityShare)
	entry, _, err := v.look(program.Affinity, words(number&program.GroupMask, hashBelow(w.packet.Src.AsSlice(), share)))
	if err != nil || !entry.Found {
		return err
	}
	p.Entry = &entry
	looks, err := v.noting(func() error { return p.choose(v.follow(number, entry.Number)) })
	p.Because = append([]Look{entry}, looks...)
	p.Stale = !p.Chosen.IsValid()
	return err
}

func (p *Pick) choose(list []netip.AddrPort, err error) error {
	if len(list) > 0 {
		p.Chosen = list[0]
	}
	return err
}

// listCandidates reads the slots of the pool.
func (v *view) listCandidates(p *Pick, c program.Class, number uint32) error {
	slots, err := v.listSlots(number, c)
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

// listSlots reads the slots of a pool whose hash table is not too large.
func (v *view) listSlots(number uint32, c program.Class) ([]netip.AddrPort, error) {
	if c.Method.Hashes() && c.Size > maxTableRead {
		return nil, nil
	}
	return v.slots(number, c)
}

// slotText is the element of a slot in a pool without affinity and without a hash table.
func (v *view) slotText(c program.Class, number uint32, slot int, at netip.AddrPort) string {
	if c.Affinity > 0 || c.Hashed() {
		return ""
	}
	var data program.Builder
	data.Addr(at.Addr())
	if !c.SamePort {
		data.Port(at.Port())
	}
	return elementText(&v.defs[c.Slots()], kernel.Found{Key: words(number, uint32(slot)), Data: data.Arena})
}

// findOnNode asks which endpoints are on this node: the set hairpin has them.
func (v *view) findOnNode(p *Pick) error {
	if len(p.Candidates) > maxOnNode {
		return nil
	}
	for i := range p.Candidates {
		c := &p.Candidates[i]
		a := c.Addr.Addr().AsSlice()
		var err error
		if _, c.OnNode, err = v.find(program.Hairpin, slices.Concat(a, a)); err != nil {
			return err
		}
	}
	return nil
}

// findLeftOut compares the local pool with the cluster pool of the service port, if the kernel has that one.
func (v *view) findLeftOut(p *Pick, number uint32) error {
	number &= program.GroupMask
	c, _, err := v.class(number)
	if err != nil || c.Empty() {
		return err
	}
	all, err := v.listSlots(number, c)
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
