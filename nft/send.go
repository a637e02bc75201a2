package nft

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/nft/table"
)

// Result is what an Apply did.
type Result struct {
	Outcome  kernel.Outcome
	Full     bool          // it does not depend on earlier transactions: everything was compared, or written
	Added    int           // elements that were added
	Deleted  int           // elements that were deleted
	Bytes    int           // size of the batch
	InKernel time.Duration // time in the system call that carries the batch
	// Changed counts the elements that single service ports changed. Ports that were set or deleted before everything was
	// written count nothing.
	Changed map[contents.PortID]serviceport.Counts
	Counts  serviceport.Counts // of Added and Deleted
	More    bool               // there is more to look at; see Repair
	// Waits has the Services that have begun or stopped waiting: some of their service ports are as they were, because the transaction had
	// enough without them. The next Apply goes on.
	Waits   map[string]bool
	Leaving bool // there are slots of hash tables without pools; each Apply deletes some
	// Room names the service ports that got less than they asked for, and for which there is room. The caller Sets them
	// again.
	Room []contents.PortID
	// Text prints the transaction in nft syntax. It is valid until the next call of a method of the engine.
	Text func() string
	// Head returns a function that prints its first changes of elements, one line each. That function stays valid after a
	// transaction that was sent, and any goroutine may call it.
	Head func(most int) (lines func() []string)
}

// sender gives transactions to the kernel with stamps of the tables, and knows why the kernel refused the last one.
type sender struct {
	conn     kernel.NFTables
	tables   table.Tables
	instance uint32 // in the stamps
	batch    kernel.Batch
	refusal  bool   // the kernel refused the last batch, and not for want of memory
	unnamed  uint32 // the message with an element that the kernel refused and did not name; 0: none
}

// delivery is a transaction on its way to the kernel.
type delivery struct {
	*program.Transaction
	first     *program.Transaction // went to the kernel before; nil: none
	full      bool                 // it does not depend on earlier transactions
	whole     families             // tables that it writes as a whole, and not by a difference
	fresh     bool                 // there are no tables
	inBatches bool
	// owner finds the service port that has an element; nil: it is of no use, because the transaction writes no table as a
	// whole. A smaller one may be refused because others have changed the tables.
	owner func(program.Family, program.SetID, []byte) (contents.PortID, bool)
}

// text prints the delivery in nft syntax.
func (d *delivery) text() string {
	if d.first != nil {
		return d.first.String() + d.String()
	}
	return d.String()
}

// commit sends a transaction with the next stamps.
func (s *sender) commit(d *delivery, r *Result) error {
	s.tables.WriteStamps(d.Transaction, s.instance, d.full, d.whole)
	err := s.deliver(d, r)
	if r.Outcome == kernel.Unknown && !d.inBatches {
		r.Outcome, err = s.tables.ReadBack(s.conn, d.Transaction, err)
	}
	if r.Outcome == kernel.Applied {
		s.tables.KeepStamps()
		err = s.setFlags(r)
	}
	return err
}

// sendApart sends a transaction that is not a part of the collected changes, with stamps if the present ones are known.
func (s *sender) sendApart(t *program.Transaction, known bool) error {
	if known {
		s.tables.WriteStamps(t, s.instance, false, families{})
	}
	outcome, err := kernel.SendAlone(s.conn, t)
	if outcome == kernel.Applied && known {
		s.tables.KeepStamps()
	}
	return err
}

// setFlags gives tables the flags that they are to have. That is a transaction of its own, because the kernel refuses one that
// also adds or deletes base chains (EINVAL). It comes last, so a table has the right contents when it wakes.
func (s *sender) setFlags(r *Result) error {
	if !slices.ContainsFunc(s.tables, func(tb *table.Table) bool { return tb.Owner.Reflag }) {
		return nil
	}
	d := &delivery{Transaction: &program.Transaction{}}
	s.tables.Reflag(d.Transaction)
	if err := s.deliver(d, r); err != nil {
		return fmt.Errorf("change the flags of tables, whose contents are right: %w", err)
	}
	return nil
}

// deliver gives a transaction to the kernel.
func (s *sender) deliver(d *delivery, r *Result) error {
	s.refusal = false
	if d.inBatches = d.fresh && kernel.Estimate(d.Transaction) > s.batchSize(); d.inBatches {
		return s.sendBatches(d, r)
	}
	if err := s.batch.Encode(d.Transaction); err != nil {
		r.Outcome = kernel.Rejected
		return err
	}
	err := s.send(d, r)
	if r.Outcome == kernel.Rejected && s.unnamed != 0 {
		err = s.nameRefused(d, r, err)
	}
	return err
}

// send gives the batch to the kernel.
func (s *sender) send(d *delivery, r *Result) error {
	r.Bytes += len(s.batch.Buf)
	start := time.Now()
	outcome, why, err := s.conn.Send(&s.batch)
	r.InKernel += time.Since(start)
	r.Outcome = outcome
	s.refusal = why != nil && !errors.Is(why.Err(), unix.ENOMEM)
	if why != nil {
		return s.refused(d, why)
	}
	return err
}

// Large tables that do not exist yet are written in several batches: first the sets and the chains without hooks, then
// the elements, and last the base chains. No packet reaches a table before it has base chains, so packets see it appear
// at once.
//
// Several batches are faster than one. A kernel worker enlarges the hash table of a set, and unless the kernel is
// preemptible, it does not run while the kernel processes a batch. Until it runs, each new element is compared with
// many others. At 10,000 services of 10 endpoints this took 190 of 430 ms.

// maxBatch is about the size of one of these batches, in bytes.
const maxBatch = 1 << 20

// sendBatches writes tables that do not exist yet.
func (s *sender) sendBatches(d *delivery, r *Result) error {
	unhooked, hooked := d.Split()
	if err := s.sendBatch(d, r, func(b *kernel.Batch) error { return b.Operations(unhooked) }); err != nil {
		return err
	}
	for at := (program.Cursor{}); d.More(&at); {
		if err := s.sendBatch(d, r, func(b *kernel.Batch) error { b.Additions(d.Transaction, &at, s.batchSize()); return nil }); err != nil {
			return err
		}
	}
	return s.sendBatch(d, r, func(b *kernel.Batch) error { return b.Operations(hooked) })
}

// sendBatch sends one batch of several.
func (s *sender) sendBatch(d *delivery, r *Result, write func(*kernel.Batch) error) error {
	s.batch.Start(d.Transaction)
	if err := write(&s.batch); err != nil {
		r.Outcome = kernel.Rejected
		return err
	}
	s.batch.Finish()
	return s.send(d, r)
}

// batchSize is smaller for ordinary users, because their sockets take smaller batches.
func (s *sender) batchSize() int { return min(maxBatch, s.conn.Capacity()) }

// families is a set of families.
type families [2]bool

func (s families) has(f program.Family) bool { return s[f.Index()] }

// RefusedError means that the kernel refused to write both tables as a whole because of an element of one service port.
// The caller can Delete the port, so that the others get what they ask for.
type RefusedError struct {
	Port contents.PortID
	What string // the change, in nft syntax
	Err  error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("nf_tables refused %s: %v; the element belongs to service port %s (%s)", e.What, e.Err, e.Port.Name, e.Port.Family)
}

// Unwrap returns the error of the kernel.
func (e *RefusedError) Unwrap() error { return e.Err }

// errReplaced means that the table does not have the engine's stamp.
var errReplaced = errors.New("another process has replaced the contents of the table")

// ofElement are errors that concern the element. Others, such as ENOMEM, would come with any element.
var ofElement = []unix.Errno{unix.EEXIST, unix.ENOENT, unix.EINVAL, unix.ERANGE, unix.E2BIG, unix.EOVERFLOW}

// refused explains why the kernel refused the batch. It looks for the service port only when the tables are written as a
// whole: a smaller transaction may be refused because others have changed the tables.
func (s *sender) refused(d *delivery, why *nlmsg.Ack) error {
	what := s.batch.Blame(d.Transaction, why)
	switch {
	case errors.Is(why.Err(), unix.ENOMEM):
		return fmt.Errorf("nf_tables has no memory for %s: %w; the old rules stay, and the next transaction writes the difference; "+
			"a memory limit of the pod counts the memory of its rules, too", what, why.Err())
	case why.Seq != s.batch.First && errors.Is(why.Err(), unix.EPERM):
		return fmt.Errorf("nf_tables refused %s: %w", what, kernel.ErrOwned)
	case s.batch.IsStamp(why):
		return fmt.Errorf("%w; the next transaction writes both tables as a whole", errReplaced)
	case d.owner != nil && slices.ContainsFunc(ofElement, func(n unix.Errno) bool { return errors.Is(why.Err(), n) }):
		if port, found := s.culprit(d, why); found {
			return &RefusedError{Port: port, What: what, Err: why.Err()}
		}
		s.unnamed = why.Seq
	}
	return fmt.Errorf("nf_tables refused %s: %w; the next transaction writes both tables as a whole", what, why.Err())
}

// culprit finds the service port of the element that the kernel refused.
func (s *sender) culprit(d *delivery, why *nlmsg.Ack) (contents.PortID, bool) {
	f, set, key := s.batch.RefusedKey(why)
	if key == nil {
		return contents.PortID{}, false
	}
	return d.owner(f, set, key)
}

// nameRefused sends the tables again when the kernel refused a message with elements and did not say which one. Each
// element of that message has a message of its own then, so the kernel names it.
func (s *sender) nameRefused(d *delivery, r *Result, why error) error {
	found := s.batch.Separate(s.unnamed)
	if s.unnamed = 0; !found {
		return why
	}
	defer s.batch.Join()
	if err := s.batch.Encode(d.Transaction); err != nil {
		r.Outcome = kernel.Rejected
		return err
	}
	err := s.send(d, r)
	s.refusal = s.refusal || r.Outcome == kernel.Rejected // the first time it was one
	return err
}
