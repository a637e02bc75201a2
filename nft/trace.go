package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// A trace sets nftrace for the packets of one flow, and follows what the kernel says about them. Its rules are in a table
// of its own. The table belongs to the socket (tableOwner), so the kernel removes it however the process ends. Linux
// before 5.12 has no owners; there, only an orderly end removes the table.

// TraceTableName is the name of the table of a trace.
const TraceTableName = "verdict-trace"

// tracePriority is before all chains but those that see packets before defragmentation.
const tracePriority = -390

// Trace follows the packets of one flow.
type Trace struct {
	conn   *conn // owns the table
	events *conn
	family Family
	texts  *ruleBook
}

// TraceEvent is what one rule, or the policy of a chain, did with a packet.
type TraceEvent struct {
	ID            uint32 // of the packet
	Family        string
	Table, Chain  string
	Rule          string // its text for a rule of Verdict, otherwise its handle and what it does; "policy"
	Verdict       string // accept, drop, continue, jump CHAIN, ...
	Translates    bool   // the rule translates the destination
	Masquerades   bool   // the rule replaces the source
	Rejects       bool
	Src, Dst      netip.AddrPort // as the packet is at this hook; the zero value: the kernel did not say
	FromTraceRule bool           // the event is about the rule that sets nftrace
}

// OpenTrace adds the table. The caller closes the trace, which removes the table.
func OpenTrace(o Options, p Packet, srcPort uint16) (*Trace, error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	t := &Trace{conn: c, family: FamilyOf(p.Dst)}
	if t.events, err = dial(o.NetNS); err != nil {
		return nil, errors.Join(err, c.close())
	}
	if err := t.start(p, srcPort); err != nil {
		return nil, errors.Join(fmt.Errorf("trace packets to %s: %w", p.Dst, err), t.Close())
	}
	return t, nil
}

func (t *Trace) start(p Packet, srcPort uint16) (err error) {
	if t.texts, err = t.conn.ruleBook(t.family); err != nil {
		return err
	}
	if err := t.events.sock.SetsockoptInt(unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTRACE); err != nil {
		return fmt.Errorf("subscribe to trace events: %w", err)
	}
	err = t.write(p, srcPort, tableOwner)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		err = t.write(p, srcPort, 0) // the kernel has no owners
	}
	return err
}

// write adds the table in place of one that an earlier trace may have left.
func (t *Trace) write(p Packet, srcPort uint16, flags uint32) error {
	tx := &Transaction{}
	put := func(o operation) {
		o.family, o.table = t.family, TraceTableName
		tx.operation(o)
	}
	const comment = "of verdict explain --trace"
	if left, err := t.left(); err != nil {
		return err
	} else if left {
		put(operation{kind: opDeleteTable})
	}
	put(operation{kind: opAddTable, name: comment, flags: flags})
	for hook, name := range map[uint32]string{unix.NF_INET_PRE_ROUTING: "prerouting", unix.NF_INET_LOCAL_OUT: "output"} {
		chain := chainDef{name: name, base: filterBase(hook, name, tracePriority, fmt.Sprint(tracePriority))}
		put(operation{kind: opAddChain, name: name, chain: &chain})
		put(operation{kind: opAddRule, name: name, rule: traceRule(p, srcPort)})
	}
	return t.conn.sendAll(tx)
}

// left reports whether there is a table of an earlier trace.
func (t *Trace) left() (found bool, err error) {
	name := func(w *wire) { w.Text(unix.NFTA_TABLE_NAME, TraceTableName) }
	err = t.conn.ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK, t.family, name, func(nlmsg.Attributes) { found = true })
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return found, err
}

// sendAll sends a transaction that belongs to no engine.
func (c *conn) sendAll(t *Transaction) error {
	var b batch
	if err := b.encode(t); err != nil {
		return err
	}
	_, why, err := c.send(&b)
	if why != nil {
		if errors.Is(why.Err(), unix.EPERM) {
			return fmt.Errorf("%w: the table %s belongs to a trace that runs; wait for its end", why.Err(), TraceTableName)
		}
		return fmt.Errorf("nf_tables refused %s: %w", b.blame(t, why), why.Err())
	}
	return err
}

// traceRule sets nftrace for the packets of one flow.
func traceRule(p Packet, srcPort uint16) rule {
	prog := program{family: FamilyOf(p.Dst)}
	header := func(name string, offset uint32, value []byte) statement {
		load := &expr.Payload{
			DestRegister: firstRegister, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(value)),
		}
		return compare(name, load, nil, expr.CmpOpEq, value)
	}
	port := func(name string, offset uint32, number uint16) statement {
		load := &expr.Payload{DestRegister: firstRegister, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2}
		return compare(name, load, nil, expr.CmpOpEq, binary.BigEndian.AppendUint16(nil, number))
	}
	r := rule{
		isProtocol(p.Protocol),
		header("saddr "+p.Src.String(), prog.saddrOffset(), p.Src.AsSlice()),
		header("daddr "+p.Dst.String(), prog.daddrOffset(), p.Dst.AsSlice()),
		port("dport", 2, p.DstPort),
	}
	if srcPort != 0 {
		r = append(r, port("sport", 0, srcPort))
	}
	return append(r, statement{text: "meta nftrace set 1", exprs: []expr.Any{
		&expr.Immediate{Register: firstRegister, Data: []byte{1}},
		&expr.Meta{Key: unix.NFT_META_NFTRACE, SourceRegister: true, Register: firstRegister},
	}})
}

// Close removes the table.
func (t *Trace) Close() error {
	tx := &Transaction{}
	var err error
	if left, leftErr := t.left(); left && leftErr == nil {
		tx.operation(operation{kind: opDeleteTable, family: t.family, table: TraceTableName})
		err = t.conn.sendAll(tx)
	}
	return errors.Join(err, t.conn.close(), t.events.close())
}

// Next waits for events until the context ends, or for some time. No event and no error: the time is over.
func (t *Trace) Next(ctx context.Context, wait time.Duration) (out []TraceEvent, err error) {
	if err := t.events.sock.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return nil, fmt.Errorf("set read deadline: %w", err)
	}
	n, _, err := t.events.sock.Recvfrom(ctx, t.events.answers, 0)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), ctx.Err() != nil:
		return nil, nil //nolint:nilerr // the time is over
	case errors.Is(err, unix.ENOBUFS):
		return nil, errors.New("the kernel dropped trace events, because there are too many; " +
			"name the source port, or trace a quieter client")
	case err != nil:
		return nil, fmt.Errorf("receive trace events: %w", err)
	}
	m := nlmsg.NewMessages(t.events.answers[:n])
	for m.Next() {
		if m.Kind != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE || len(m.Body) == 0 {
			continue
		}
		out = append(out, t.decode(Family(m.Body[0]), m.Attributes()))
	}
	return out, m.Err()
}

func (t *Trace) decode(f Family, a nlmsg.Attributes) (e TraceEvent) {
	var handle uint64
	var kind uint32
	var network, transport []byte
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_TRACE_ID:
			e.ID = a.Uint32()
		case unix.NFTA_TRACE_TABLE:
			e.Table = a.Text()
		case unix.NFTA_TRACE_CHAIN:
			e.Chain = a.Text()
		case unix.NFTA_TRACE_RULE_HANDLE:
			handle = number64(a.Value)
		case unix.NFTA_TRACE_TYPE:
			kind = a.Uint32()
		case unix.NFTA_TRACE_VERDICT:
			e.Verdict = verdictText(a.Nested())
		case unix.NFTA_TRACE_POLICY:
			e.Verdict = verdictName(int32(a.Uint32()))
		case unix.NFTA_TRACE_NETWORK_HEADER:
			network = a.Value
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			transport = a.Value
		}
	}
	e.Family, e.FromTraceRule = familyText(f), e.Table == TraceTableName
	e.readHeaders(t.family, network, transport)
	t.describe(&e, kind, handle)
	return e
}

// Kinds of trace events (linux/netfilter/nf_tables.h).
const (
	tracePolicy = 1
	traceReturn = 2
)

func (t *Trace) describe(e *TraceEvent, kind uint32, handle uint64) {
	switch kind {
	case tracePolicy:
		e.Rule = "policy"
		return
	case traceReturn:
		e.Rule = "end of chain"
		return
	}
	does := t.texts.of(e.Family, e.Table, e.Chain, handle)
	e.Rule = does.text
	e.Rejects, e.Masquerades, e.Translates = does.rejects, does.masquerades, does.translates
}

func (e *TraceEvent) readHeaders(f Family, network, transport []byte) {
	p, n := program{family: f}, uint32(f.addrLen())
	if uint32(len(network)) < p.daddrOffset()+n || len(transport) < 4 {
		return
	}
	src, _ := netip.AddrFromSlice(network[p.saddrOffset():][:n])
	dst, _ := netip.AddrFromSlice(network[p.daddrOffset():][:n])
	e.Src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(transport))
	e.Dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(transport[2:]))
}

func verdictText(a nlmsg.Attributes) (text string) {
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_VERDICT_CODE:
			text = verdictName(int32(a.Uint32()))
		case unix.NFTA_VERDICT_CHAIN:
			text += " " + a.Text()
		}
	}
	return text
}

func verdictName(code int32) string {
	names := map[int32]string{
		verdictDrop: "drop", verdictAccept: "accept", 2: "stolen", 3: "queue", 4: "repeat",
		unix.NFT_CONTINUE: "continue", unix.NFT_BREAK: "break", unix.NFT_JUMP: "jump", unix.NFT_GOTO: "goto", unix.NFT_RETURN: "return",
	}
	if name, ok := names[code]; ok {
		return name
	}
	return fmt.Sprint(code)
}
