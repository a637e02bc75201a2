package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/nft/inspect"
	nftkernel "github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// path follows the packet through the chains of Verdict.
type path struct {
	kernel
	*Explanation
	q      question
	packet inspect.Packet
	// stays: it comes by a bridge that keeps connections from the fast path.
	stays bool
	// missing: there is no table of Verdict, or it sleeps, so nothing of it acts.
	missing bool
}

// origin finds out by which way the packet comes in.
func (x *path) origin() (bool, error) {
	x.packet = inspect.Packet{Src: x.q.src, Dst: x.q.dst.Addr(), Protocol: x.q.protocol, SrcPort: x.q.srcPort, DstPort: x.q.dst.Port()}
	back, err := x.Route(x.q.src)
	if err != nil {
		return false, err
	}
	how := "is sent by this node"
	if x.packet.Local = back.local; !back.local {
		x.packet.Interface, x.stays = back.link, back.stays
		if x.q.link != "" {
			x.packet.Interface = x.q.link
		}
		how = "comes in by " + x.packet.Interface
		if x.packet.Interface == "" {
			how = "comes from an address to which this node has no route"
		}
		way, err := x.Route(x.q.dst.Addr())
		if err != nil {
			return false, err
		}
		x.packet.Returns = way.link != "" && way.link == x.packet.Interface && !way.ports
	}
	x.add("packet", fmt.Sprintf("%s %s.", &x.q, how))
	return false, nil
}

// firstHook is the hook at which destinations are translated.
func (x *path) firstHook() string {
	if x.packet.Local {
		return "output"
	}
	return "prerouting"
}

// walk sends the packet through the chains at a hook. Without tables, and while they sleep, nothing happens.
func (x *path) walk(hook, kind string, p inspect.Packet) (inspect.Passage, error) {
	passage, err := x.Walk(hook, kind, p)
	switch {
	case errors.Is(err, nftkernel.ErrNoTables):
		x.without(fmt.Sprintf("There is no table %s verdict: Verdict has not run here, or its rules were removed.", x.q.family()))
	case errors.Is(err, inspect.ErrAsleep):
		x.without(fmt.Sprintf("Table %s verdict sleeps (flags dormant), so no rule of it sees packets. Another process has put it to sleep; "+
			"\"verdict run\" wakes it, unless it has --repair=false.", x.q.family()))
	default:
		return passage, err
	}
	return inspect.Passage{}, nil
}

// without notes, once, why no rule of Verdict acts.
func (x *path) without(why string) {
	if !x.missing {
		x.missing = true
		x.add("tables", why)
	}
}

// droppedByPolicy reports whether a base chain of Verdict drops the packet by its policy, and says so.
func (x *path) droppedByPolicy(p inspect.Passage) bool {
	if p.Policy == "" {
		return false
	}
	chain := fmt.Sprintf("%s verdict %s", x.q.family(), p.Policy)
	x.add("policy", fmt.Sprintf("Chain %s drops it by its policy, which is accept in the program. Another process has changed it; "+
		"\"verdict run\" changes it back, unless it has --repair=false.", chain), chain+": policy drop")
	x.Verdict = Verdict{}
	x.end(Dropped, "the policy of chain "+chain)
	return true
}

func (x *path) end(outcome Outcome, by string) {
	x.Verdict.Outcome, x.Verdict.By = outcome, by
}

// element is an element in the syntax of "nft get element".
func (x *path) element(l inspect.Look) string {
	return fmt.Sprintf("%s verdict %s { %s }", x.q.family(), l.Set, l.Element)
}

// rules are the rules that decided, with their chains.
func (x *path) rules(p inspect.Passage) (out []string) {
	for _, s := range p.Steps {
		if s.Action != "" {
			out = append(out, fmt.Sprintf("%s verdict %s: %s", x.q.family(), s.Chain, s.Rule))
		}
	}
	return out
}

func (x *path) at() string {
	return netip.AddrPortFrom(x.packet.Dst, x.packet.DstPort).String() + "/" + protocolName(x.packet.Protocol)
}

// stoppedByPolicy follows a translated packet through the filter chains. Their rules let it pass, unless it goes to a range of Services.
func (x *path) stoppedByPolicy(hooks []string, end netip.AddrPort) (bool, error) {
	for _, hook := range hooks {
		p, err := x.walk(hook, "filter", x.toEndpoint(end))
		if err != nil || x.droppedByPolicy(p) {
			return true, err
		}
		if p.Fate != inspect.Passed {
			x.add("refusal", fmt.Sprintf("%s is in a range of Services (a ServiceCIDR, or --load-balancer-cidrs).", end), x.rules(p)...)
			x.Verdict = Verdict{}
			x.end(map[bool]Outcome{true: Dropped, false: Refused}[p.Fate == inspect.Dropped], "an endpoint in a range of Services")
			return true, nil
		}
	}
	return false, nil
}

// toEndpoint is the packet after its translation.
func (x *path) toEndpoint(end netip.AddrPort) inspect.Packet {
	p := x.packet
	p.Original, p.Dst, p.DstPort = x.q.dst, end.Addr(), end.Port()
	return p
}

// hooksAfter are the hooks that a packet passes after the translation.
func (x *path) hooksAfter(way route) []string {
	switch {
	case x.packet.Local && way.local:
		return []string{"output", "input"}
	case x.packet.Local:
		return []string{"output"}
	case way.local:
		return []string{"input"}
	}
	return []string{"forward"}
}

// unforwarded reports whether the kernel drops the packet because it forwards none, and says so.
func (x *path) unforwarded(way route) bool {
	if way.off == "" || x.packet.Local || way.local {
		return false
	}
	x.add("forwarding", "This node forwards no packets to other hosts and pods: "+way.off+" is 0.")
	x.Verdict = Verdict{}
	x.end(Dropped, way.off+"=0")
	return true
}

// found is the look-up that found what a set says about frontends.
func found(p inspect.Passage, any ...program.Says) (inspect.Look, bool) {
	return hit(p.Looks(), func(l inspect.Look) bool { return slices.Contains(any, l.Set.Says()) })
}

// foundIn is the look-up in a set that found something.
func foundIn(p inspect.Passage, set program.SetID) (inspect.Look, bool) {
	return hit(p.Looks(), func(l inspect.Look) bool { return l.Set == set })
}

func hit(list []inspect.Look, is func(inspect.Look) bool) (l inspect.Look, ok bool) {
	i := slices.IndexFunc(list, func(l inspect.Look) bool { return l.Found && is(l) })
	if i < 0 {
		return l, false
	}
	return list[i], true
}

// question is one connection.
type question struct {
	src      netip.Addr
	srcPort  uint16 // 0: any
	dst      netip.AddrPort
	protocol uint8
	// link is the interface by which packets come in, if the source does not tell: for clients outside.
	link string
}

func (q *question) family() program.Family { return program.FamilyOf(q.dst.Addr()) }

func (q *question) String() string {
	return fmt.Sprintf("%s from %s to %s", strings.ToUpper(protocolName(q.protocol)), q.client(), q.dst)
}

func (q *question) client() string {
	if q.srcPort != 0 {
		return netip.AddrPortFrom(q.src, q.srcPort).String()
	}
	return q.src.String()
}

const sourceForm = "an address (also ADDRESS:PORT), node, outside or pod/NAMESPACE/NAME"

func protocolName(p uint8) string { return state.Protocol(p).String() }
