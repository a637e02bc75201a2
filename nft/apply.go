package nft

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/table"
)

// Apply gives all collected changes to the kernel. If the outcome is not Applied, the error says why, and the next
// Apply compares everything with the kernel, or writes it. Without changes, Apply sends nothing.
func (e *Engine) Apply() (Result, error) {
	e.plan()
	d := &delivery{Transaction: e.tx, full: e.mode != synced, fresh: e.mode != synced}
	err := e.prepare(d)
	r := Result{Full: d.full, Text: d.text, Head: e.tx.Head}
	if err != nil {
		r.Outcome = kernel.Rejected
		return r, err
	}
	if !d.full {
		r.Changed = e.tables.ChangedPorts()
	}
	r.Added, r.Deleted = e.tx.Elements()
	r.Counts = e.tx.Counts()
	if !e.tx.Empty() || d.full { // if everything was compared, the table gets the stamp of this engine
		err = e.commit(d, &r)
		if e.mode = d.next(e.refusal, &r, err); e.mode == synced {
			if d.full {
				_ = e.recheck.End() // everything was compared; the socket of a list only fails to close if it is closed
			}
			for _, tb := range e.tables {
				tb.Applied()
			}
		}
		e.tx = &program.Transaction{}
		e.batch.Shrink()
	}
	e.collected, e.whole = e.mode != synced, false
	if r.Outcome == kernel.Applied {
		r.Waits = e.tables.Waits()
		r.Room = e.tables.Room()
		r.Leaving = slices.ContainsFunc(e.tables, func(tb *table.Table) bool { return tb.Want.Hash.Leaving() })
	}
	return r, err
}

// next is what the engine does after a delivery. Without a refusal, the difference is enough: the transaction got lost, or
// the kernel had no memory, and the difference needs less of it than everything. But it may be larger, and too large for
// the send buffer.
func (d *delivery) next(refusal bool, r *Result, err error) mode {
	var one *RefusedError // then only one service port is in the way
	switch {
	case r.Outcome == kernel.Applied:
		return synced
	case d.whole != families{} && r.Outcome == kernel.Rejected && refusal && !errors.As(err, &one):
		return remaking
	case refusal || errors.Is(err, unix.EMSGSIZE):
		return replacing
	}
	return comparing
}

// prepare completes the transaction: with what the collected changes leave out, or with what the kernel lacks.
func (e *Engine) prepare(d *delivery) error {
	if d.full {
		e.tx.Reset()
		return e.rewrite(d)
	}
	for _, tb := range e.tables {
		tb.Want.Later.Limit(e.most())
		tb.Want.Enter(e.tx.For(tb.Family))
	}
	if err := e.writeLengths(d); err != nil {
		e.mode = comparing
		return fmt.Errorf("add chains for source ranges: %w; the next transaction compares everything with the kernel", err)
	}
	left := piece
	for _, tb := range e.tables {
		w := e.tx.For(tb.Family)
		tb.Want.Finish(w)
		left -= tb.Want.Hash.DeletePiece(left)
		tb.Want.Write(w)
	}
	return nil
}

// piece is how many slots of hash tables without pools a transaction deletes. Everybody waits for them. Most pieces take the
// kernel 1 to 4 ms of processor time, and some 8 ms, more than half of it to report each slot to the watcher.
const piece = 1000

// writeLengths sends the chains that source ranges need, if they are new.
func (e *Engine) writeLengths(d *delivery) error {
	if !slices.ContainsFunc(e.tables, func(tb *table.Table) bool { return tb.Want.Chains.NewLengths() }) {
		return nil
	}
	d.first = &program.Transaction{}
	for _, tb := range e.tables {
		tb.Want.Chains.AddLengths(d.first.For(tb.Family), tb.Want.Program())
	}
	return e.sendApart(d.first, true)
}

// rewrite prepares a transaction after which the kernel has what is wanted. Where it can, it writes the difference
// to what is there, and otherwise everything. A table that is gone leaves the other one alone.
func (e *Engine) rewrite(d *delivery) error {
	var found [2]kernel.Existing
	for _, tb := range e.tables {
		tb.Want.Later.Limit(0)
		tb.Want.Enter(program.NewWriter(tb.Family))
		tb.Want.ForgetSpares()
		was, err := e.conn.Survey(tb.Family)
		differ := false
		if err == nil && e.mode < replacing {
			differ, err = tb.Differs(was, e.conn)
		}
		if err != nil {
			return fmt.Errorf("read table %s %s before it is written: %w; nothing was changed", tb.Family, program.TableName, err)
		}
		found[tb.Family.Index()], d.whole[tb.Family.Index()] = was, !differ
		d.fresh = d.fresh && !was.Table
	}
	if !slices.ContainsFunc(e.tables, func(tb *table.Table) bool { return !d.whole.has(tb.Family) }) {
		d.owner = e.tables.OwnerOf // a difference may be refused because it was read wrongly
	}
	for _, tb := range e.tables {
		w, was := e.tx.For(tb.Family), found[tb.Family.Index()]
		tb.Want.Finish(program.NewWriter(tb.Family)) // a chain that goes is deleted like any that nobody wants
		was.SameLayout = was.SameLayout && e.mode != remaking
		if d.whole.has(tb.Family) {
			tb.Build(w, was)
		} else if err := tb.Converge(w, was, e.conn); err != nil {
			e.mode = max(e.mode, replacing)
			return fmt.Errorf("compare table %s %s with what it is to have: %w; nothing was changed", tb.Family, program.TableName, err)
		}
	}
	return nil
}
