package nft

import "golang.org/x/sys/unix"

// A table that does not exist yet is written in several batches: first the chains that no hook leads to, with their rules and
// sets, then elements, and at last the base chains. No packet meets the table before it is complete, so to packets it is as
// much at once as one batch would be. It is faster: the kernel enlarges the hash table behind a set in a worker, which does
// not run while a batch is being worked off (unless the kernel is preemptible), and until it has run every element is
// looked for in long chains. At 10,000 services of 10 endpoints that was 190 of 430 ms.

// maxPart is about how many bytes go into one batch.
const maxPart = 1 << 20

// cursor is how far the additions of a transaction are written.
type cursor struct {
	family  int // index into Families
	set     setID
	element int
}

// split separates the operations on base chains from the others.
func (t *Transaction) split() (unhooked, hooked []operation) {
	bases := map[string]bool{}
	for _, o := range t.before {
		if o.chain != nil && o.chain.base != nil {
			bases[o.name] = true
		}
		if onChain := o.kind == opAddChain || o.kind == opAddRule; onChain && bases[o.name] {
			hooked = append(hooked, o)
		} else {
			unhooked = append(unhooked, o)
		}
	}
	return unhooked, hooked
}

// commitInParts writes the tables where there are none.
func (e *Engine) commitInParts(r *Result) error {
	unhooked, hooked := e.tx.split()
	if err := e.sendPart(r, func(b *batch) error { return b.operations(unhooked) }); err != nil {
		return err
	}
	for at := (cursor{}); e.tx.more(&at); {
		if err := e.sendPart(r, func(b *batch) error { return b.additions(e.tx, &at, e.partSize()) }); err != nil {
			return err
		}
	}
	return e.sendPart(r, func(b *batch) error { return b.operations(hooked) })
}

// sendPart sends one batch of several.
func (e *Engine) sendPart(r *Result, write func(*batch) error) error {
	e.batch.start(e.tx)
	if err := write(&e.batch); err != nil {
		r.Outcome = Rejected
		return err
	}
	e.batch.finish()
	return e.send(r)
}

// partSize is less for ordinary users, whose sockets do not take more.
func (e *Engine) partSize() int { return min(maxPart, e.conn.capacity()) }

// more says whether additions are left, and moves the cursor to the first of them.
func (t *Transaction) more(at *cursor) bool {
	for ; at.family < len(t.elements); at.family, at.set = at.family+1, 0 {
		for ; at.set < setCount; at.set, at.element = at.set+1, 0 {
			if at.element < len(t.elements[at.family][at.set].add) {
				return true
			}
		}
	}
	return false
}

// additions writes as many additions as the size allows, one message of them at least.
func (b *batch) additions(t *Transaction, at *cursor, size int) error {
	for t.more(at) && (len(b.messages) == 0 || len(b.Buf)+maxMessage <= size) {
		list := t.elements[at.family][at.set].add
		info := messageInfo{family: Families()[at.family], set: at.set, element: at.element}
		at.element += b.elementMessage(t, info, list, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE)
	}
	return nil
}
