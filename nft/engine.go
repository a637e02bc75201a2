package nft

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/elements"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/table"
)

// Engine keeps both tables equal to the ports and globals that it was given. Set, Delete and SetGlobals collect
// changes. Apply gives them to the kernel as one transaction (send.go has the exception: large tables that do not
// exist yet). Only one goroutine may use an engine.
//
// Each table has a ledger of what is wanted and what the kernel has. If the kernel refuses a transaction, the next Apply writes
// both tables as a whole. If a transaction gets lost, the next Apply finds out what the kernel has, and writes what differs. So no
// change is lost.
type Engine struct {
	sender
	pending
	recheck table.Recheck
}

// Options configure an engine.
type Options struct {
	// NetNS is a file descriptor of the network namespace to work in; 0: the present one. It must stay open as long as
	// the engine is used: Watch and Repair open sockets of their own.
	NetNS int
	// Families to serve; empty: both. A kernel without IPv6 (ipv6.disable=1) refuses the chains of an ip6 table.
	Families []program.Family
	// AffinitySize is the number of entries of each family's affinity map; 0: 2^20. When the map is full, further
	// clients are served without affinity. A map that an earlier process left gets this size (Linux 6.5 and newer).
	AffinitySize uint32
	// AffinityShare is how many entries one service port may have; 0: 2^14. Beyond it, clients share entries. So a
	// flood of forged addresses to one Service does not fill the map. An earlier process's entries count only if it had
	// the same share.
	AffinityShare uint32
	// Owner makes the engine the owner of its tables, if the kernel can (6.9 and newer).
	Owner bool
	// Circles is set if packets may circle between this node and its router: Open finds out whether the kernel sees them.
	Circles bool
	// Instance is the number in the stamps of the tables; 0: a random one.
	Instance uint32
	// Piece is how many changes a transaction has in each table, from which on further service ports wait for the next one; 0: none
	// wait.
	Piece int
}

// Piece is the Options.Piece of a process that must not keep others waiting.
const Piece = 1000

// Open connects to the kernel and reads what an earlier process left. It changes nothing. What fails is tried again for 5
// seconds, but only five times in a row if the process may not do it.
func Open(o Options) (e *Engine, err error) {
	err = kernel.Retry(func() error {
		e, err = open(o)
		return err
	})
	return e, err
}

func open(o Options) (*Engine, error) {
	c, err := kernel.Dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	if o.Owner {
		o.Owner, err = c.SupportsOwner()
	}
	sees, seesErr := c.SeesCircles()
	if err = errors.Join(err, seesErr); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	o.Circles = o.Circles || !sees
	e, err := New(c, o)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return e, nil
}

// New returns an engine over a kernel that need not be that of this host. It reads what an earlier process left there.
func New(k kernel.NFTables, o Options) (*Engine, error) {
	e := newEngine(k, o)
	return e, e.tables.Adopt(k)
}

// newEngine makes an engine that writes everything at its first Apply.
func newEngine(k kernel.NFTables, o Options) *Engine {
	e := &Engine{
		sender:  sender{conn: k, instance: cmp.Or(o.Instance, table.NewInstance())},
		pending: pending{mode: unplanned, tx: &program.Transaction{}, piece: o.Piece},
	}
	for _, f := range program.Families() {
		if len(o.Families) == 0 || slices.Contains(o.Families, f) {
			e.tables = append(e.tables, table.New(f, o.AffinitySize, program.Program{AffinityShare: o.AffinityShare, Circles: o.Circles}, o.Owner))
		}
	}
	return e
}

// Empty reports whether the kernel has no table of an earlier process. An error counts as one.
func (e *Engine) Empty() bool {
	return !slices.ContainsFunc(e.tables, func(tb *table.Table) bool {
		was, err := e.conn.SurveyTable(tb.Family)
		return was.Table || err != nil
	})
}

// Watch starts to listen to commits of others, in the namespace of the engine. What happened before is not reported.
func (e *Engine) Watch() (*kernel.Watcher, error) {
	c, ok := e.conn.(*kernel.Conn)
	if !ok {
		return nil, errors.New("watch nf_tables: the engine is not over a socket")
	}
	return c.Watch()
}

// Close closes the socket. The tables stay.
func (e *Engine) Close() error { return e.conn.Close() }

// Set adds or changes a service port. It always does so. The error names the limits of the program that the port has
// met, and what is served instead (contents/elements/limits.go). Where the limit is one that all ports share, Result.Room
// names the port when there is room.
func (e *Engine) Set(p *contents.Port) error {
	var short elements.Shortfall
	if e.plan(); e.tables.In(p.Family) != nil { // ports of other families are ignored
		e.collect(p.Family, func(c *elements.Contents, w program.Writer) { short = c.Set(w, p) })
	}
	if len(short) > 0 {
		return fmt.Errorf("set service port %s (%s): %s", p.Name, p.Family, strings.Join(short, "; "))
	}
	return nil
}

// Delete removes a service port. An unknown name changes nothing.
func (e *Engine) Delete(f program.Family, name string) {
	if e.tables.In(f) != nil {
		e.collect(f, func(c *elements.Contents, w program.Writer) { c.Delete(w, name) })
	}
}

// collect collects a change of a service port. New chains are in the transaction at once.
func (e *Engine) collect(f program.Family, change func(*elements.Contents, program.Writer)) {
	e.tables.In(f).Want.Later.Limit(e.most())
	change(e.tables.In(f).Want, e.tx.For(f))
	e.collected = true
	e.discard()
}

// SetGlobals replaces the globals. They concern all service ports, so the next transaction has everything.
func (e *Engine) SetGlobals(g contents.Globals) {
	e.plan()
	e.collected, e.whole = true, true
	for _, tb := range e.tables {
		if tb.Want.SetGlobals(g) {
			e.distrust() // the rules themselves change
		}
	}
	e.discard()
}

// Listing prints what the tables are to have, as nft lists it. To the engine, the kernel has that from now on.
func (e *Engine) Listing() string {
	t := &program.Transaction{}
	for _, tb := range e.tables {
		tb.Build(t.For(tb.Family), kernel.Existing{})
		tb.Repaired()
	}
	e.tables.WriteStamps(t, e.instance, true, families{true, true})
	return t.Listing()
}

// SetElements is how many elements a set or map has. A range counts as two.
type SetElements struct {
	Family   program.Family
	Set      program.SetID
	Elements int
	Limit    int // below so many elements, nothing is left out for lack of room; 0: only memory bounds them
}

// mapLimit is the Limit of a map. A service port has up to two pools, and pools share hash tables, so a map may have more
// elements.
func mapLimit(set program.SetID) int {
	switch set {
	case program.Pools:
		return program.MaxPorts - 1
	case program.HashTables:
		return program.MaxTables
	}
	return 0
}

// Elements counts the elements of each set and map, except the affinity map. Any goroutine may call it.
func (e *Engine) Elements() []SetElements {
	list := make([]SetElements, 0, len(e.tables)*int(program.SetCount))
	for _, tb := range e.tables {
		for id := range program.SetCount {
			if !tb.Defs[id].Dynamic {
				list = append(list, SetElements{Family: tb.Family, Set: id, Elements: tb.Counts.Of(id), Limit: mapLimit(id)})
			}
		}
	}
	return list
}

// CanOwn reports whether Options asked for ownership, and the kernel has tables with an owner.
func (e *Engine) CanOwn() bool { return e.tables[0].Owner.Wanted }

// Inherited reports whether an earlier process served a frontend, with a pool or with IPVS. An address and port may also be
// those of a node port. Inherited asks the kernel for this one frontend, because a dump of all of them is slow. After the
// first Apply the answer is always false.
func (e *Engine) Inherited(f program.Family, protocol uint8, addr netip.Addr, port uint16) (bool, error) {
	if tb := e.tables.In(f); tb == nil || !tb.Want.Ports.Inherit() {
		return false, nil
	}
	fe := contents.Frontend{Addr: addr, Port: port}
	var b program.Builder
	b.Frontend(addr, port, 0, protocol)
	for _, id := range elements.ServedIn(&fe) {
		_, found, err := e.conn.Lookup(f, id, b.Arena)
		if err != nil {
			return false, fmt.Errorf("look up frontend %s port %d in table %s %s: %w", addr, port, f, program.TableName, err)
		}
		if found {
			return true, nil
		}
	}
	if !addr.IsValid() {
		return false, nil
	}
	_, isNodes, err := e.conn.Lookup(f, program.NodePortAddresses, addr.AsSlice())
	if err != nil {
		return false, fmt.Errorf("look up node-port address %s in table %s %s: %w", addr, f, program.TableName, err)
	}
	if !isNodes {
		return false, nil
	}
	return e.Inherited(f, protocol, netip.Addr{}, port)
}

// pending are the changes that the next Apply makes.
type pending struct {
	mode      mode
	tx        *program.Transaction // the collected changes of chains; the ledgers have those of elements
	collected bool                 // something is wanted that was not wanted at the last Apply
	whole     bool                 // the next Apply makes all changes at once
	piece     int                  // as in Options
}

// most is how many changes the next transaction has, from which on others wait; 0: it has all of them.
func (p *pending) most() int {
	if p.mode != synced || p.whole {
		return 0
	}
	return p.piece
}

// settled reports whether the engine knows what the kernel has, and no changes wait for the next Apply.
func (p *pending) settled() bool {
	return p.mode == synced && !p.collected
}

// mode is what the engine knows of the kernel, and so what the next Apply does.
type mode uint8

const (
	// synced: the ledgers are right. Apply sends what is pending.
	synced mode = iota
	// unplanned: an engine that starts does not know yet what the tables are to have.
	unplanned
	// comparing: the kernel may have anything. Apply compares everything with it, and writes the difference.
	comparing
	// replacing: the kernel refused a transaction, or it was too large to send. Apply writes everything, whatever the kernel
	// has.
	replacing
	// remaking: the kernel refused to replace what is in the tables. Apply deletes them, and affinity with them.
	remaking
)

// distrust has the next Apply compare everything.
func (p *pending) distrust() {
	if p.mode == synced {
		p.mode = comparing
	}
	p.discard()
}

// plan notes that the engine begins to learn what the tables are to have.
func (p *pending) plan() {
	if p.mode == unplanned {
		p.mode = comparing
	}
}

// discard forgets the collected changes if the next Apply does not send them.
func (p *pending) discard() {
	if p.mode != synced {
		p.tx.Reset()
	}
}

// Guard protects addresses before they become local for IPVS: from now on, clients reach only frontends there. Guard
// sends its own transaction and does not wait for Apply, because an address must never be local without its guard. If
// there is no table yet that can protect the addresses, Guard returns false, and they are protected after the next
// Apply.
func (e *Engine) Guard(addrs []netip.Addr) (bool, error) {
	ready := true
	for _, tb := range e.tables {
		if !tb.Want.Guard(addrs) && e.mode == synced {
			continue
		}
		if e.mode != synced { // the kernel's elements are unknown
			there, err := tb.HasGuards(e.conn)
			if err != nil {
				return false, err
			}
			ready = ready && there
		}
	}
	if !ready {
		e.distrust()
		return false, nil
	}
	t := &program.Transaction{}
	for _, tb := range e.tables {
		tb.WriteGuards(t.For(tb.Family), addrs, e.mode == synced)
	}
	if t.Empty() {
		return true, nil
	}
	if err := e.sendApart(t, e.mode == synced); err != nil {
		e.distrust()
		return false, fmt.Errorf("guard %d addresses of IPVS: %w; the next transaction compares everything with the kernel",
			len(addrs), err)
	}
	for _, tb := range e.tables {
		if e.mode == synced {
			tb.Guarded()
		}
	}
	return true, nil
}

// Unguard ends the protection of addresses that are no longer local. The next Apply does it.
func (e *Engine) Unguard(addrs []netip.Addr) {
	for _, tb := range e.tables {
		tb.Want.Unguard(addrs)
	}
}
