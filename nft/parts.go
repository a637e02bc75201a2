package nft

import "golang.org/x/sys/unix"

// Large tables that do not exist yet are written in several batches: first the sets and the chains without hooks, then
// the elements, and last the base chains. No packet reaches a table before it has base chains, so packets see it appear
// at once.
//
// Several batches are faster than one. A kernel worker enlarges the hash table of a set, and unless the kernel is
// preemptible, it does not run while the kernel processes a batch. Until it runs, each new element is compared with
// many others. At 10,000 services of 10 endpoints this took 190 of 430 ms.

// maxPart is about the size of one of these batches, in bytes.
const maxPart = 1 << 20

// cursor is the first addition of a transaction that is not written yet.
type cursor struct {
	family  int // index into Families
	set     setID
	element int
}

// split separates the operations on base chains from the other operations.
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

// commitInParts writes tables that do not exist yet.
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

// partSize is smaller for ordinary users, because their sockets take smaller batches.
func (e *Engine) partSize() int { return min(maxPart, e.conn.capacity()) }

// more reports whether there are more additions, and moves the cursor to the first of them.
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

// additions writes as many additions as the size allows, and at least one message.
func (b *batch) additions(t *Transaction, at *cursor, size int) error {
	for t.more(at) && (len(b.messages) == 0 || len(b.Buf)+maxMessage <= size) {
		list := t.elements[at.family][at.set].add
		info := messageInfo{family: Families()[at.family], set: at.set, element: at.element}
		at.element += b.elementMessage(t, info, list, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE)
	}
	return nil
}
