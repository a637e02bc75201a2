package nft

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// Engine keeps both tables equal to the ports and globals that it was given. Set, Delete and SetGlobals collect
// changes. Apply gives them to the kernel as one transaction (parts.go has the exception: large tables that do not
// exist yet). Only one goroutine may use an engine.
//
// The engine keeps a mirror of everything it was asked for. If the kernel refuses a transaction, the next Apply writes both
// tables as a whole from the mirror. If a transaction gets lost, the next Apply writes what differs. So no change is lost.
type Engine struct {
	conn    kernel
	tables  [2]*table
	active  []*table // of the families that the engine serves
	tx      *Transaction
	first   *Transaction // goes to the kernel before tx
	batch   batch
	planned bool // the engine knows what the tables are to have
	rebuild bool // the next Apply compares everything with the kernel, or writes everything
	// afresh: the kernel refused the transaction, or it was too large to send. The next Apply writes everything, whatever
	// the kernel has.
	afresh bool
	// startOver: the kernel refused to replace what is in the tables. The next Apply deletes them, and affinity with
	// them.
	startOver bool
	refusal   bool     // the kernel refused the latest transaction, and not for want of memory
	unnamed   uint32   // the message with an element that the kernel refused and did not name; 0: none
	whole     families // tables that the transaction writes as a whole, and not by a difference
	fresh     bool     // there were no tables when the transaction was prepared
	applies   uint64   // counts transactions, to notice a port that changes twice in one
	instance  uint32   // in the stamps of the tables
	netns     int      // as in Options
	counts    counts
	looks     []*look // what is left to look at since the kernel dropped events; empty: nothing
	lookAgain bool    // the kernel dropped events since that began
	changed   map[PortID]int
}

// kernel is what the engine needs of nf_tables: a netlink socket (conn), or a model in memory (memoryKernel). Tests
// inject faults between the engine and its kernel.
type kernel interface {
	// send applies a batch as a whole, or nothing of it.
	send(*batch) (Outcome, *nlmsg.Ack, error)
	// capacity is the size of the largest batch that send takes, in bytes.
	capacity() int
	readable
	// survey reads what exists of our table, without elements.
	survey(f Family) (existing, error)
	// readSet begins to read a set or map. Other requests can come between its parts.
	readSet(f Family, set string) (setReader, error)
	// surveyTable reads only whether there is a table, and of which layout.
	surveyTable(f Family) (existing, error)
	close() error
}

// Options configure an engine.
type Options struct {
	// NetNS is a file descriptor of the network namespace to work in; 0: the present one. It must stay open as long as
	// the engine is used: Watch and Repair open sockets of their own.
	NetNS int
	// Families to serve; empty: both. A kernel without IPv6 (ipv6.disable=1) refuses the chains of an ip6 table.
	Families []Family
	// AffinitySize is the number of entries of each family's affinity map; 0: 2^20. When the map is full, further
	// clients are served without affinity. A map that an earlier process left gets this size (Linux 6.5 and newer).
	AffinitySize uint32
	// AffinityShare is how many entries one service port may have; 0: 2^14. Beyond it, clients share entries. So a
	// flood of forged addresses to one Service does not fill the map. An earlier process's entries count only if it had
	// the same share.
	AffinityShare uint32
	// Owner makes the engine the owner of its tables, if the kernel can (6.9 and newer).
	Owner bool
	// Instance is the number in the stamps of the tables; 0: a random one.
	Instance uint32
}

// Open connects to the kernel and reads what an earlier process left. It changes nothing. What fails is tried again for 5
// seconds, but only five times in a row if the process may not do it.
func Open(o Options) (e *Engine, err error) {
	err = persist(func() error {
		e, err = open(o)
		return err
	})
	return e, err
}

func open(o Options) (*Engine, error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	if o.Owner {
		if o.Owner, err = c.supportsOwner(); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	e := newEngine(c, o)
	if err := e.inherit(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return e, nil
}

// newEngine makes an engine that writes everything at its first Apply.
func newEngine(k kernel, o Options) *Engine {
	e := &Engine{conn: k, tables: [2]*table{newTable(IPv4), newTable(IPv6)}, tx: &Transaction{}, rebuild: true, netns: o.NetNS,
		instance: cmp.Or(o.Instance, newInstance())}
	for _, tb := range e.tables {
		if len(o.Families) == 0 || slices.Contains(o.Families, tb.family) {
			e.active = append(e.active, tb)
		}
		tb.owner = o.Owner
		if o.AffinitySize > 0 {
			tb.defs[idAffinity].size = o.AffinitySize
		}
		tb.affinityShare = o.AffinityShare
	}
	return e
}

// serves reports whether the engine has a table for the family. It ignores ports of other families.
func (e *Engine) serves(f Family) bool { return slices.Contains(e.active, e.tables[f.index()]) }

func (e *Engine) inherit() error {
	for _, tb := range e.active {
		if err := tb.inherit(e.conn); err != nil {
			return fmt.Errorf("read table %s %s: %w", tb.family, TableName, err)
		}
	}
	return nil
}

// Close closes the socket. The tables stay.
func (e *Engine) Close() error { return e.conn.close() }

// Set adds or changes a service port. It always does so. The error names the limits of the program that the port has
// met, and what is served instead (limits.go). Where the limit is one that all ports share, Retry names the port when
// there is room. A port should change once between two calls of Apply. After a second change, the next Apply writes
// everything: the transaction holds differences from the kernel's state, and not from the first change.
func (e *Engine) Set(p *Port) error {
	if e.planned = true; !e.serves(p.Family) {
		return nil
	}
	tb := e.tables[p.Family.index()]
	e.tx.unread = e.rebuild
	old, before := tb.ports[p.Name], e.tx.size()
	short := tb.set(e.tx, p)
	e.countChange(PortID{p.Family, p.Name}, e.tx.size()-before)
	e.noteChange(old)
	if now := tb.ports[p.Name]; now != old {
		e.noteChange(now)
	}
	e.discardIfRebuilding()
	if len(short) > 0 {
		return fmt.Errorf("set service port %s (%s): %s", p.Name, p.Family, strings.Join(short, "; "))
	}
	return nil
}

// Delete removes a service port. An unknown name changes nothing.
func (e *Engine) Delete(f Family, name string) {
	tb := e.tables[f.index()]
	e.tx.unread = e.rebuild
	before := e.tx.size()
	e.noteChange(tb.ports[name])
	tb.delete(e.tx, name)
	e.countChange(PortID{f, name}, e.tx.size()-before)
	e.discardIfRebuilding()
}

func (e *Engine) noteChange(p *port) {
	if p == nil {
		return
	}
	if p.changed == e.applies+1 {
		e.rebuild = true
	}
	p.changed = e.applies + 1
}

// SetGlobals replaces the globals.
func (e *Engine) SetGlobals(g Globals) {
	e.planned = true
	for _, tb := range e.active {
		if tb.globals.program(tb.family) != g.program(tb.family) {
			e.rebuild = true // the rules themselves change
		}
		tb.setGlobals(g)
	}
	e.discardIfRebuilding()
}

// discardIfRebuilding discards the collected changes if the next Apply writes the whole mirror.
func (e *Engine) discardIfRebuilding() {
	if e.rebuild {
		e.tx.reset()
	}
}

// Result is what an Apply did.
type Result struct {
	Outcome Outcome
	Full    bool          // it does not depend on earlier transactions: everything was compared, or written
	Added   int           // elements that were added
	Deleted int           // elements that were deleted
	Bytes   int           // size of the batch
	Kernel  time.Duration // time in the system call that carries the batch
	// Changed counts the elements that single service ports changed, of those with many. Ports that were set or deleted
	// before everything was written count nothing.
	Changed map[PortID]int
	More    bool // there is more to look at; see Repair
	// Room names the service ports that got less than they asked for, and for which there is room. The caller Sets them
	// again.
	Room []PortID
	// Text prints the transaction in nft syntax. It is valid until the next call of a method of the engine.
	Text func() string
	// Head prints its first changes of elements, one line each. It stays valid after a transaction that was sent, and
	// keeps that transaction in memory. Any goroutine may call it.
	Head func(most int) []string
}

// Apply gives all collected changes to the kernel. If the outcome is not Applied, the error says why, and the next
// Apply compares everything with the kernel, or writes it. Without changes, Apply sends nothing.
func (e *Engine) Apply() (Result, error) {
	r, err := e.apply()
	if r.Outcome == Applied {
		r.Room = e.room()
	}
	return r, err
}

func (e *Engine) apply() (Result, error) {
	full := e.rebuild
	e.planned = true
	err := e.prepare()
	r := Result{Full: full, Changed: e.takeChanged(), Text: e.tx.String, Head: e.tx.head}
	if first, tx := e.first, e.tx; first != nil {
		r.Text = func() string { return first.String() + tx.String() }
	}
	if err != nil {
		r.Outcome = Rejected
		return r, err
	}
	r.Added, r.Deleted = e.tx.Elements()
	if e.tx.Empty() && !e.rebuild { // otherwise the table gets the stamp of this engine
		e.applies++
		return r, nil
	}
	e.refusal = false
	err = e.commit(&r)
	e.rebuild = r.Outcome != Applied
	// Without a refusal, the difference is enough: the transaction got lost, or the kernel had no memory, and the
	// difference needs less of it than everything. But it may be larger, and too large for the send buffer.
	e.afresh = e.rebuild && (e.refusal || errors.Is(err, unix.EMSGSIZE))
	var one *RefusedError // then only one service port is in the way
	e.startOver = e.whole.any() && r.Outcome == Rejected && e.refusal && !errors.As(err, &one)
	if r.Outcome == Applied {
		e.applied(full)
	}
	e.tx = &Transaction{}
	e.applies++
	e.batch.shrink()
	return r, err
}

func (e *Engine) applied(full bool) {
	for _, tb := range e.active {
		if whole := e.whole.has(tb.family); !full || whole {
			e.counts.note(e.tx, tb.family, whole)
		}
	}
	if full {
		_ = e.endLook() // everything was compared; the socket of a list only fails to close if it is closed
	}
	for _, tb := range e.active {
		tb.lengthsBefore = tb.lengths
		if full && !e.whole.has(tb.family) {
			e.counts.store(tb.family, &tb.totals)
		}
		tb.forgetInherited()
	}
}

// prepare completes the transaction: with what the collected changes leave out, or with what the kernel lacks.
func (e *Engine) prepare() error {
	e.fresh, e.whole, e.first = e.rebuild, families{}, nil
	if e.rebuild {
		e.tx.reset()
		return e.rewrite()
	}
	if err := e.writeLengths(); err != nil {
		e.rebuild = true
		return fmt.Errorf("add chains for source ranges: %w; the next transaction compares everything with the kernel", err)
	}
	for _, tb := range e.active {
		tb.writeShared(e.tx)
		tb.retireClasses(e.tx)
	}
	return nil
}

// writeLengths sends the chains that source ranges need, if they are new.
func (e *Engine) writeLengths() error {
	if !slices.ContainsFunc(e.active, func(tb *table) bool { return tb.lengths&^tb.lengthsBefore != 0 }) {
		return nil
	}
	e.first = &Transaction{}
	for _, tb := range e.active {
		tb.addLengths(e.first)
	}
	err := e.sendApart(e.first)
	for _, tb := range e.active {
		tb.lengthsBefore = tb.lengths
	}
	return err
}

// rewrite prepares a transaction after which the kernel has what the mirror has. Where it can, it writes the difference
// to what is there, and otherwise everything. A table that is gone leaves the other one alone.
func (e *Engine) rewrite() error {
	var found [2]existing
	for _, tb := range e.active {
		tb.forgetSpares()
		was, err := e.conn.survey(tb.family)
		differ := false
		if err == nil && !e.afresh {
			differ, err = tb.differs(was, e.conn)
		}
		if err != nil {
			return fmt.Errorf("read table %s %s before it is written: %w; nothing was changed", tb.family, TableName, err)
		}
		found[tb.family.index()], e.whole[tb.family.index()] = was, !differ
		e.fresh = e.fresh && !was.table
	}
	for _, tb := range e.active {
		was := found[tb.family.index()]
		was.sameLayout = was.sameLayout && !e.startOver
		if e.whole.has(tb.family) {
			tb.build(e.tx, was)
			tb.writeShared(e.tx)
		} else if err := tb.converge(e.tx, was, e.conn); err != nil {
			e.afresh = true
			return fmt.Errorf("compare table %s %s with what it is to have: %w; nothing was changed", tb.family, TableName, err)
		}
		tb.retireClasses(e.tx)
	}
	return nil
}

func (e *Engine) commit(r *Result) error {
	e.stampAll(e.tx)
	err := e.write(r)
	if r.Outcome == Applied {
		e.keepStamps()
		err = e.setFlags(r)
	}
	return err
}

func (e *Engine) write(r *Result) error {
	if e.fresh && e.tx.estimate() > e.partSize() {
		return e.commitInParts(r)
	}
	if err := e.batch.encode(e.tx); err != nil {
		r.Outcome = Rejected
		return err
	}
	err := e.send(r)
	if r.Outcome == Rejected && e.unnamed != 0 {
		err = e.nameRefused(r, err)
	}
	if r.Outcome == Unknown {
		return e.readBack(e.tx, r, err)
	}
	return err
}

// send gives the batch to the kernel.
func (e *Engine) send(r *Result) error {
	r.Bytes += len(e.batch.Buf)
	start := time.Now()
	outcome, why, err := e.conn.send(&e.batch)
	r.Kernel += time.Since(start)
	r.Outcome = outcome
	e.refusal = why != nil && !errors.Is(why.Err(), unix.ENOMEM)
	if why != nil {
		return e.refused(why, e.whole.any())
	}
	return err
}

// Cleanup deletes both tables and everything in them. It is no error if they do not exist.
//
// The rules go first, in a transaction of their own. When a table is deleted, the kernel takes its chains off their hooks
// one after the other, with their rules in force to the last. The maps have no elements by then, but the sets have: a new
// connection to a cluster IP would not be translated, and would then be refused. When rules are deleted, all chains lose
// theirs at the same time.
func Cleanup(o Options) (err error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	rules, tables := &Transaction{}, &Transaction{}
	for _, f := range Families() {
		was, err := c.surveyTable(f)
		if err != nil {
			return fmt.Errorf("read table %s %s: %w", f, TableName, err)
		}
		if was.table {
			rules.operation(operation{kind: opFlushRules, family: f})
			tables.operation(operation{kind: opDeleteTable, family: f})
		}
	}
	for _, t := range []*Transaction{rules, tables} {
		if err := c.commit(t); err != nil {
			return fmt.Errorf("delete tables %s: %w", TableName, err)
		}
	}
	return nil
}

// commit sends a transaction that no engine keeps track of.
func (c *conn) commit(t *Transaction) error {
	if t.Empty() {
		return nil
	}
	var b batch
	if err := b.encode(t); err != nil {
		return err
	}
	_, _, err := c.send(&b)
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w; %w", err, errOwned)
	}
	return err
}
