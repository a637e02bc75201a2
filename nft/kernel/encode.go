package kernel

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// Batch is a transaction as netlink messages.
type Batch struct {
	log
	First, Last uint32 // sequence numbers of the opening message and of the one that asks for an answer
	setIDs      uint32
}

// maxElements is how many bytes of elements go into one message, because the length of an attribute has 16 bits. With
// the last element and the names of table and set, no message is larger than maxMessage.
const (
	maxElements = 60000
	maxMessage  = maxElements + 2000
)

// Encode writes the transaction. Only the last message asks for an answer: the kernel applies a batch as a whole, and
// an answer to each message would cost more than its elements.
func (b *Batch) Encode(t *program.Transaction) error {
	b.Buf = slices.Grow(b.Buf[:0], Estimate(t))
	b.Start(t)
	if err := b.Operations(t.Before); err != nil {
		return err
	}
	b.allElements(t, true)
	b.allElements(t, false)
	if err := b.Operations(t.After); err != nil {
		return err
	}
	b.Finish()
	return nil
}

// Start opens an empty batch for a transaction, or for a part of one; finish closes it.
func (b *Batch) Start(t *program.Transaction) {
	b.Tx, b.Buf, b.Messages, b.setIDs = t, b.Buf[:0], b.Messages[:0], 0
	b.End(b.Begin(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
	b.First = b.Seq
}

func (b *Batch) Finish() {
	b.Last = b.Seq
	b.requestAnswer()
	b.End(b.Begin(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
}

// Estimate is about how many bytes the messages take. The buffer gets this size at once: a buffer that grows in steps
// would leave several times as much garbage.
func Estimate(t *program.Transaction) int {
	const perElement = 6 * nlmsg.AttributeHeaderSize // around the element, its key and its data
	const perOperation = 384                         // most are rules
	n := len(t.Arena) + perOperation*(len(t.Before)+len(t.After))
	for f := range t.Changes {
		for id := range t.Changes[f] {
			c := &t.Changes[f][id]
			n += perElement * (len(c.Add) + len(c.Delete))
			for i := range c.Add {
				n += len(c.Add[i].Label)
			}
		}
	}
	return n
}

func (b *Batch) requestAnswer() {
	b.AddFlags(b.Messages[len(b.Messages)-1].Start, unix.NLM_F_ACK)
}

func (b *Batch) Operations(list []program.Operation) error {
	for i := range list {
		if err := b.operation(&list[i]); err != nil {
			return fmt.Errorf("encode %q: %w", list[i], err)
		}
	}
	return nil
}

func (b *Batch) open(o *program.Operation, kind, flags uint16) int {
	start := b.begin(kind, flags, o.Family)
	b.Messages = append(b.Messages, MessageInfo{Seq: b.Seq, Start: start, Operation: o})
	return start
}

func (b *Batch) operation(o *program.Operation) error {
	switch o.Kind {
	case program.AddTable:
		start := b.open(o, unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE)
		b.Text(unix.NFTA_TABLE_NAME, o.TableName())
		b.Uint32(unix.NFTA_TABLE_FLAGS, o.Flags)
		b.comment(tableUserData, o.Comment())
		b.End(start)
	case program.DeleteTable:
		b.named(o, unix.NFT_MSG_DELTABLE, 0)
	case program.AddChain:
		b.addChain(o)
	case program.DeleteChain:
		b.named(o, unix.NFT_MSG_DELCHAIN, unix.NFTA_CHAIN_NAME)
	case program.FlushRules:
		chain := uint16(unix.NFTA_RULE_CHAIN)
		if o.Name == "" {
			chain = 0 // the rules of all chains
		}
		b.named(o, unix.NFT_MSG_DELRULE, chain)
	case program.AddRule:
		return b.addRule(o)
	case program.AddSet:
		b.addSet(o)
	case program.DeleteSet:
		b.named(o, unix.NFT_MSG_DELSET, unix.NFTA_SET_NAME)
	case program.FlushSet:
		b.named(o, unix.NFT_MSG_DELSETELEM, unix.NFTA_SET_ELEM_LIST_SET)
	case program.AddFlowtable:
		b.flowtable(o, unix.NFT_MSG_NEWFLOWTABLE)
	case program.DeleteFlowtable:
		b.flowtable(o, unix.NFT_MSG_DELFLOWTABLE)
	}
	return nil
}

// named writes a message with the table's name (attribute 1 in all messages) and, unless nameAttr is 0, the object's
// name.
func (b *Batch) named(o *program.Operation, kind, nameAttr uint16) {
	start := b.open(o, kind, 0)
	b.Text(unix.NFTA_TABLE_NAME, o.TableName())
	if nameAttr != 0 {
		b.Text(nameAttr, o.Name)
	}
	b.End(start)
}

func (b *Batch) addChain(o *program.Operation) {
	start := b.open(o, unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE)
	b.Text(unix.NFTA_CHAIN_TABLE, o.TableName())
	b.Text(unix.NFTA_CHAIN_NAME, o.Name)
	if base := o.Chain.Base; base != nil {
		hook := b.Nest(unix.NFTA_CHAIN_HOOK)
		b.Uint32(unix.NFTA_HOOK_HOOKNUM, base.Hook)
		b.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(base.Priority))
		b.Unnest(hook)
		b.Uint32(unix.NFTA_CHAIN_POLICY, 1) // NF_ACCEPT
		b.Text(unix.NFTA_CHAIN_TYPE, base.Kind)
	}
	b.End(start)
}

func (b *Batch) addRule(o *program.Operation) error {
	if o.Rule.UsesProtocols() {
		b.protocols(o)
	}
	start := b.open(o, unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
	b.Text(unix.NFTA_RULE_TABLE, o.TableName())
	b.Text(unix.NFTA_RULE_CHAIN, o.Name)
	list := b.Nest(unix.NFTA_RULE_EXPRESSIONS)
	digest, err := o.Rule.Encode(o.Family, b.setIDs, func(body []byte) {
		item := b.Nest(unix.NFTA_LIST_ELEM)
		b.Raw(body)
		b.Unnest(item)
	})
	if err != nil {
		return err
	}
	b.Unnest(list)
	b.Bytes(unix.NFTA_RULE_USERDATA, userdata.Append(nil, rule.DigestType, binary.NativeEndian.AppendUint64(nil, digest)))
	b.End(start)
	return nil
}

// protocols creates the anonymous set { tcp, udp, sctp } for the next rule.
func (b *Batch) protocols(o *program.Operation) {
	d := program.Set{Name: rule.ProtocolsSet, Key: []program.Type{program.TypeProto}}
	start := b.open(o, unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
	b.setHeader(o, &d, unix.NFT_SET_ANONYMOUS|unix.NFT_SET_CONSTANT)
	desc := b.Nest(unix.NFTA_SET_DESC)
	b.Uint32(unix.NFTA_SET_DESC_SIZE, 3)
	b.Unnest(desc)
	b.End(start)

	start = b.open(o, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE)
	b.Text(unix.NFTA_SET_ELEM_LIST_TABLE, o.TableName())
	b.Text(unix.NFTA_SET_ELEM_LIST_SET, d.Name)
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
func (b *Batch) setHeader(o *program.Operation, d *program.Set, flags uint32) {
	b.setIDs++
	b.Text(unix.NFTA_SET_TABLE, o.TableName())
	b.Text(unix.NFTA_SET_NAME, d.Name)
	b.Uint32(unix.NFTA_SET_FLAGS, flags)
	b.Uint32(unix.NFTA_SET_KEY_TYPE, program.KeyType(d.Key))
	b.Uint32(unix.NFTA_SET_KEY_LEN, uint32(program.KeyLength(d.Key)))
	b.Uint32(unix.NFTA_SET_ID, b.setIDs)
}

func (b *Batch) addSet(o *program.Operation) {
	d := o.Set
	start := b.open(o, unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
	b.setHeader(o, d, d.Flags())
	if d.IsMap() {
		kind, length := d.MapData()
		b.Uint32(unix.NFTA_SET_DATA_TYPE, kind)
		b.Uint32(unix.NFTA_SET_DATA_LEN, length)
	}
	b.setDescription(d)
	b.Bytes(unix.NFTA_SET_USERDATA, d.UserData())
	b.addElementExprs(d)
	b.End(start)
}

// addElementExprs writes what the kernel evaluates when a look-up finds an element. The limit is first, so the counter counts
// only what it lets through.
func (b *Batch) addElementExprs(d *program.Set) {
	if d.Rate == 0 {
		if d.Counter {
			b.expr(setExpr, "counter", func() {})
		}
		return
	}
	list := b.Nest(setExprs)
	b.expr(unix.NFTA_LIST_ELEM, "limit", func() {
		b.Bytes(unix.NFTA_LIMIT_RATE, binary.BigEndian.AppendUint64(nil, d.Rate))
		b.Bytes(unix.NFTA_LIMIT_UNIT, binary.BigEndian.AppendUint64(nil, 1)) // a second
		b.Uint32(unix.NFTA_LIMIT_BURST, d.Burst())
	})
	if d.Counter {
		b.expr(unix.NFTA_LIST_ELEM, "counter", func() {})
	}
	b.Unnest(list)
}

func (b *Batch) expr(kind uint16, name string, data func()) {
	e := b.Nest(kind)
	b.Text(unix.NFTA_EXPR_NAME, name)
	inner := b.Nest(unix.NFTA_EXPR_DATA)
	data()
	b.Unnest(inner)
	b.Unnest(e)
}

// setDescription writes the size of a bounded set, and the components of a key that is a range.
func (b *Batch) setDescription(d *program.Set) {
	if !d.Dynamic && !d.Ports {
		return
	}
	desc := b.Nest(unix.NFTA_SET_DESC)
	if d.Dynamic {
		b.Uint32(unix.NFTA_SET_DESC_SIZE, d.Size)
	}
	if d.Ports {
		list := b.Nest(setComponents)
		for _, t := range d.Key {
			item := b.Nest(unix.NFTA_LIST_ELEM)
			b.Uint32(setComponentLength, uint32(t.Bytes))
			b.Unnest(item)
		}
		b.Unnest(list)
	}
	b.Unnest(desc)
}

// NFTA_SET_DESC_CONCAT, NFTA_SET_FIELD_LEN and NFTA_SET_ELEM_KEY_END (kernel 5.6), which x/sys does not have.
const (
	setComponents      = 2
	setComponentLength = 1
	elementKeyEnd      = 10
)

// allElements writes either the deletions or the additions of all sets.
func (b *Batch) allElements(t *program.Transaction, deletion bool) {
	for _, f := range program.Families() {
		for id := range program.SetCount {
			changes := &t.Changes[f.Index()][id]
			list, kind, flags := changes.Add, uint16(unix.NFT_MSG_NEWSETELEM), uint16(unix.NLM_F_CREATE)
			if deletion {
				list, kind, flags = changes.Delete, unix.NFT_MSG_DELSETELEM, 0
			}
			info := MessageInfo{Family: f, Set: id, Deletion: deletion}
			for info.Element < len(list) {
				info.Element += b.elementMessage(t, info, list, kind, flags)
			}
		}
	}
}

// elementMessage writes as many elements as fit into one message and returns how many.
func (b *Batch) elementMessage(t *program.Transaction, info MessageInfo, list []program.Element, kind, flags uint16) int {
	info.Start = b.begin(kind, flags, info.Family)
	info.Seq = b.Seq
	b.Text(unix.NFTA_SET_ELEM_LIST_TABLE, program.TableName)
	b.Text(unix.NFTA_SET_ELEM_LIST_SET, info.Set.Name())
	nested := b.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for _, e := range list[info.Element:] {
		if len(b.Buf)-nested > maxElements || info.count > 0 && b.isApart(info) {
			break
		}
		b.element(t.Arena, e, info)
		info.count++
	}
	b.Unnest(nested)
	b.End(info.Start)
	b.Messages = append(b.Messages, info)
	return info.count
}

func (b *Batch) element(arena []byte, e program.Element, info MessageInfo) {
	item := b.Nest(unix.NFTA_LIST_ELEM)
	if e.IntervalEnd {
		b.Uint32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	}
	b.key(info.Set.HasPorts(), e.Key(arena))
	if !info.Deletion {
		b.elementBody(arena, e, info.Set)
	}
	b.Unnest(item)
}

func (b *Batch) elementBody(arena []byte, e program.Element, id program.SetID) {
	switch {
	case id == program.Dispatch:
		data := b.Nest(unix.NFTA_SET_ELEM_DATA)
		v := b.Nest(unix.NFTA_DATA_VERDICT)
		b.Uint32(unix.NFTA_VERDICT_CODE, verdictGoto)
		b.Text(unix.NFTA_VERDICT_CHAIN, e.Label)
		b.Unnest(v)
		b.Unnest(data)
		return
	case e.DataLen > 0:
		b.value(unix.NFTA_SET_ELEM_DATA, e.Data(arena))
	}
	if e.Label != "" {
		b.comment(unix.NFTA_SET_ELEM_USERDATA, e.Label)
	}
}

// verdictGoto is NFT_GOTO as an unsigned number.
const verdictGoto = 0xfffffffc

// key writes the key of an element, or of a range, whose key is twice as long: its two ends.
func (w *Wire) key(ports bool, key []byte) {
	if !ports {
		w.value(unix.NFTA_SET_ELEM_KEY, key)
		return
	}
	half := len(key) / 2
	w.value(unix.NFTA_SET_ELEM_KEY, key[:half])
	w.value(elementKeyEnd, key[half:])
}

func (w *Wire) value(kind uint16, v []byte) {
	outer := w.Nest(kind)
	w.Bytes(unix.NFTA_DATA_VALUE, v)
	w.Unnest(outer)
}

// keepBuffer is the largest buffer that stays allocated between two transactions.
const keepBuffer = 1 << 20

func (b *Batch) Shrink() {
	b.Tx = nil
	if cap(b.Buf) > keepBuffer {
		b.Buf, b.Messages = nil, nil
	}
}

// Additions writes as many additions as the size allows, and at least one message.
func (b *Batch) Additions(t *program.Transaction, at *program.Cursor, size int) {
	for t.More(at) && (len(b.Messages) == 0 || len(b.Buf)+maxMessage <= size) {
		list := t.Changes[at.Family][at.Set].Add
		info := MessageInfo{Family: program.Families()[at.Family], Set: at.Set, Element: at.Element}
		at.Element += b.elementMessage(t, info, list, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE)
	}
}

// Wire writes messages to nf_tables into one buffer that is used again for each batch. It exists because
// google/nftables allocates several objects for each element: BenchmarkEncode compares the two, TestWireEqualsLibrary
// checks that the bytes are the same.
type Wire struct{ nlmsg.Writer }

// begin starts a message to nf_tables and returns where it starts.
func (w *Wire) begin(kind uint16, flags uint16, f program.Family) int {
	return w.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, uint8(f), 0)
}

// comment writes user data that is nothing but a comment: one item of type 0 with its length, as nft and libnftnl do.
func (w *Wire) comment(kind uint16, value string) {
	w.Header(kind, len(value)+3)
	w.Buf = append(w.Buf, 0, byte(len(value)+1))
	w.Buf = append(w.Buf, value...)
	w.Buf = append(w.Buf, 0)
	w.Pad()
}

// findUserData is userdata.Get for bytes that any program may have written: the library reads past their end.
func findUserData(udata []byte, kind userdata.Type) []byte {
	for len(udata) >= 2 {
		end := 2 + int(udata[1])
		if end > len(udata) {
			return nil
		}
		if userdata.Type(udata[0]) == kind {
			return udata[2:end]
		}
		udata = udata[end:]
	}
	return nil
}

// readComment reads the comment of a table or an element; empty: it has none.
func readComment(udata []byte) string {
	return strings.TrimRight(string(findUserData(udata, userdata.TypeComment)), "\x00")
}

// tableUserData is NFTA_TABLE_USERDATA (kernel 5.10), which x/sys does not have.
const tableUserData = 6

// NFTA_SET_EXPR (kernel 5.7) and NFTA_SET_EXPRESSIONS (5.11), which x/sys does not have.
const (
	setExpr  = 17
	setExprs = 18
)
