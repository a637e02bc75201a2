package inspect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// This file has the packet's way through the program. It evaluates the very rules that the engine writes, with look-ups
// in the kernel, and notes each step. So it cannot disagree with the program. What depends on chance (the draw of a
// slot) is in pick.go.

// Packet is the first packet of a connection at a hook.
type Packet struct {
	Src, Dst  netip.Addr
	Protocol  uint8
	SrcPort   uint16 // 0: not known
	DstPort   uint16
	Interface string // by which it arrived; "": this node sends it
	Local     bool   // the source is an address of this node
	Returns   bool   // it would leave by Interface, which is no bridge and no VRF
	// Original is the destination before translation; the zero value: the packet was not translated.
	Original netip.AddrPort
	// Balanced: IPVS changed the destination. Connection tracking does not call that a translation.
	Balanced bool
}

// Fate is what a hook does with a packet.
type Fate uint8

// The fates.
const (
	Passed      Fate = iota // nothing
	Translated              // its destination becomes an endpoint
	Masqueraded             // its source becomes an address of this node
	Dropped
	Reset       // a TCP reset is the answer
	Unreachable // an ICMP error is the answer
)

// Step is a rule that looked something up or decided.
type Step struct {
	Chain, Rule string
	Looks       []Look
	Action      string // drop, reject, masquerade, accept; "": none
}

// Look is one look-up.
type Look struct {
	Set     program.SetID
	Key     string // in nft syntax
	Element string // the element that was found, otherwise the key
	Found   bool
	Label   string        // the element's comment
	Number  uint32        // its data, if that is a number
	Expires time.Duration // when its timeout ends; 0: it has none
}

// Passage is a packet's way through the chains of Verdict at one hook.
type Passage struct {
	Steps []Step
	Fate  Fate
	// Policy is the chain whose policy dropped the packet. Another process has changed it.
	Policy string
	Pick   *Pick // how the endpoint is picked, if the packet is translated
}

// Looks are the look-ups of all steps.
func (p *Passage) Looks() (list []Look) {
	for _, s := range p.Steps {
		list = append(list, s.Looks...)
	}
	return list
}

// ErrAsleep means that another process has put a table to sleep: the kernel calls none of its chains.
var ErrAsleep = errors.New("the table sleeps (flags dormant)")

// Walk sends a packet through the base chains of a type ("nat", "filter") at a hook. The error is ErrNoTables if there
// is no table of the packet's family, and ErrAsleep if the table sleeps.
func (t *Tables) Walk(hook, kind string, p Packet) (Passage, error) {
	f := program.FamilyOf(p.Dst)
	v, err := t.view(f)
	if err != nil {
		return Passage{}, err
	}
	was, err := t.kernel.SurveyChains(f)
	if err == nil && was.Asleep() {
		err = ErrAsleep
	}
	if err != nil {
		return Passage{}, fmt.Errorf("read table %s %s: %w", f, program.TableName, err)
	}
	w := &walker{view: v, packet: p, received: hook == "input"}
	for _, c := range v.order {
		if c.Base == nil || c.Base.HookName != hook || c.Base.Kind != kind {
			continue
		}
		if ended, err := w.chain(c.Name); ended || err != nil {
			return w.out, err
		}
		if was.Dropping[c.Name] {
			w.out.Fate, w.out.Policy = Dropped, c.Name
			return w.out, nil
		}
	}
	return w.out, nil
}

// walker evaluates rules for one packet.
type walker struct {
	view      *view
	packet    Packet
	received  bool // by this node: the destination is an address of it
	scratch   uint32
	registers [64]byte
	out       Passage
	looks     []Look
}

// chain evaluates a chain, and reports whether the way of the packet at this hook ended there.
func (w *walker) chain(name string) (ended bool, err error) {
	c, ok := w.view.chains[name]
	if name == program.OvertakenChain {
		return false, nil // nothing changes between the look-ups of a walk
	}
	if !ok {
		return true, w.pick(name)
	}
	for _, r := range c.Rules {
		w.looks = nil
		do, matched, err := w.rule(r)
		if err != nil {
			return true, fmt.Errorf("chain %s: %w", name, err)
		}
		w.note(name, r, do, matched)
		if !matched {
			continue
		}
		switch ended, err := w.follow(do); {
		case err != nil || ended:
			return true, err
		case do.leaves:
			return false, nil
		}
	}
	return false, nil
}

// decision is how a rule that matched ends.
type decision struct {
	fate   Fate
	final  bool   // the way at this hook ends
	leaves bool   // the chain ends
	chain  string // the next chain
	action string
}

func (w *walker) follow(do decision) (ended bool, err error) {
	switch {
	case do.final:
		w.out.Fate = do.fate
		return true, nil
	case do.chain != "":
		return w.chain(do.chain)
	}
	return false, nil
}

func (w *walker) note(chain string, r rule.Rule, do decision, matched bool) {
	if len(w.looks) == 0 && (!matched || do.action == "") {
		return
	}
	s := Step{Chain: chain, Rule: r.String(), Looks: w.looks}
	if matched {
		s.Action = do.action
	}
	w.out.Steps = append(w.out.Steps, s)
}

// rule evaluates a rule, up to the first expression that does not match.
func (w *walker) rule(r rule.Rule) (do decision, matched bool, err error) {
	for _, s := range r {
		for _, e := range s.Exprs {
			matches, err := w.evaluate(e, &do)
			if err != nil || !matches {
				return do, false, err
			}
		}
	}
	return do, true, nil
}

// errExpression means that the program has an expression that the walk does not know: a mistake in this package.
var errExpression = errors.New("the walk does not know this expression")

func (w *walker) evaluate(e expr.Any, do *decision) (bool, error) {
	switch e := e.(type) {
	case *expr.Lookup:
		return w.lookup(e, do)
	case *expr.Cmp:
		equal := bytes.Equal(w.at(e.Register, len(e.Data)), e.Data)
		return equal == (e.Op == expr.CmpOpEq), nil
	case *expr.Bitwise:
		from, to := w.at(e.SourceRegister, int(e.Len)), w.at(e.DestRegister, int(e.Len))
		for i := range to {
			to[i] = from[i]&e.Mask[i] ^ e.Xor[i]
		}
	case *expr.Immediate:
		copy(w.at(e.Register, len(e.Data)), e.Data)
	case *expr.Verdict:
		do.take(e)
	case *expr.Reject:
		*do = decision{fate: Unreachable, final: true, action: "reject"}
		if e.Type == unix.NFT_REJECT_TCP_RST {
			do.fate, do.action = Reset, "reject with tcp reset"
		}
	case *expr.Masq:
		*do = decision{fate: Masqueraded, final: true, action: "masquerade"}
	default:
		return w.load(e)
	}
	return true, nil
}

func (do *decision) take(v *expr.Verdict) {
	switch v.Kind {
	case expr.VerdictDrop:
		*do = decision{fate: Dropped, final: true, action: "drop"}
	case expr.VerdictAccept:
		*do = decision{fate: Passed, final: true, action: "accept"}
	case expr.VerdictReturn:
		do.leaves = true
	case expr.VerdictJump:
		do.chain = v.Chain
	case expr.VerdictGoto:
		if do.chain, do.leaves = v.Chain, true; v.Chain == program.RefuseChain {
			do.action = "refuse" // the rule decides
		}
	}
}

// load evaluates an expression that loads a value of the packet.
func (w *walker) load(e expr.Any) (bool, error) {
	switch e := e.(type) {
	case *expr.Payload:
		header := w.network()
		if e.Base == expr.PayloadBaseTransportHeader {
			header = w.transport()
		}
		w.put(e.DestRegister, header[e.Offset:e.Offset+e.Len])
	case *expr.Meta:
		return true, w.meta(e)
	case *expr.Ct:
		return true, w.conntrack(e)
	case *expr.Fib:
		kind := uint32(unix.RTN_UNICAST)
		if e.FlagSADDR && w.packet.Local || e.FlagDADDR && w.received {
			kind = unix.RTN_LOCAL
		}
		if w.put(e.Register, rule.Native(kind)); e.ResultOIF {
			w.put(e.Register, map[bool][]byte{true: rule.Native(1), false: rule.Native(0)}[w.packet.Returns])
		}
	default:
		return false, fmt.Errorf("%w: %T", errExpression, e)
	}
	return true, nil
}

// network is the network header, as far as rules read it.
func (w *walker) network() []byte {
	p := w.view.program
	header := make([]byte, 40)
	copy(header[rule.SourceOffset(p.Family):], w.packet.Src.AsSlice())
	copy(header[rule.DestinationOffset(p.Family):], w.packet.Dst.AsSlice())
	return header
}

// transport is the header of the first packet of a connection, as far as rules read it.
func (w *walker) transport() []byte {
	header := make([]byte, 20)
	binary.BigEndian.PutUint16(header, w.packet.SrcPort)
	binary.BigEndian.PutUint16(header[2:], w.packet.DstPort)
	header[13] = 0x2 // SYN
	return header
}

func (w *walker) meta(e *expr.Meta) error {
	switch e.Key {
	case expr.MetaKeyPRIORITY:
		if e.SourceRegister {
			w.scratch = binary.NativeEndian.Uint32(w.at(e.Register, 4))
			return nil
		}
		w.put(e.Register, rule.Native(w.scratch))
	case expr.MetaKeyL4PROTO:
		w.put(e.Register, []byte{w.packet.Protocol})
	case expr.MetaKeyIIFNAME:
		name := make([]byte, unix.IFNAMSIZ)
		copy(name, w.packet.Interface)
		w.put(e.Register, name)
	case rule.MetaIIFKind:
		w.put(e.Register, make([]byte, unix.IFNAMSIZ)) // see Packet.Returns
	default:
		return fmt.Errorf("%w: meta %d", errExpression, e.Key)
	}
	return nil
}

func (w *walker) conntrack(e *expr.Ct) error {
	original := netip.AddrPortFrom(w.packet.Dst, w.packet.DstPort)
	status := uint32(0)
	if w.packet.Original.IsValid() {
		original, status = w.packet.Original, rule.StatusDNAT
	}
	if w.packet.Balanced {
		status = 0
	}
	switch e.Key {
	case expr.CtKeySTATE:
		w.put(e.Register, rule.Native(expr.CtStateBitNEW))
	case expr.CtKeySTATUS:
		w.put(e.Register, rule.Native(status))
	case unix.NFT_CT_DST_IP, unix.NFT_CT_DST_IP6:
		w.put(e.Register, original.Addr().AsSlice())
	case expr.CtKeyDIRECTION:
		w.put(e.Register, []byte{0}) // of the original direction: no reply
	case expr.CtKeyPROTODST:
		w.put(e.Register, binary.BigEndian.AppendUint16(nil, original.Port()))
	default:
		return fmt.Errorf("%w: ct %d", errExpression, e.Key)
	}
	return nil
}

// at is the value in a register.
func (w *walker) at(register uint32, length int) []byte {
	start := 4 * (register - rule.FirstRegister)
	return w.registers[start : int(start)+length]
}

// put writes a value into a register. As in the kernel, the rest of the last word becomes zero.
func (w *walker) put(register uint32, value []byte) {
	to := w.at(register, (len(value)+3)&^3)
	clear(to[copy(to, value):])
}

func (w *walker) lookup(e *expr.Lookup, do *decision) (bool, error) {
	if e.SetName == rule.ProtocolsSet {
		return slices.Contains([]uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP}, w.packet.Protocol), nil
	}
	set, ok := program.SetNamed(e.SetName)
	if !ok {
		return false, fmt.Errorf("look up an element of @%s: the program has no such set", e.SetName)
	}
	key := bytes.Clone(w.at(e.SourceRegister, program.KeyLength(w.view.defs[set].Key)))
	look, data, err := w.view.look(set, key)
	if err != nil {
		return false, err
	}
	w.looks = append(w.looks, look)
	switch {
	case e.Invert || !look.Found:
		return e.Invert && !look.Found, nil
	case e.IsDestRegSet && e.DestRegister == unix.NFT_REG_VERDICT:
		do.chain, do.leaves = string(data), true
	case e.IsDestRegSet:
		w.put(e.DestRegister, data)
	}
	return true, nil
}
