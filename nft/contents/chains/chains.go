// Package chains owns the chains that service ports need beside the fixed ones.
package chains

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
)

// spareClasses is how many classes without a pool are kept. A service port that gains and loses an endpoint again and
// again does not create and delete chains each time.
const spareClasses = 16

// InUse owns the chains that service ports need beside the fixed ones: those of classes, and those of groups of
// prefix lengths. It numbers the classes. Their number is bounded (elements/limits.go), so there is always a number for one more.
type InUse struct {
	ledger  *ledger.Ledger
	entries map[program.Class]*classEntry
	byID    map[uint32]program.Class
	last    uint32 // number
	clock   uint64 // counts releases; the spare class that was released first is removed first
	spares  int
	// Preferred are numbers of an earlier process. Classes get them again, and no other classes do.
	Preferred map[uint32]program.Class
	// Exact counts the classes of each affinity timeout that is not a rung. The spare ones count, too.
	Exact map[time.Duration]int
	// tokenDraws are the draws that have a token chain, for session affinity. These chains stay.
	tokenDraws map[program.Draw]bool

	Lengths       program.LengthGroups // of source ranges, that have a chain; these chains stay, too
	lengthsBefore program.LengthGroups // the same as of the latest transaction
}

type classEntry struct {
	id       uint32
	users    int
	released uint64
}

// New returns the chains of the classes that every table has.
func New(l *ledger.Ledger) InUse {
	c := InUse{
		ledger: l, entries: map[program.Class]*classEntry{}, byID: map[uint32]program.Class{}, Exact: map[time.Duration]int{},
		tokenDraws: map[program.Draw]bool{},
	}
	for size := range program.ExactDraws {
		c.acquire(program.NewClass(program.Random, size+1, 0, false))
	}
	return c
}

// Acquire adds a user to a class, and creates the chains of a new class.
func (c *InUse) Acquire(w program.Writer, class program.Class, p func() program.Program) uint32 {
	if class.Empty() {
		return 0
	}
	id, fresh := c.acquire(class)
	if fresh {
		c.add(w, p(), class)
	}
	return id
}

// acquire adds a user to a class and returns the number of the class. If fresh is true, the caller creates its chain.
func (c *InUse) acquire(class program.Class) (id uint32, fresh bool) {
	if e := c.entries[class]; e != nil {
		if e.users++; e.users == 1 && !class.Permanent() {
			c.spares--
		}
		return e.id, false
	}
	id = c.number(class)
	c.entries[class] = &classEntry{id: id, users: 1}
	c.byID[id] = class
	c.ledger.Put(program.Dispatch, dispatchKey(id), []byte(class.ChainName()))
	if class.Affinity != 0 && !IsRung(class.Affinity) {
		c.Exact[class.Affinity]++
	}
	return id, true
}

// number finds a number for a new class.
func (c *InUse) number(class program.Class) uint32 {
	for id, is := range c.Preferred {
		if is == class && c.byID[id] == (program.Class{}) {
			return id
		}
	}
	return contents.NextNumber(&c.last, 1, program.MaxClasses, func(id uint32) bool {
		return c.byID[id] != (program.Class{}) || c.Preferred[id] != (program.Class{})
	})
}

// Release removes a user from a class.
func (c *InUse) Release(class program.Class) {
	if class.Empty() {
		return
	}
	e := c.entries[class]
	c.clock++
	e.released = c.clock
	if e.users--; e.users == 0 && !class.Permanent() {
		c.spares++
	}
}

// collect forgets spare classes, except for a number to keep, and returns them: the caller deletes their chains.
func (c *InUse) collect(keep int) []retired {
	if c.spares <= keep {
		return nil
	}
	gone := make([]retired, 0, c.spares)
	for class, e := range c.entries {
		if e.users == 0 && !class.Permanent() {
			gone = append(gone, retired{class: class, id: e.id, released: e.released})
		}
	}
	slices.SortFunc(gone, func(a, b retired) int { return cmp.Compare(a.released, b.released) })
	gone = gone[:len(gone)-keep]
	for _, r := range gone {
		c.forget(r.class, r.id)
	}
	return gone
}

type retired struct {
	class    program.Class
	id       uint32
	released uint64
}

func (c *InUse) forget(class program.Class, id uint32) {
	delete(c.byID, id)
	delete(c.entries, class)
	c.ledger.Drop(program.Dispatch, dispatchKey(id))
	c.spares--
	if c.Exact[class.Affinity]--; c.Exact[class.Affinity] <= 0 {
		delete(c.Exact, class.Affinity)
	}
}

// add creates the chains of a class.
func (c *InUse) add(w program.Writer, p program.Program, of program.Class) {
	if of.Affinity > 0 && !c.tokenDraws[of.Draw] {
		c.tokenDraws[of.Draw] = true
		w.AddChain(p.TokenChain(of.Draw))
	}
	if of.Hashed() {
		w.AddChain(p.TableChain(of.Draw))
	}
	w.AddChain(p.ClassChain(of))
}

// dispatchKey is the key of a class in the map that leads to the chains of classes.
func dispatchKey(id uint32) []byte {
	return binary.NativeEndian.AppendUint32(nil, id<<program.PoolBits)
}

// Room is how many more timeouts there may be that are not rungs.
func (c *InUse) Room() int { return ExactTimeouts - len(c.Exact) }

// HaveTokens reports whether there are chains for session affinity.
func (c *InUse) HaveTokens() bool { return len(c.tokenDraws) > 0 }

// NoteLengths notes that the kernel has the chains of all groups.
func (c *InUse) NoteLengths() { c.lengthsBefore = c.Lengths }

// Rewrite writes the fixed chains and all others, as for an empty table.
func (c *InUse) Rewrite(w program.Writer, p program.Program) {
	fixed := p.Chains()
	for _, chain := range fixed {
		w.Do(program.Operation{Kind: program.AddChain, Name: chain.Name, Chain: &chain})
	}
	for _, d := range slices.SortedFunc(maps.Keys(c.tokenDraws), program.CompareDraws) {
		w.AddChain(p.TokenChain(d))
	}
	for _, id := range slices.Sorted(maps.Keys(c.byID)) {
		c.add(w, p, c.byID[id])
	}
	for _, chain := range fixed {
		w.AddRules(chain)
	}
}

// All are all chains of the table, by name.
func (c *InUse) All(p program.Program) map[string]program.Chain {
	list := map[string]program.Chain{}
	for _, chain := range p.Chains() {
		list[chain.Name] = chain
	}
	for d := range c.tokenDraws {
		list[d.TokenChainName()] = p.TokenChain(d)
	}
	for of := range c.entries {
		list[of.ChainName()] = p.ClassChain(of)
		if of.Hashed() {
			list[of.TableChainName()] = p.TableChain(of.Draw)
		}
	}
	return list
}

// Retire deletes the chains of classes that no pool has used for long; all: those of all classes without a pool.
func (c *InUse) Retire(w program.Writer, all bool) {
	keep := spareClasses
	if all {
		keep = 0
	}
	for _, gone := range c.collect(keep) {
		w.DoAfterwards(program.Operation{Kind: program.DeleteChain, Name: gone.class.ChainName()})
	}
}

// ForgetSpares forgets the classes that no pool uses, the token chains that only these classes needed, and all prefix
// lengths.
func (c *InUse) ForgetSpares() {
	c.Lengths, c.lengthsBefore = 0, 0
	c.collect(0)
	clear(c.tokenDraws)
	for of := range c.entries {
		if of.Affinity > 0 {
			c.tokenDraws[of.Draw] = true
		}
	}
}

// NewLengths reports whether there are groups of lengths whose chains are not in the kernel.
func (c *InUse) NewLengths() bool { return c.Lengths&^c.lengthsBefore != 0 }

// AddLengths writes the chains of groups that are new. They come in a transaction of their own, before the elements that
// need them: a packet in a chain keeps to the rules of the generation in which it entered, but looks elements up as of
// now. It would miss a range whose group has no rule yet, and be dropped. They count as written, whatever becomes of the
// transaction: after an error, everything is compared.
func (c *InUse) AddLengths(w program.Writer, p program.Program) {
	if p.Lengths &^= c.lengthsBefore; p.Lengths == 0 {
		return
	}
	for _, chain := range p.GroupChains() {
		w.AddChain(chain)
	}
	p.Lengths = c.Lengths
	w.Do(program.Operation{Kind: program.FlushRules, Name: program.SourceRangesChain})
	w.AddRules(p.SourceRanges())
	c.NoteLengths()
}

// ExactTimeouts is how many different affinity timeouts a family's table has beside the rungs. Each timeout may need a
// class for each draw and pool, and a new class costs more the more classes there are, because the kernel validates the
// graph of chains: 0.2 ms with 34 classes, 2.4 ms with 1,000, 16 ms with 3,800 (at 10,000 services). So a tenant that
// changes its timeout with each update costs the others little.
const ExactTimeouts = 8

// RungCount is the number of rungs.
const RungCount = 6

// rungs are the timeouts that are always available, in order. The default of Kubernetes and its maximum are among them.
func rungs() [RungCount]time.Duration {
	return [...]time.Duration{
		time.Minute, 10 * time.Minute, time.Hour, 3 * time.Hour, 12 * time.Hour, 24 * time.Hour,
	}
}

func IsRung(timeout time.Duration) bool {
	list := rungs()
	return slices.Contains(list[:], timeout)
}

// RungFor is the shortest rung that is at least as long, or the longest rung.
func RungFor(timeout time.Duration) time.Duration {
	list := rungs()
	at, _ := slices.BinarySearch(list[:], timeout)
	return list[min(at, len(list)-1)]
}
