package nft

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// What the program does for frontends that IPVS serves: their packets pass the translation untouched, are not refused
// where they reach this host, and on their way to the endpoint get the masquerading that translated ones get.
//
// IPVS takes packets to this host behind the input filter (priority 99), those that the host sends just behind the
// translation (-98), and sends both on through output and postrouting, with the tuple before IPVS as "ct original"
// (needs net.ipv4.vs.conntrack=1).

const untranslatedChain = "untranslated"

// untranslated ends the matter for a packet that nobody has translated.
func (p program) untranslated() rule {
	if p.ipvs {
		return rule{isNotTranslated(), jump(untranslatedChain)}
	}
	return rule{isNotTranslated(), returnNow()}
}

// toGuarded masquerades what this host sends to a Service at an address that is local for IPVS. In IPv4 it has that very
// address as its source, which means another host, or the endpoint's own, to whoever answers; in IPv6 any address of this
// host, which need not be one of the link that it leaves by. That is so for as long as the address is local, whichever engine
// serves the port: while a virtual server drains it is nft.
func (p program) toGuarded() rule {
	return rule{in(setIPVSAddresses, p.originalDaddr()), fromThisNode(), masquerade()}
}

// untranslatedChain returns with packets that IPVS has balanced, and accepts all others.
func (p program) untranslatedChain() chainDef {
	var rules []rule
	for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		is := isProtocol(proto)
		original := key{p.originalDaddr(), l4proto(), originalDport()}
		rules = append(rules,
			rule{is, in(setIPVSFrontends, original...), returnNow()},
			rule{is, in(setNodePortAddresses, p.originalDaddr()), in(setIPVSNodePorts, original[1:]...), returnNow()})
	}
	return chainDef{name: untranslatedChain, rules: append(rules, rule{accept()})}
}

// Guard protects addresses that are about to become local for IPVS: from now on only frontends can be reached there. It
// does not wait for Apply, because an address must not be local for a moment without its guard. False means that there
// is no table yet that could protect them: then they are protected after the next Apply, and nothing is served before it.
func (e *Engine) Guard(addrs []netip.Addr) (bool, error) {
	t := &Transaction{}
	ready := true
	for _, tb := range e.active {
		fresh := tb.guard(addrs)
		if e.rebuild { // it is not known what the kernel has
			fresh = slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return FamilyOf(a) != tb.family })
		}
		if len(fresh) == 0 {
			continue
		}
		there, err := e.hasGuards(tb)
		if err != nil {
			return false, err
		}
		ready = ready && there
		for _, a := range fresh {
			t.add(tb.family, idIPVSAddresses, t.element("", func(b *builder) { b.addr(a) }, nil))
		}
	}
	if !ready || t.Empty() {
		e.rebuild = e.rebuild || !ready
		e.discardIfRebuilding()
		return ready, nil
	}
	if err := e.sendApart(t); err != nil {
		e.rebuild = true
		e.discardIfRebuilding()
		return false, fmt.Errorf("guard addresses of IPVS: %w", err)
	}
	return true, nil
}

// hasGuards says whether the kernel's table has the set of guarded addresses, and rules that read it: a chain with fewer
// rules than every program has is that of an earlier version without IPVS, or has been flushed.
func (e *Engine) hasGuards(tb *table) (bool, error) {
	if !e.rebuild {
		return true, nil
	}
	was, err := e.conn.survey(tb.family)
	if err != nil {
		return false, fmt.Errorf("read table %s %s: %w", tb.family, TableName, err)
	}
	_, hooked := was.chains["filter-input"] // it comes last when a table is made anew
	reads := was.rules[unservedChain] >= len(program{family: tb.family}.unserved())
	return hooked && reads && was.hasSet(&tb.defs[idIPVSAddresses]), nil
}

// sendApart sends a transaction that is no part of the collected changes.
func (e *Engine) sendApart(t *Transaction) error {
	var b batch
	if err := b.encode(t); err != nil {
		return err
	}
	outcome, why, err := e.conn.send(&b)
	switch {
	case why != nil:
		return fmt.Errorf("nf_tables refused %s: %w", b.blame(t, why), why.Err())
	case outcome != Applied && err == nil:
		return fmt.Errorf("outcome %s", outcome)
	}
	return err
}

// Unguard gives up the protection with the next Apply: the addresses are no longer local.
func (e *Engine) Unguard(addrs []netip.Addr) {
	for _, tb := range e.active {
		tb.unguard(addrs)
	}
}

// guard takes note of addresses and returns those that are new.
func (tb *table) guard(addrs []netip.Addr) []netip.Addr {
	var fresh []netip.Addr
	for _, a := range addrs {
		if FamilyOf(a) != tb.family {
			continue
		}
		leaving := tb.unguarded[a]
		delete(tb.unguarded, a)
		if !tb.guarded[a] {
			tb.guarded[a] = true
			if !leaving {
				fresh = append(fresh, a)
			}
		}
	}
	return fresh
}

func (tb *table) unguard(addrs []netip.Addr) {
	for _, a := range addrs {
		if tb.guarded[a] {
			delete(tb.guarded, a)
			tb.unguarded[a] = true
		}
	}
}

// writeGuards writes that guards are gone. New ones are in the kernel already.
func (tb *table) writeGuards(t *Transaction) {
	for _, a := range slices.SortedFunc(maps.Keys(tb.unguarded), netip.Addr.Compare) {
		t.del(tb.family, idIPVSAddresses, t.element("", func(b *builder) { b.addr(a) }, nil))
	}
	if len(tb.unguarded) > 0 {
		tb.unguarded = map[netip.Addr]bool{}
	}
}

// buildGuards writes all of them.
func (tb *table) buildGuards(t *Transaction) {
	tb.unguarded = map[netip.Addr]bool{}
	for _, a := range slices.SortedFunc(maps.Keys(tb.guarded), netip.Addr.Compare) {
		t.add(tb.family, idIPVSAddresses, t.element("", func(b *builder) { b.addr(a) }, nil))
	}
}
