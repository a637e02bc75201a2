package nft

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// batch is a transaction as netlink messages. It remembers what each message is about, to name the change that the
// kernel refuses.
type batch struct {
	wire
	first, last uint32       // sequence numbers of the opening message and of the one that asks for an answer
	tx          *Transaction // which the batch carries, or a part of it
	messages    []messageInfo
	setIDs      uint32
	apart       *messageInfo // its elements get messages of their own; nil: none does
}

// messageInfo is what a message is about: an operation, or several elements of one set.
type messageInfo struct {
	seq       uint32
	start     int
	operation *operation
	family    Family
	set       setID
	deletion  bool
	element   int // index of the first element
	count     int // of elements
}

// protocolsSetID takes the place of the number of the anonymous set until the rule is written.
const protocolsSetID = ^uint32(0)

// maxElements is how many bytes of elements go into one message, because the length of an attribute has 16 bits. With
// the last element and the names of table and set, no message is larger than maxMessage.
const (
	maxElements = 60000
	maxMessage  = maxElements + 2000
)

// encode writes the transaction. Only the last message asks for an answer: the kernel applies a batch as a whole, and
// an answer to each message would cost more than its elements.
func (b *batch) encode(t *Transaction) error {
	b.Buf = slices.Grow(b.Buf[:0], t.estimate())
	b.start(t)
	if err := b.operations(t.before); err != nil {
		return err
	}
	b.allElements(t, true)
	b.allElements(t, false)
	if err := b.operations(t.after); err != nil {
		return err
	}
	b.finish()
	return nil
}

// start opens an empty batch for a transaction, or for a part of one; finish closes it.
func (b *batch) start(t *Transaction) {
	b.tx, b.Buf, b.messages, b.setIDs = t, b.Buf[:0], b.messages[:0], 0
	b.End(b.Begin(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
	b.first = b.Seq
}

func (b *batch) finish() {
	b.last = b.Seq
	b.requestAnswer()
	b.End(b.Begin(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
}

// trial writes a transaction that the kernel checks and then undoes: without its closing message, a batch is not
// committed.
func (b *batch) trial(t *Transaction) error {
	b.start(t)
	if err := b.operations(t.before); err != nil {
		return err
	}
	b.last = b.Seq
	b.requestAnswer()
	return nil
}

// estimate is about how many bytes the messages take. The buffer gets this size at once: a buffer that grows in steps
// would leave several times as much garbage.
func (t *Transaction) estimate() int {
	const perElement = 6 * nlmsg.AttributeHeaderSize // around the element, its key and its data
	const perOperation = 384                         // most are rules
	n := len(t.arena) + perOperation*(len(t.before)+len(t.after))
	for f := range t.elements {
		for id := range t.elements[f] {
			c := &t.elements[f][id]
			n += perElement * (len(c.add) + len(c.del))
			for i := range c.add {
				n += len(c.add[i].label)
			}
		}
	}
	return n
}

func (b *batch) requestAnswer() {
	b.AddFlags(b.messages[len(b.messages)-1].start, unix.NLM_F_ACK)
}

func (b *batch) operations(list []operation) error {
	for i := range list {
		if err := b.operation(&list[i]); err != nil {
			return fmt.Errorf("encode %q: %w", list[i], err)
		}
	}
	return nil
}

func (b *batch) open(o *operation, kind, flags uint16) int {
	start := b.begin(kind, flags, o.family)
	b.messages = append(b.messages, messageInfo{seq: b.Seq, start: start, operation: o})
	return start
}

func (b *batch) operation(o *operation) error {
	switch o.kind {
	case opAddTable:
		start := b.open(o, unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE)
		b.Text(unix.NFTA_TABLE_NAME, o.tableName())
		b.Uint32(unix.NFTA_TABLE_FLAGS, o.flags)
		b.comment(tableUserData, o.comment())
		b.End(start)
	case opDeleteTable:
		b.named(o, unix.NFT_MSG_DELTABLE, 0)
	case opAddChain:
		b.addChain(o)
	case opDeleteChain:
		b.named(o, unix.NFT_MSG_DELCHAIN, unix.NFTA_CHAIN_NAME)
	case opFlushRules:
		b.flushRules(o)
	case opAddRule:
		return b.addRule(o)
	case opAddSet:
		b.addSet(o)
	case opDeleteSet:
		b.named(o, unix.NFT_MSG_DELSET, unix.NFTA_SET_NAME)
	case opFlushSet:
		b.named(o, unix.NFT_MSG_DELSETELEM, unix.NFTA_SET_ELEM_LIST_SET)
	}
	return nil
}

// tableUserData is NFTA_TABLE_USERDATA (kernel 5.10), which x/sys does not have.
const tableUserData = 6

// named writes a message with the table's name (attribute 1 in all messages) and, unless nameAttr is 0, the object's
// name.
func (b *batch) named(o *operation, kind, nameAttr uint16) {
	start := b.open(o, kind, 0)
	b.Text(unix.NFTA_TABLE_NAME, o.tableName())
	if nameAttr != 0 {
		b.Text(nameAttr, o.name)
	}
	b.End(start)
}

// flushRules deletes the rules of a chain, or of all chains.
func (b *batch) flushRules(o *operation) {
	attr := uint16(0)
	if o.name != "" {
		attr = unix.NFTA_RULE_CHAIN
	}
	b.named(o, unix.NFT_MSG_DELRULE, attr)
}

func (b *batch) addChain(o *operation) {
	start := b.open(o, unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE)
	b.Text(unix.NFTA_CHAIN_TABLE, o.tableName())
	b.Text(unix.NFTA_CHAIN_NAME, o.name)
	if base := o.chain.base; base != nil {
		hook := b.Nest(unix.NFTA_CHAIN_HOOK)
		b.Uint32(unix.NFTA_HOOK_HOOKNUM, base.hook)
		b.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(base.priority))
		b.Unnest(hook)
		b.Uint32(unix.NFTA_CHAIN_POLICY, 1) // NF_ACCEPT
		b.Text(unix.NFTA_CHAIN_TYPE, base.kind)
	}
	b.End(start)
}

func (b *batch) addRule(o *operation) error {
	if o.rule.usesProtocols() {
		b.protocols(o)
	}
	start := b.open(o, unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
	b.Text(unix.NFTA_RULE_TABLE, o.tableName())
	b.Text(unix.NFTA_RULE_CHAIN, o.name)
	list := b.Nest(unix.NFTA_RULE_EXPRESSIONS)
	digest, err := o.rule.encode(o.family, b.setIDs, func(body []byte) {
		item := b.Nest(unix.NFTA_LIST_ELEM)
		b.Raw(body)
		b.Unnest(item)
	})
	if err != nil {
		return err
	}
	b.Unnest(list)
	b.ruleDigest(unix.NFTA_RULE_USERDATA, digest)
	b.End(start)
	return nil
}

// protocols creates the anonymous set { tcp, udp, sctp } for the next rule.
func (b *batch) protocols(o *operation) {
	d := setDef{name: protocolsSet, key: []dataType{typeProto}}
	start := b.open(o, unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
	b.setHeader(o, &d, unix.NFT_SET_ANONYMOUS|unix.NFT_SET_CONSTANT)
	desc := b.Nest(unix.NFTA_SET_DESC)
	b.Uint32(unix.NFTA_SET_DESC_SIZE, 3)
	b.Unnest(desc)
	b.End(start)

	start = b.open(o, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE)
	b.Text(unix.NFTA_SET_ELEM_LIST_TABLE, o.tableName())
	b.Text(unix.NFTA_SET_ELEM_LIST_SET, d.name)
	b.Uint32(unix.NFTA_SET_ELEM_LIST_SET_ID, b.setIDs)
	list := b.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for _, proto := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		item := b.Nest(unix.NFTA_LIST_ELEM)
		b.value(unix.NFTA_SET_ELEM_KEY, []byte{proto})
		b.Unnest(item)
	}
	b.Unnest(list)
	b.End(start)
}

// setHeader writes what all sets have, and assigns the next set number.
func (b *batch) setHeader(o *operation, d *setDef, flags uint32) {
	b.setIDs++
	b.Text(unix.NFTA_SET_TABLE, o.tableName())
	b.Text(unix.NFTA_SET_NAME, d.name)
	b.Uint32(unix.NFTA_SET_FLAGS, flags)
	b.Uint32(unix.NFTA_SET_KEY_TYPE, concatMagic(d.key))
	b.Uint32(unix.NFTA_SET_KEY_LEN, uint32(concatLen(d.key)))
	b.Uint32(unix.NFTA_SET_ID, b.setIDs)
}

func (b *batch) addSet(o *operation) {
	d := o.set
	start := b.open(o, unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
	b.setHeader(o, d, d.flags())
	if d.isMap() {
		kind, length := d.mapData()
		b.Uint32(unix.NFTA_SET_DATA_TYPE, kind)
		b.Uint32(unix.NFTA_SET_DATA_LEN, length)
	}
	b.setDescription(d)
	b.Bytes(unix.NFTA_SET_USERDATA, d.userData())
	if d.counter {
		e := b.Nest(setExpr)
		b.Text(unix.NFTA_EXPR_NAME, "counter")
		b.Unnest(b.Nest(unix.NFTA_EXPR_DATA))
		b.Unnest(e)
	}
	b.End(start)
}

// setExpr is NFTA_SET_EXPR (kernel 5.7), which x/sys does not have.
const setExpr = 17

// mapData is the type and length of a map's data, as the kernel numbers them.
func (d *setDef) mapData() (kind, length uint32) {
	if d.data[0].name == typeVerdict.name {
		return unix.NFT_DATA_VERDICT, 16 // sizeof(struct nft_verdict)
	}
	return concatMagic(d.data), uint32(concatLen(d.data))
}

// setDescription writes the size of a bounded set.
func (b *batch) setDescription(d *setDef) {
	if !d.dynamic {
		return
	}
	desc := b.Nest(unix.NFTA_SET_DESC)
	b.Uint32(unix.NFTA_SET_DESC_SIZE, d.size)
	b.Unnest(desc)
}

// allElements writes either the deletions or the additions of all sets.
func (b *batch) allElements(t *Transaction, deletion bool) {
	for _, f := range Families() {
		for id := range setCount {
			changes := &t.elements[f.index()][id]
			list, kind, flags := changes.add, uint16(unix.NFT_MSG_NEWSETELEM), uint16(unix.NLM_F_CREATE)
			if deletion {
				list, kind, flags = changes.del, unix.NFT_MSG_DELSETELEM, 0
			}
			info := messageInfo{family: f, set: id, deletion: deletion}
			for info.element < len(list) {
				info.element += b.elementMessage(t, info, list, kind, flags)
			}
		}
	}
}

// elementMessage writes as many elements as fit into one message and returns how many.
func (b *batch) elementMessage(t *Transaction, info messageInfo, list []element, kind, flags uint16) int {
	info.start = b.begin(kind, flags, info.family)
	info.seq = b.Seq
	b.Text(unix.NFTA_SET_ELEM_LIST_TABLE, TableName)
	b.Text(unix.NFTA_SET_ELEM_LIST_SET, setNames[info.set])
	nested := b.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for _, e := range list[info.element:] {
		if len(b.Buf)-nested > maxElements || info.count > 0 && b.isApart(info) {
			break
		}
		b.element(t.arena, e, info)
		info.count++
	}
	b.Unnest(nested)
	b.End(info.start)
	b.messages = append(b.messages, info)
	return info.count
}

func (b *batch) element(arena []byte, e element, info messageInfo) {
	item := b.Nest(unix.NFTA_LIST_ELEM)
	if e.intervalEnd {
		b.Uint32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	}
	b.value(unix.NFTA_SET_ELEM_KEY, e.keyBytes(arena))
	if !info.deletion {
		b.elementBody(arena, e, info.set)
	}
	b.Unnest(item)
}

func (b *batch) elementBody(arena []byte, e element, id setID) {
	switch {
	case id == idDispatch:
		data := b.Nest(unix.NFTA_SET_ELEM_DATA)
		v := b.Nest(unix.NFTA_DATA_VERDICT)
		b.Uint32(unix.NFTA_VERDICT_CODE, verdictGoto)
		b.Text(unix.NFTA_VERDICT_CHAIN, e.label)
		b.Unnest(v)
		b.Unnest(data)
		return
	case e.data > 0:
		b.value(unix.NFTA_SET_ELEM_DATA, e.dataBytes(arena))
	}
	if e.label != "" {
		b.comment(unix.NFTA_SET_ELEM_USERDATA, e.label)
	}
}

// verdictGoto is NFT_GOTO as an unsigned number.
const verdictGoto = 0xfffffffc

func (b *batch) value(kind uint16, v []byte) {
	outer := b.Nest(kind)
	b.Bytes(unix.NFTA_DATA_VALUE, v)
	b.Unnest(outer)
}

// keepBuffer is the largest buffer that stays allocated between two transactions.
const keepBuffer = 1 << 20

func (b *batch) shrink() {
	b.tx = nil
	if cap(b.Buf) > keepBuffer {
		b.Buf, b.messages = nil, nil
	}
}

// blame names what the kernel refused: an operation, or an element if the kernel named one.
func (b *batch) blame(t *Transaction, why *nlmsg.Ack) string {
	for _, m := range b.messages {
		if m.seq != why.Seq {
			continue
		}
		if m.operation != nil {
			return m.operation.String()
		}
		return b.blameElement(t, m, why.Offset)
	}
	return "the transaction as a whole"
}

// isStamp reports whether the kernel refused to change the stamp of a table.
func (b *batch) isStamp(why *nlmsg.Ack) bool {
	return slices.ContainsFunc(b.messages, func(m messageInfo) bool {
		return m.seq == why.Seq && m.operation == nil && m.set == idGeneration
	})
}

func (b *batch) blameElement(t *Transaction, m messageInfo, offset uint32) string {
	verb, list := "add", t.elements[m.family.index()][m.set].add
	if m.deletion {
		verb, list = "delete", t.elements[m.family.index()][m.set].del
	}
	defs := program{family: m.family}.sets()
	d := &defs[m.set]
	what := fmt.Sprintf("%s element %s %s %s", verb, m.family, TableName, d.name)
	i := b.refusedElement(m, offset)
	if i < 0 || m.element+i >= len(list) {
		return what
	}
	return what + " { " + list[m.element+i].text(d, t.arena) + " }"
}

// elements are the elements that the message is about.
func (m messageInfo) elements(t *Transaction) []element {
	changes := &t.elements[m.family.index()][m.set]
	list := changes.add
	if m.deletion {
		list = changes.del
	}
	return list[m.element : m.element+m.count]
}

// offsetOf is the offset of an element in its message, the inverse of elementAt.
func (b *batch) offsetOf(m messageInfo, element int) uint32 {
	for e, i := b.elementList(m), 0; e.Next(); i++ {
		if i == element {
			return e.offset()
		}
	}
	return 0
}

// elementAt finds the element that begins at an offset of the message; -1: no element does.
func (b *batch) elementAt(m messageInfo, offset uint32) int {
	for e, i := b.elementList(m), 0; e.Next(); i++ {
		if e.offset() == offset {
			return i
		}
	}
	return -1
}

// elementList walks over the elements of a message.
type elementList struct {
	nlmsg.Attributes
	start int // of the walk, from the start of the message
}

func (l *elementList) offset() uint32 { return uint32(l.start + l.Offset) }

func (b *batch) elementList(m messageInfo) elementList {
	message := nlmsg.NewMessages(b.Buf[m.start:])
	message.Next()
	for a := message.Attributes(); a.Next(); {
		if a.Kind == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			const header = nlmsg.HeaderSize + nlmsg.FamilySize
			return elementList{Attributes: a.Nested(), start: header + a.Offset + nlmsg.AttributeHeaderSize}
		}
	}
	return elementList{}
}
