package nft

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/table"
)

// Repair undoes what another process did to our tables. Where elements changed, it compares them with the kernel and
// writes the difference. Where chains and rules changed, it writes those that are not as they should be. Both tables are
// compared as a whole if the process replaced tables or sets, or if changes are collected already. After an error the
// next Apply does that.
//
// If the kernel dropped events, or FindInterference found the change, Repair begins to compare everything. While the result says
// that there is More, the caller calls RepairMore.
//
// Before the first Set and SetGlobals, Repair does what Mend does.
func (e *Engine) Repair(i kernel.Interference) (Result, error) {
	switch {
	case e.mode == unplanned:
		// The engine does not know yet what the tables are to have. The first Apply compares everything.
		r := Result{Text: func() string { return "" }}
		_, err := e.Mend()
		if err != nil {
			r.Outcome = kernel.Rejected
		}
		return r, err
	case i.Replaced || !e.settled():
		e.distrust() // a table that was deleted and made again may be intact and have the elements of another time
	}
	t := &program.Transaction{}
	for _, tb := range e.tables {
		if e.mode != synced {
			break
		}
		lost, err := tb.Repair(t.For(tb.Family), e.conn, &i)
		if lost || err != nil {
			e.distrust()
		}
		if err != nil {
			return Result{Outcome: kernel.Unknown, Text: t.String}, fmt.Errorf("repair table %s %s: %w", tb.Family, program.TableName, err)
		}
	}
	if e.mode != synced {
		return e.Apply()
	}
	r, err := e.sendRepair(t)
	if err != nil || !i.Lost && !i.Unheard {
		return r, err
	}
	e.recheck.Begin(e.tables, e.conn)
	next, err := e.recheckPart(table.FirstPart)
	next.add(&r)
	return next, err
}

// RepairMore compares the next part of both tables, and undoes what it finds.
func (e *Engine) RepairMore() (Result, error) { return e.recheckPart(table.NextPart) }

// add sums up two results.
func (r *Result) add(o *Result) {
	r.Added, r.Deleted, r.Bytes, r.InKernel = r.Added+o.Added, r.Deleted+o.Deleted, r.Bytes+o.Bytes, r.InKernel+o.InKernel
}

// recheckPart continues to compare everything, for about the given time, and undoes what it finds. After an error the
// next Apply compares everything.
func (e *Engine) recheckPart(within time.Duration) (Result, error) {
	t, c := &program.Transaction{}, &e.recheck
	r := Result{Text: t.String, More: c.UnderWay()}
	if !r.More || !e.settled() { // the next Apply comes first
		return r, nil
	}
	err := c.Run(t, e.conn, within)
	if err == nil {
		r, err = e.sendRepair(t)
	}
	if err != nil {
		e.distrust()
		return r, errors.Join(err, c.End())
	}
	if !c.UnderWay() && c.Again {
		c.Begin(e.tables, e.conn)
	}
	r.More = c.UnderWay()
	return r, nil
}

// sendRepair sends the difference.
func (e *Engine) sendRepair(t *program.Transaction) (Result, error) {
	r, d := Result{Text: t.String}, &delivery{Transaction: t}
	r.Added, r.Deleted = t.Elements()
	var err error
	if t.Empty() { // a table may need only other flags
		err = e.setFlags(&r)
	} else {
		err = e.commit(d, &r)
	}
	if r.Outcome != kernel.Applied {
		e.distrust()
	} else {
		for _, tb := range e.tables {
			tb.Repaired()
		}
	}
	if err != nil {
		err = fmt.Errorf("undo changes of another process: %w", err)
	}
	return r, err
}

// FindInterference compares both tables with what the engine made: chains, rules and sets, the stamp of the latest transaction, and
// how many elements each set has. Each call looks up the elements of some service ports as well, other ones each time.
// It changes nothing. Repair undoes what it found.
func (e *Engine) FindInterference() (kernel.Interference, error) {
	var i kernel.Interference
	for _, tb := range e.tables {
		if err := tb.Check(&i, e.conn, e.settled()); err != nil {
			return kernel.Interference{}, fmt.Errorf("read table %s %s: %w", tb.Family, program.TableName, err)
		}
	}
	i.Unheard = !i.Empty()
	return i, nil
}

// Mend undoes what another process did to the rules of the tables while no Verdict ran. It does not wait for the objects
// of the cluster, because a rule that drops packets may be what keeps them away: the first Apply would never come. It
// touches no elements, and only tables that this version wrote with the rules of their fixed chains. Everything else is
// up to the first Apply. Call it before the first Set. It names the chains that it changed, and tables that slept.
func (e *Engine) Mend() (chains []string, err error) {
	t := &program.Transaction{}
	for _, tb := range e.tables {
		changed, err := tb.Mend(t.For(tb.Family), e.conn)
		if err != nil {
			return nil, fmt.Errorf("read table %s %s: %w", tb.Family, program.TableName, err)
		}
		for _, name := range changed {
			chains = append(chains, fmt.Sprintf("%s %s %s", tb.Family, program.TableName, name))
		}
	}
	if !t.Empty() {
		err = e.sendApart(t, e.mode == synced)
	}
	if err == nil {
		err = e.setFlags(&Result{})
	}
	if err != nil {
		return nil, fmt.Errorf("undo changes of the chains %s: %w", strings.Join(chains, ", "), err)
	}
	return chains, nil
}
