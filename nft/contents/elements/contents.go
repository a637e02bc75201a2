package elements

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/chains"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Contents is what one family's table is to have for service ports. Its elements are in the ledger, which knows which of them the
// kernel has.
type Contents struct {
	*ledger.Ledger
	family   program.Family
	settings settings
	Ports    ServicePorts
	Chains   chains.InUse
	slots    slotting
	Hash     hashing.Tables
	answers  answers
	builder  ledger.Builder
	Later    *later
}

// New returns the contents of a table without service ports. The program has what is given, whatever the globals are.
func New(f program.Family, given program.Program) *Contents {
	l := ledger.New(f, comment)
	c := &Contents{
		Ledger: l, family: f, Ports: newServicePorts(f, l), Chains: chains.New(l), Hash: hashing.NewTables(l), answers: newAnswers(l),
	}
	c.settings = settings{account: l.Ranges, given: given}
	c.Later = newLater()
	l.Changed = c.Later.note
	return c
}

// Program is the table's program under the globals that are wanted.
func (c *Contents) Program() program.Program { return c.settings.program(c.family, c.Chains.Lengths) }

// Set adds or changes a port, or has the change wait. It returns what the port gets less than it asked for. New chains go to the
// transaction at once.
func (c *Contents) Set(w program.Writer, want *contents.Port) Shortfall {
	c.rename(w, want)
	if one := c.postpone(want, false); one != nil {
		return one.short
	}
	short := c.set(w, want)
	c.enter(w)
	return short
}

func (c *Contents) set(w program.Writer, want *contents.Port) Shortfall {
	var short Shortfall
	fits := fit(want, c.tablesInUse, c.Chains.Exact, &short)
	p := c.port(w, &fits)
	if p.number == 0 {
		fits = withoutNumber(fits)
		short.add("all %d service port numbers of the family are in use; the port is served as soon as one is free, "+
			"and refuses its clients until then", program.MaxPorts-1)
	}
	c.Ports.noteWaiting(p, want, &fits)
	c.update(w, p, &fits)
	if n, holder := c.answers.update(&p.answering, &fits); n > 0 {
		short.add("%d endpoints are listed by other ports, too, the first by %s; what they send first in connections of this port that "+
			"began at another balancer does not reach the client", n, holder)
	}
	return short
}

// tablesInUse counts the hash tables that are in a port's way. A port that has one keeps one: until a transaction ends, tables that
// are replaced count, too, so such ports may go beyond the limit by half.
func (c *Contents) tablesInUse(name string) int {
	n := c.Hash.Count()
	if c.Ports.byName[name].hasTable() {
		n -= program.MaxTables / 2
	}
	return n
}

// update changes a port to what the program can serve.
func (c *Contents) update(w program.Writer, p *port, want *contents.Port) {
	c.Later.changes += eachPort
	b := &c.builder
	b.Reset()
	before := p.ordinals.list // the tokens of the slots that are there
	p.ordinals.update(want)
	b.Run(p.ordinals.records(&p.identity))
	var slots ledger.Records
	for i, endpoints := range [2][]contents.Endpoint{want.Cluster, want.Local} {
		class := classOf(want, endpoints, i == 1)
		pl := &p.pools[i]
		id := c.Chains.Acquire(w, class, c.Program)
		if pl.class.Hashed() || class.Hashed() {
			pl.updateHash(&c.Hash, p.account, class, endpoints)
		}
		slots = c.slots.update(slots, p, pl, class, endpoints, before)
		c.Chains.Release(pl.class)
		pl.class, pl.classID = class, id
		pl.records(b)
	}
	b.Run(slots)
	p.frontendRecords(b, c.family, want)
	hairpinRecords(b, want)
	c.Chains.Lengths |= lengths(c.family, want)
	c.Want(p.account, b.Records())
	c.slots.keep(slots)
}

// classOf is the class of a pool of a port.
func classOf(want *contents.Port, endpoints []contents.Endpoint, local bool) program.Class {
	class := program.NewClass(want.Method, slotsOf(want.Method, endpoints), want.Affinity, local)
	if want.KeepsPorts() {
		class = class.KeepPort()
	}
	return class
}

// rename gives a port the name that is wanted. What it was to become before does not matter any more.
func (c *Contents) rename(w program.Writer, want *contents.Port) {
	if c.Ports.byName[want.Formerly] != nil {
		c.enter(w, c.Later.ports[want.Name]) // it may wait to be deleted
	}
	if c.Ports.byName[want.Name] == nil {
		c.Later.forget(want.Formerly)
		c.Ports.rename(want.Formerly, want.Name)
	}
}

// port finds the state of a port, or makes a new one. A port whose protocol changes is a new port.
func (c *Contents) port(w program.Writer, want *contents.Port) *port {
	if p := c.Ports.byName[want.Name]; p != nil && p.protocol != want.Protocol {
		c.remove(w, p)
	}
	return c.Ports.get(want.Name, want.Protocol)
}

// Delete removes a port, or has that wait. An unknown name changes nothing.
func (c *Contents) Delete(w program.Writer, name string) {
	p := c.Ports.byName[name]
	if p == nil {
		c.Later.forget(name)
		return
	}
	if c.postpone(&contents.Port{Name: name, Protocol: p.protocol}, true) == nil {
		c.remove(w, p)
		c.enter(w)
	}
}

func (c *Contents) remove(w program.Writer, p *port) {
	c.update(w, p, &contents.Port{})
	c.answers.update(&p.answering, &contents.Port{})
	c.Ports.drop(p)
}

// SetGlobals notes the wanted globals. It reports whether the rules change with them.
func (c *Contents) SetGlobals(g contents.Globals) (otherRules bool) {
	before := c.Program()
	c.settings.wanted = g
	c.OfferBy(c.settings.devices)
	return c.Program() != before
}

// OfferBy notes the devices that the flowtable has. Only connections by two of them are offered to it.
func (c *Contents) OfferBy(devices []string) {
	c.settings.devices = devices
	c.settings.records(&c.builder, c.family)
	c.Want(c.settings.account, c.builder.Records())
}

// Finish completes what is wanted, once all changes of a transaction are known: hash tables, and classes that nothing needs. The
// chains that go are in the transaction.
func (c *Contents) Finish(w program.Writer) {
	c.Hash.Finish()
	c.Chains.Retire(w, c.Ports.waiting.timeouts.any())
	c.Later.begin()
}

// HasAffinity reports whether clients may have affinity entries in the kernel.
func (c *Contents) HasAffinity() bool {
	return c.Ports.earlier.haveAffinity() || c.Chains.HaveTokens()
}

// TakeWaiting returns the names of ports for which there is room, of those whose endpoints answer for another port or do so
// no longer, and of those that waited and got something else than Set said. They no longer wait.
func (c *Contents) TakeWaiting() []string {
	return slices.Concat(c.Ports.takeWaiting(c.Chains.Room()), c.answers.takeAgain(), c.Later.takeUnlike())
}

// NoteApplied notes that the kernel has what it is to have.
func (c *Contents) NoteApplied() {
	c.Settle()
	c.Chains.NoteLengths()
	c.Chains.Preferred = nil
	c.Hash.Prefer(nil)
	c.Hash.TakePaid() // nobody pays for a transaction that has everything
	c.Ports.forgetEarlier()
}

// ForgetSpares forgets the chains and hash tables that nothing needs any more.
func (c *Contents) ForgetSpares() {
	c.Chains.ForgetSpares()
	c.Hash.ForgetIdle()
	c.Each((*ledger.Account).Wanted, func(_ *ledger.Account, r *ledger.Record) {
		if r.Set == program.AllowedSources {
			c.Chains.Lengths |= program.GroupOf(lengthOf(r.Key))
		}
	})
}

// Guard protects addresses. It reports whether the family has some of them that were not protected.
func (c *Contents) Guard(addrs []netip.Addr) (fresh bool) {
	for _, a := range addrs {
		if program.FamilyOf(a) == c.family && !c.Has(program.IPVSAddresses, a.AsSlice()) {
			c.Put(program.IPVSAddresses, a.AsSlice(), nil)
			fresh = true
		}
	}
	return fresh
}

// Unguard ends the protection of addresses.
func (c *Contents) Unguard(addrs []netip.Addr) {
	for _, a := range addrs {
		if program.FamilyOf(a) == c.family {
			c.Drop(program.IPVSAddresses, a.AsSlice())
		}
	}
}

// Adopt gives the ports, classes and hash tables to come the numbers and slots that an earlier process left. Without an
// image, only tokens are known.
func (c *Contents) Adopt(im *Image, tokens []EarlierToken) {
	if im != nil {
		c.Chains.Preferred = im.Classes
		c.Hash.Prefer(im.Hashed)
	}
	c.Ports.keepEarlier(readEarlier(c.family, im, tokens))
}
