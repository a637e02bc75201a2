package mirror

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/program"
)

// Part is some elements of one set that a table is to have.
type Part struct {
	Set   program.SetID
	Want  program.Writer // has the elements
	List  []program.Element
	Whole bool // all elements of the set
}

// Parts are all elements that a table is to have, a few at a time. The contents may change in between.
type Parts struct {
	of      *Contents
	most    int // elements of a part
	batch   portBatch
	pending []Part // of the batch

	ports  []string // names of service ports that are left
	tables []uint32 // numbers of hash tables
	slot   int      // of the first of them
	addrs  []sharedAddress
	// answering are endpoints that are left.
	answering []netip.AddrPort
	small     []program.SetID // sets that come as a whole
}

type sharedAddress struct {
	set  program.SetID
	addr netip.Addr
}

func NewParts(c *Contents, most int) *Parts {
	p := &Parts{of: c, most: most, ports: c.Ports.Names(), tables: c.hash.Numbers(), small: smallSets(),
		answering: slices.Collect(maps.Keys(c.Shared.answers.wanted)),
	}
	for _, id := range sharedIDs() {
		for _, addr := range c.Shared.addresses(id) {
			p.addrs = append(p.addrs, sharedAddress{id, addr})
		}
	}
	return p
}

// Left reports whether there may be more.
func (p *Parts) Left() bool {
	return len(p.pending)+len(p.ports)+len(p.tables)+len(p.addrs)+len(p.answering)+len(p.small) > 0
}

// Next returns the next parts, if it has some at once: to list many elements takes time, and then the caller may want to pause.
func (p *Parts) Next() []Part {
	if len(p.pending) > 0 && p.batch.outdated(p.of) {
		p.pending = p.batch.again(p.of, p.most)
	}
	if len(p.pending) > 0 {
		first := p.pending[:1]
		p.pending = p.pending[1:]
		return first
	}
	want := program.NewWriter(p.of.family)
	if len(p.ports) == 0 {
		return p.shared(want)
	}
	p.ports = p.batch.fill(p.of, want, p.ports)
	p.pending = PartsOf(want, p.most)
	return nil
}

// shared lists the next elements that are not of single service ports. None of them waits here, because nothing would tell
// that it has changed.
func (p *Parts) shared(want program.Writer) []Part {
	switch {
	case len(p.tables) > 0:
		p.listSlots(want)
	case len(p.addrs) > 0:
		n := min(p.most, len(p.addrs))
		for _, a := range p.addrs[:n] {
			p.of.Shared.List(want, a.set, a.addr)
		}
		p.addrs = p.addrs[n:]
	case len(p.answering) > 0:
		n := min(p.most, len(p.answering))
		p.of.Shared.answers.list(want, p.answering[:n]...)
		p.answering = p.answering[n:]
	case len(p.small) > 0:
		id := p.small[0]
		p.small = p.small[1:]
		p.of.listSmall(want)
		return []Part{{id, want, want.Added(id), true}}
	}
	return PartsOf(want, p.most)
}

// listSlots lists the next slots of hash tables.
func (p *Parts) listSlots(want program.Writer) {
	more := p.of.hash.List(want, p.tables[0], p.slot, p.slot+p.most)
	if p.slot += p.most; !more {
		p.tables, p.slot = p.tables[1:], 0
	}
}

// PartsOf divides the elements that a transaction adds.
func PartsOf(want program.Writer, most int) (list []Part) {
	for id := range program.SetCount {
		for elements := range slices.Chunk(want.Added(id), most) {
			list = append(list, Part{Set: id, Want: want, List: elements})
		}
	}
	return list
}

// portBatch are some service ports.
type portBatch struct {
	names    []string
	version  uint64 // of these service ports when the elements were listed
	restarts int
}

// batchSize is the smallest number of elements in a batch.
const batchSize = 1024

// maxRestarts bounds how often a batch begins again because its service ports change. The transactions of these changes
// were right, and the kernel took them.
const maxRestarts = 3

// fill lists the elements of the next service ports. It returns the names of the others.
func (b *portBatch) fill(c *Contents, want program.Writer, names []string) (rest []string) {
	n := 0
	for size := 0; n < len(names) && size < batchSize; n++ {
		c.Ports.List(want, names[n:n+1])
		size, _ = want.Elements()
	}
	*b = portBatch{names: names[:n], version: c.Ports.versionOf(names[:n])}
	return names[n:]
}

// outdated reports whether a service port has changed since its elements were listed.
func (b *portBatch) outdated(c *Contents) bool {
	return len(b.names) > 0 && c.Ports.versionOf(b.names) != b.version
}

// again lists the elements again, but not for ever.
func (b *portBatch) again(c *Contents, most int) []Part {
	if b.restarts == maxRestarts {
		return nil
	}
	want := program.NewWriter(c.family)
	c.Ports.List(want, b.names)
	b.version, b.restarts = c.Ports.versionOf(b.names), b.restarts+1
	return PartsOf(want, most)
}

// This file lists what the kernel's table is to have, as of the last transaction. To undo what another process did to
// some elements, it builds only the service ports that own them. There is no index from elements to service ports: a
// repair is rare, and to look at each port's number and frontends takes less than a microsecond.

// Owned lists all elements of small sets, all of the service ports that own one of the keys, and of the other sets those
// with these keys.
func (c *Contents) Owned(w program.Writer, keys KeysOf) {
	c.listSmall(w)
	for id, list := range keys {
		for _, key := range list {
			c.listShared(w, id, key)
		}
	}
	c.Ports.listOwners(w, keys)
}

// Everything lists all elements.
func (c *Contents) Everything(w program.Writer) {
	c.listSmall(w)
	for _, p := range c.Ports.byName {
		p.list(w)
	}
	c.hash.ListAll(w)
	for _, id := range sharedIDs() {
		c.Shared.List(w, id, c.Shared.addresses(id)...)
	}
	c.Shared.answers.list(w, slices.Collect(maps.Keys(c.Shared.answers.wanted))...)
}

// smallSets do not grow with the number of Services. The stamp is not among them.
func smallSets() []program.SetID {
	return []program.SetID{program.Dispatch, program.TargetPorts, program.NodePortAddresses, program.ServiceCIDRs, program.PodCIDRs}
}

// listSmall lists the elements of small sets.
func (c *Contents) listSmall(w program.Writer) {
	c.Chains.List(w)
	c.hash.ListPorts(w)
	c.settings.list(w)
}

// listShared lists the element with a key in a set that service ports share, if there is to be one.
func (c *Contents) listShared(w program.Writer, id program.SetID, key []byte) {
	switch id {
	case program.HashTables, program.HashSlots, program.Endpoints:
		c.hash.ListSlot(w, id, key)
	case program.Answers:
		if at, ok := program.EndpointOf(c.family, key); ok {
			c.Shared.answers.list(w, at)
		}
	default:
		if at, ok := program.EndpointOf(c.family, key); ok {
			c.Shared.List(w, id, at.Addr())
		}
	}
}
