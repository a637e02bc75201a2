package mirror

import (
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/chains"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Contents is what one family's table is to have for service ports: a mirror of the kernel's table after the latest
// transaction, in compact form. From it, the engine finds what a change needs, and can write everything again. Each part
// owns its data, and writes its own elements.
type Contents struct {
	family   program.Family
	settings settings
	Ports    ServicePorts
	Chains   chains.InUse
	slots    slotWriter
	hash     hashing.Tables
	Shared   sharedSets
}

func New(f program.Family, affinityShare uint32) *Contents {
	return &Contents{
		family: f, settings: settings{affinityShare: affinityShare}, Ports: ServicePorts{byName: map[string]*port{}}, Chains: chains.New(), hash: hashing.NewTables(),
		Shared: newSharedSets(),
	}
}

// Program is the table's program under the globals that are wanted.
func (c *Contents) Program() program.Program { return c.settings.program(c.family, c.Chains.Lengths) }

// Set adds or changes a port. It returns what the port gets less than it asked for.
func (c *Contents) Set(w program.Writer, want *contents.Port) Shortfall {
	var short Shortfall
	fits := fit(want, c.tablesInUse(want.Name), c.Chains.Exact, &short)
	p := c.port(w, &fits)
	if p.number == 0 {
		fits = withoutNumber(fits)
		short.add("all %d service port numbers of the family are in use; the port is served as soon as one is free, "+
			"and refuses its clients until then", program.MaxPorts-1)
	}
	c.Ports.noteWaiting(p, want, &fits)
	c.update(w, p, &fits)
	if n, holder := c.Shared.answers.update(&p.answering, &fits); n > 0 {
		short.add("%d endpoints are listed by other ports, too, the first by %s; what they send first in connections of this port that "+
			"began at another balancer does not reach the client", n, holder)
	}
	p.was = ""
	return short
}

// tablesInUse counts the hash tables that are in a port's way. A port that has one keeps one: until a transaction ends, tables that
// are replaced count, too, so such ports may go beyond the limit by half.
func (c *Contents) tablesInUse(name string) int {
	n := c.hash.Count()
	if p := c.Ports.byName[name]; p != nil && (p.pools[0].hash.HasTable() || p.pools[1].hash.HasTable()) {
		n -= program.MaxTables / 2
	}
	return n
}

// update changes a port to what the program can serve.
func (c *Contents) update(w program.Writer, p *port, want *contents.Port) {
	p.ordinals.update(w, &p.identity, want)
	for i, endpoints := range [2][]contents.Endpoint{want.Cluster, want.Local} {
		class := program.NewClass(want.Method, slotsOf(want.Method, endpoints), want.Affinity, i == 1)
		if want.KeepsPorts() {
			class = class.KeepPort()
		}
		c.updatePool(w, p, &p.pools[i], class, endpoints)
	}
	p.localIPs = c.Shared.updateHairpin(p.localIPs, want)
	c.updateFrontends(w, p, want)
}

// port finds the state of a port, or makes a new one. A port whose protocol changes is a new port.
func (c *Contents) port(w program.Writer, want *contents.Port) *port {
	c.Ports.rename(want.Formerly, want.Name)
	if p := c.Ports.byName[want.Name]; p != nil && p.protocol != want.Protocol {
		c.remove(w, p)
	}
	return c.Ports.get(want.Name, want.Protocol)
}

// Delete removes a port. An unknown name changes nothing.
func (c *Contents) Delete(w program.Writer, name string) {
	if p := c.Ports.byName[name]; p != nil {
		c.remove(w, p)
	}
}

func (c *Contents) remove(w program.Writer, p *port) {
	c.update(w, p, &contents.Port{})
	c.Shared.answers.update(&p.answering, &contents.Port{})
	c.Ports.drop(p)
}

// updatePool changes a pool to the wanted endpoints and class.
func (c *Contents) updatePool(w program.Writer, p *port, pl *poolState, to program.Class, endpoints []contents.Endpoint) {
	from, id := pl.class, c.Chains.Acquire(w, to, c.Program)
	if from.Hashed() || to.Hashed() {
		c.updateHash(p, pl, to, endpoints)
	}
	c.slots.update(w, p, pl, to, endpoints)
	if from != to || pl.classID != id || p.was != "" {
		p.writePool(w, pl, pl.classID, id)
	}
	c.Chains.Release(from)
	pl.class, pl.classID = to, id
}

func (c *Contents) updateHash(p *port, pl *poolState, to program.Class, endpoints []contents.Endpoint) {
	if pl.hash == nil {
		pl.hash = hashing.NewPool(pl.number)
	}
	pl.hash.Name(p.name, p.was != "")
	if !to.Hashed() {
		endpoints = nil
	}
	c.hash.Update(pl.hash, endpoints)
}

// Unwritten reports whether hash tables have changed since the last transaction.
func (c *Contents) Unwritten() bool { return c.hash.Unwritten() }

// updateFrontends changes the port's frontends and source ranges to the wanted ones.
func (c *Contents) updateFrontends(w program.Writer, p *port, want *contents.Port) {
	old := p.frontends
	if p.was == "" && slices.Equal(old.list, want.Frontends) && slices.Equal(old.sources, want.Sources) {
		return
	}
	p.updateFrontends(w, frontends{slices.Clone(want.Frontends), slices.Clone(want.Sources)})
	c.Shared.countClusterIPs(want.Frontends, 1)
	c.Shared.countClusterIPs(old.list, -1)
	c.Chains.Lengths |= p.frontends.lengths(c.family)
}

// SetGlobals notes the wanted globals. It reports whether the rules change with them.
func (c *Contents) SetGlobals(g contents.Globals) (otherRules bool) {
	before := c.Program()
	c.settings.set(g)
	return c.Program() != before
}

// WriteShared writes the elements that belong to no service port, or that several service ports share.
func (c *Contents) WriteShared(w program.Writer) {
	c.settings.write(w)
	c.hash.Write(w)
	c.Shared.write(w)
}

// DeletePiece deletes the next slots of hash tables that no pool has, and returns how many.
func (c *Contents) DeletePiece(w program.Writer, most int) int { return c.hash.DeletePiece(w, most) }

// Leaving reports whether there are hash tables that no pool has.
func (c *Contents) Leaving() bool { return c.hash.Leaving() }

// TakeRetired returns how many slots of hash tables have begun to leave since the last call, by the service port that had
// them last.
func (c *Contents) TakeRetired() map[string]int { return c.hash.TakeRetired() }

// RetireClasses deletes the chains of classes that no pool has used for long, and of all unused ones if a service port
// waits for their timeouts.
func (c *Contents) RetireClasses(w program.Writer) {
	c.Chains.Retire(w, c.Ports.waiting.timeouts.any())
}

// AllChains are all chains of the table, by name.
func (c *Contents) AllChains() map[string]program.Chain { return c.Chains.All(c.Program()) }

// HasAffinity reports whether clients may have affinity entries in the kernel.
func (c *Contents) HasAffinity() bool {
	return c.Ports.earlier.haveAffinity() || c.Chains.HaveTokens()
}

// TakeWaiting returns the names of ports for which there is room, and of those whose endpoints answer for another port or do so
// no longer. They no longer wait.
func (c *Contents) TakeWaiting() []string {
	return append(c.Ports.takeWaiting(c.Chains.Room()), c.Shared.answers.takeAgain()...)
}

// AddLengths writes the chains that new source ranges need. They count as written, whatever becomes of the transaction:
// after an error, everything is compared.
func (c *Contents) AddLengths(w program.Writer) {
	c.Chains.AddLengths(w, c.Program())
	c.Chains.NoteLengths()
}

// NoteApplied notes that the kernel has what it is to have.
func (c *Contents) NoteApplied() {
	c.Chains.NoteLengths()
	c.Chains.Preferred = nil
	c.hash.Prefer(nil)
	c.Ports.forgetEarlier()
}

// ForgetSpares forgets the chains that nothing needs any more.
func (c *Contents) ForgetSpares() {
	c.Chains.ForgetSpares()
	for _, p := range c.Ports.byName {
		c.Chains.Lengths |= p.frontends.lengths(c.family)
	}
}

// Rewrite writes all elements except those of the map that leads to chains, as for an empty table. Service ports come in
// order of their numbers: two builds of the same state are equal. Hash tables of the image that no pool has are written,
// too, and leave later. Without an image, nothing of the kernel stays.
func (c *Contents) Rewrite(w program.Writer, im *Image) {
	ports := c.Ports.sorted()
	reserve(w, ports)
	for _, p := range ports {
		p.write(w)
	}
	c.settings.rewrite()
	c.hash.Rewrite(hashedPools(ports))
	c.keepTables(w, im)
	c.Shared.rewrite(w)
	c.WriteShared(w)
}

// Adopt gives the ports, classes and hash tables to come the numbers and slots that an earlier process left. Without an
// image, only tokens are known.
func (c *Contents) Adopt(im *Image, tokens []EarlierToken) {
	if im != nil {
		c.Chains.Preferred = im.Classes
		c.hash.Prefer(im.Hashed)
	}
	c.Ports.keepEarlier(readEarlier(c.family, im, tokens))
}
