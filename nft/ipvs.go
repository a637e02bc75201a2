package nft

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// This file has what the program does for frontends that IPVS serves. The nat chains do not translate their packets,
// the filter chains do not refuse them, and postrouting masquerades them as it masquerades translated ones.
//
// In the input hook, IPVS takes packets after the filter chains (priority 99). In the output hook, it takes them just
// after the translation (priority -98). It sends both on through the hooks output and postrouting. There, "ct
// original" is the destination before IPVS, if the sysctl net.ipv4.vs.conntrack is 1.

const untranslatedChain = "untranslated"

// untranslated is the rule for packets that were not translated. Without IPVS, they need no masquerading.
func (p program) untranslated() rule {
	if p.ipvs {
		return rule{isNotTranslated(), jump(untranslatedChain)}
	}
	return rule{isNotTranslated(), returnNow()}
}

// toGuarded masquerades packets that this host sends to a Service at an address that is local for IPVS. An IPv4 packet
// has that very address as its source, and the endpoint would answer another host, or itself. An IPv6 packet may have
// any address of this host, even one that does not belong to the link that it leaves by. The rule applies while the
// address is local, whichever engine serves the port: while a virtual server drains, nft serves it.
func (p program) toGuarded() rule {
	return rule{in(setIPVSAddresses, p.originalDaddr()), fromThisNode(), masquerade()}
}

// untranslatedChain returns for packets that IPVS has balanced, so that they may be masqueraded. It accepts all others.
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

// Guard protects addresses before they become local for IPVS: from now on, clients reach only frontends there. Guard
// sends its own transaction and does not wait for Apply, because an address must never be local without its guard. If
// there is no table yet that can protect the addresses, Guard returns false, and they are protected after the next
// Apply.
func (e *Engine) Guard(addrs []netip.Addr) (bool, error) {
	t := &Transaction{}
	ready := true
	for _, tb := range e.active {
		fresh := tb.guard(addrs)
		if e.rebuild { // the kernel's elements are unknown
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
		return false, fmt.Errorf("guard %d addresses of IPVS: %w; the next transaction compares everything with the kernel",
			len(addrs), err)
	}
	return true, nil
}

// hasGuards reports whether the kernel's table has the set of guarded addresses, and the rules that look it up. A chain
// with fewer rules than the smallest program has was flushed, or is from an earlier version without IPVS.
func (e *Engine) hasGuards(tb *table) (bool, error) {
	if !e.rebuild {
		return true, nil
	}
	was, err := e.conn.survey(tb.family)
	if err != nil {
		return false, fmt.Errorf("read table %s %s: %w", tb.family, TableName, err)
	}
	_, hooked := was.chains["filter-input"] // a new table gets it last
	reads := was.rules[unservedChain].count >= len(program{family: tb.family}.unserved())
	return hooked && reads && was.hasSet(&tb.defs[idIPVSAddresses]), nil
}

// sendApart sends a transaction that is not a part of the collected changes.
func (e *Engine) sendApart(t *Transaction) error {
	if e.whole = (families{}); !e.rebuild { // otherwise the present stamps are unknown
		e.stampAll(t)
	}
	var b batch
	if err := b.encode(t); err != nil {
		return err
	}
	outcome, why, err := e.conn.send(&b)
	if outcome == Applied && !e.rebuild {
		for _, tb := range e.active {
			e.counts.note(t, tb.family, false)
		}
		e.keepStamps()
	}
	switch {
	case why != nil:
		return fmt.Errorf("nf_tables refused %s: %w", b.blame(t, why), why.Err())
	case outcome != Applied && err == nil:
		return fmt.Errorf("outcome %s", outcome)
	}
	return err
}

// Unguard ends the protection of addresses that are no longer local. The next Apply does it.
func (e *Engine) Unguard(addrs []netip.Addr) {
	for _, tb := range e.active {
		tb.unguard(addrs)
	}
}

// guard notes addresses and returns those that the kernel does not have yet.
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

// writeGuards deletes the guards that have ended. New guards are in the kernel already.
func (tb *table) writeGuards(t *Transaction) {
	for _, a := range slices.SortedFunc(maps.Keys(tb.unguarded), netip.Addr.Compare) {
		t.del(tb.family, idIPVSAddresses, t.element("", func(b *builder) { b.addr(a) }, nil))
	}
	if len(tb.unguarded) > 0 {
		tb.unguarded = map[netip.Addr]bool{}
	}
}

// buildGuards writes all guards.
func (tb *table) buildGuards(t *Transaction) {
	tb.unguarded = map[netip.Addr]bool{}
	for _, a := range slices.SortedFunc(maps.Keys(tb.guarded), netip.Addr.Compare) {
		t.add(tb.family, idIPVSAddresses, t.element("", func(b *builder) { b.addr(a) }, nil))
	}
}
