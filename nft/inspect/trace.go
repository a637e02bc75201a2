package inspect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// Trace follows the packets of one flow.
type Trace struct {
	conn   *kernel.Conn // owns the table
	events *kernel.Conn
	family program.Family
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
func OpenTrace(o kernel.Options, flow program.Flow) (*Trace, error) {
	c, err := kernel.Dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	t := &Trace{conn: c, family: program.FamilyOf(flow.Dst)}
	if t.events, err = kernel.Dial(o.NetNS); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := t.start(flow); err != nil {
		return nil, errors.Join(fmt.Errorf("trace packets to %s: %w", flow.Dst, err), t.Close())
	}
	return t, nil
}

func (t *Trace) start(flow program.Flow) (err error) {
	if t.texts, err = newRuleBook(t.conn, t.family); err != nil {
		return err
	}
	if err := t.events.Subscribe(unix.NFNLGRP_NFTRACE); err != nil {
		return err
	}
	return t.write(flow)
}

// write adds the table in place of one that an earlier trace may have left.
func (t *Trace) write(flow program.Flow) error {
	tx := &program.Transaction{}
	put := func(o program.Operation) {
		o.Family, o.Table = t.family, program.TraceTableName
		tx.Do(o)
	}
	const comment = "of verdict explain --trace"
	if left, err := t.left(); err != nil {
		return err
	} else if left {
		put(program.Operation{Kind: program.DeleteTable})
	}
	put(program.Operation{Kind: program.AddTable, Name: comment, Flags: program.OwnerFlag})
	for _, chain := range program.TraceChains(flow) {
		put(program.Operation{Kind: program.AddChain, Name: chain.Name, Chain: &chain})
		put(program.Operation{Kind: program.AddRule, Name: chain.Name, Rule: chain.Rules[0]})
	}
	return t.send(tx)
}

// left reports whether there is a table of an earlier trace.
func (t *Trace) left() (found bool, err error) {
	name := func(w *nlmsg.Writer) { w.Text(unix.NFTA_TABLE_NAME, program.TraceTableName) }
	err = t.conn.Ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK, t.family, name, func(nlmsg.Attributes) { found = true })
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return found, err
}

// send sends a transaction that belongs to no engine.
func (t *Trace) send(tx *program.Transaction) error {
	_, err := kernel.SendAlone(t.conn, tx)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: the table %s belongs to a trace that runs; wait for its end", err, program.TraceTableName)
	}
	return err
}

// Close removes the table.
func (t *Trace) Close() error {
	tx := &program.Transaction{}
	var err error
	if left, leftErr := t.left(); left && leftErr == nil {
		tx.Do(program.Operation{Kind: program.DeleteTable, Family: t.family, Table: program.TraceTableName})
		err = t.send(tx)
	}
	return errors.Join(err, t.conn.Close(), t.events.Close())
}

// Next waits for events until the context ends, or for some time. No event and no error: the time is over.
func (t *Trace) Next(ctx context.Context, wait time.Duration) (out []TraceEvent, err error) {
	if err := t.events.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return nil, fmt.Errorf("set read deadline: %w", err)
	}
	m, err := t.events.Hear(ctx)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), ctx.Err() != nil:
		return nil, nil //nolint:nilerr // the time is over
	case errors.Is(err, unix.ENOBUFS):
		return nil, errors.New("the kernel dropped trace events, because there are too many; " +
			"name the source port, or trace a quieter client")
	case err != nil:
		return nil, fmt.Errorf("receive trace events: %w", err)
	}
	for m.Next() {
		if m.Kind != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE || len(m.Body) == 0 {
			continue
		}
		out = append(out, t.decode(program.Family(m.Body[0]), m.Attributes()))
	}
	return out, m.Err()
}

func (t *Trace) decode(f program.Family, a nlmsg.Attributes) TraceEvent {
	e := TraceEvent{
		ID: a.Find(unix.NFTA_TRACE_ID).Uint32(), Family: familyText(f), Table: a.Find(unix.NFTA_TRACE_TABLE).Text(),
		Chain: a.Find(unix.NFTA_TRACE_CHAIN).Text(), Verdict: verdictText(a.Find(unix.NFTA_TRACE_VERDICT).Nested()),
	}
	if policy := a.Find(unix.NFTA_TRACE_POLICY); policy.Value != nil {
		e.Verdict = verdictName(int32(policy.Uint32()))
	}
	e.FromTraceRule = e.Table == program.TraceTableName
	e.readHeaders(t.family, a.Find(unix.NFTA_TRACE_NETWORK_HEADER).Value, a.Find(unix.NFTA_TRACE_TRANSPORT_HEADER).Value)
	t.describe(&e, a.Find(unix.NFTA_TRACE_TYPE).Uint32(), a.Find(unix.NFTA_TRACE_RULE_HANDLE).Uint64())
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

func (e *TraceEvent) readHeaders(f program.Family, network, transport []byte) {
	p, n := program.Program{Family: f}, uint32(f.AddrLen())
	if uint32(len(network)) < rule.DestinationOffset(p.Family)+n || len(transport) < 4 {
		return
	}
	src, _ := netip.AddrFromSlice(network[rule.SourceOffset(p.Family):][:n])
	dst, _ := netip.AddrFromSlice(network[rule.DestinationOffset(p.Family):][:n])
	e.Src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(transport))
	e.Dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(transport[2:]))
}

func verdictText(a nlmsg.Attributes) string {
	code, chain := a.Find(unix.NFTA_VERDICT_CODE), a.Find(unix.NFTA_VERDICT_CHAIN)
	if code.Value == nil {
		return ""
	}
	return strings.TrimSpace(verdictName(int32(code.Uint32())) + " " + chain.Text())
}

func verdictName(code int32) string {
	names := map[int32]string{
		kernel.VerdictDrop: "drop", kernel.VerdictAccept: "accept", 2: "stolen", 3: "queue", 4: "repeat",
		unix.NFT_CONTINUE: "continue", unix.NFT_BREAK: "break", unix.NFT_JUMP: "jump", unix.NFT_GOTO: "goto", unix.NFT_RETURN: "return",
	}
	if name, ok := names[code]; ok {
		return name
	}
	return fmt.Sprint(code)
}

// ruleBook knows what the rules with given handles do.
type ruleBook struct {
	conn  *kernel.Conn
	ours  map[uint64]ruleText                         // rules of Verdict
	other map[[3]string]map[uint64]kernel.RuleSummary // by family, table and chain
	// family of the traced packets.
	family program.Family
}

// ruleText is a rule and what it does.
type ruleText struct {
	text                             string
	rejects, masquerades, translates bool
}

// newRuleBook reads the handles of the rules of Verdict. Their texts are those of the program, which has the same rules in
// the same order.
func newRuleBook(c *kernel.Conn, f program.Family) (*ruleBook, error) {
	r := &ruleBook{conn: c, ours: map[uint64]ruleText{}, other: map[[3]string]map[uint64]kernel.RuleSummary{}, family: f}
	tables := NewTables(c, nil)
	v, err := tables.view(f)
	if err != nil {
		return r, nil //nolint:nilerr // without tables of this version there are handles instead of texts
	}
	handles := map[string][]uint64{}
	err = c.Dump(unix.NFT_MSG_GETRULE, f, func(w *nlmsg.Writer) { w.Text(unix.NFTA_RULE_TABLE, program.TableName) }, func(a nlmsg.Attributes) {
		chain := a.Find(unix.NFTA_RULE_CHAIN).Text()
		handles[chain] = append(handles[chain], a.Find(unix.NFTA_RULE_HANDLE).Uint64())
	})
	for chain, list := range handles {
		r.name(v.program.ChainNamed(chain), list)
	}
	return r, err
}

// name gives the rules of a chain their texts, if there are as many as the program has.
func (r *ruleBook) name(c program.Chain, handles []uint64) {
	if len(c.Rules) != len(handles) {
		return
	}
	for i, handle := range handles {
		text := c.Rules[i].String()
		r.ours[handle] = ruleText{
			text: text, rejects: strings.Contains(text, "reject"), masquerades: strings.Contains(text, "masquerade fully"),
			translates: strings.Contains(text, "dnat "),
		}
	}
}

// of is what a rule does.
func (r *ruleBook) of(family, table, chain string, handle uint64) ruleText {
	if t, ok := r.ours[handle]; ok && table == program.TableName && family == r.family.String() {
		return t
	}
	at := [3]string{family, table, chain}
	if r.other[at] == nil {
		r.other[at] = r.read(at)
	}
	rule := r.other[at][handle]
	text := fmt.Sprintf("rule with handle %d", handle)
	if rule.Action != "" {
		text += ": " + rule.Action
	}
	return ruleText{
		text: text, rejects: strings.HasPrefix(rule.Action, "reject"),
		masquerades: strings.EqualFold(rule.Action, "masquerade") || strings.EqualFold(rule.Action, "snat"),
		translates:  strings.EqualFold(rule.Action, "dnat") || strings.EqualFold(rule.Action, "redirect"),
	}
}

// read reads the rules of a chain of another table. What cannot be read has no description.
func (r *ruleBook) read(at [3]string) map[uint64]kernel.RuleSummary {
	out := map[uint64]kernel.RuleSummary{}
	_ = otherRules(r.conn, at[0], at[1], at[2], func(rule kernel.RuleSummary) { out[rule.Handle] = rule })
	return out
}
