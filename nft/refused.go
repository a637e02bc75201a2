package nft

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// RefusedError means that the kernel refused to write both tables as a whole because of an element of one service port.
// The caller can Delete the port, so that the others get what they ask for.
type RefusedError struct {
	Port PortID
	What string // the change, in nft syntax
	Err  error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("nf_tables refused %s: %v; the element belongs to service port %s (%s)", e.What, e.Err, e.Port.Name, e.Port.Family)
}

// Unwrap returns the error of the kernel.
func (e *RefusedError) Unwrap() error { return e.Err }

// ofElement are errors that concern the element. Others, such as ENOMEM, would come with any element.
var ofElement = []unix.Errno{unix.EEXIST, unix.ENOENT, unix.EINVAL, unix.ERANGE, unix.E2BIG, unix.EOVERFLOW}

// refused explains why the kernel refused the batch. It looks for the service port only when the tables are written as a
// whole: a smaller transaction may be refused because others have changed the tables.
func (e *Engine) refused(why *nlmsg.Ack, full bool) error {
	what := e.batch.blame(e.tx, why)
	switch {
	case errors.Is(why.Err(), unix.ENOMEM):
		return fmt.Errorf("nf_tables has no memory for %s: %w; the old rules stay, and the next transaction writes the difference; "+
			"a memory limit of the pod counts the memory of its rules, too", what, why.Err())
	case why.Seq != e.batch.first && errors.Is(why.Err(), unix.EPERM):
		return fmt.Errorf("nf_tables refused %s: %w", what, errOwned)
	case e.batch.isStamp(why):
		return fmt.Errorf("%w; the next transaction writes both tables as a whole", errReplaced)
	case full && slices.ContainsFunc(ofElement, func(n unix.Errno) bool { return errors.Is(why.Err(), n) }):
		if port, found := e.culprit(why); found {
			return &RefusedError{Port: port, What: what, Err: why.Err()}
		}
		e.unnamed = why.Seq
	}
	return fmt.Errorf("nf_tables refused %s: %w; the next transaction writes both tables as a whole", what, why.Err())
}

// culprit finds the service port of the element that the kernel refused.
func (e *Engine) culprit(why *nlmsg.Ack) (PortID, bool) {
	for _, m := range e.batch.messages {
		if m.seq != why.Seq || m.operation != nil || m.deletion {
			continue
		}
		list, i := e.tx.elements[m.family.index()][m.set].add, e.batch.refusedElement(m, why.Offset)
		if i < 0 || m.element+i >= len(list) {
			return PortID{}, false
		}
		return e.tables[m.family.index()].ownerOf(m.set, list[m.element+i].keyBytes(e.tx.arena))
	}
	return PortID{}, false
}

// refusedElement is the number of the element that the kernel refused, in its message; -1: the kernel does not say.
func (b *batch) refusedElement(m messageInfo, offset uint32) int {
	if m.count == 1 {
		return 0
	}
	return b.elementAt(m, offset)
}

// nameRefused sends the tables again when the kernel refused a message with elements and did not say which one. Each
// element of that message has a message of its own then, so the kernel names it.
func (e *Engine) nameRefused(r *Result, why error) error {
	i := slices.IndexFunc(e.batch.messages, func(m messageInfo) bool { return m.seq == e.unnamed })
	if e.unnamed = 0; i < 0 {
		return why
	}
	m := e.batch.messages[i]
	e.batch.apart = &m
	defer func() { e.batch.apart = nil }()
	if err := e.batch.encode(e.tx); err != nil {
		r.Outcome = Rejected
		return err
	}
	err := e.send(r)
	e.refusal = e.refusal || r.Outcome == Rejected // the first time it was one
	return err
}

// isApart reports whether the elements of a message are to be alone.
func (b *batch) isApart(info messageInfo) bool {
	a := b.apart
	return a != nil && info.family == a.family && info.set == a.set && !info.deletion &&
		info.element >= a.element && info.element < a.element+a.count
}

// ownerOf finds the service port that has an element. It builds the elements of one port after the other, the latest
// ports first: a refusal is rare, and an index would take memory all the time.
func (tb *table) ownerOf(set setID, key []byte) (PortID, bool) {
	latest := func(a, b *port) int { return cmp.Compare(b.number, a.number) }
	for _, p := range slices.SortedFunc(maps.Values(tb.ports), latest) {
		t := &Transaction{}
		tb.buildPort(t, p)
		for _, e := range t.elements[tb.family.index()][set].add {
			if bytes.Equal(e.keyBytes(t.arena), key) {
				return PortID{tb.family, p.name}, true
			}
		}
	}
	return PortID{}, false
}
