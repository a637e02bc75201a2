package explain

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/nft"
)

// explainer collects the steps of one connection.
type explainer struct {
	kernel
	*Explanation
	q      question
	packet nft.Packet
	others []nft.OtherChain
	// missing: there is no table of Verdict, or it sleeps, so nothing of it acts.
	missing bool
	// told is what the daemon says about the endpoints of the Service.
	told    []socket.Endpoint
	toldErr error
	asked   bool
}

// explain says what becomes of a connection.
func explain(k kernel, q question) (*Explanation, error) {
	x := &explainer{kernel: k, q: q, Explanation: &Explanation{
		Source: q.src, SourcePort: q.srcPort, Destination: q.dst, Protocol: protocolName(q.protocol),
	}}
	for _, step := range []func() (done bool, err error){
		x.origin, x.connection, x.readOthers, x.beforeTranslation, x.translation,
	} {
		done, err := step()
		if err != nil {
			return nil, fmt.Errorf("explain %s: %w", &q, err)
		}
		if done {
			break
		}
	}
	x.Verdict.say()
	return x.Explanation, nil
}

// origin finds out by which way the packet comes in.
func (x *explainer) origin() (bool, error) {
	x.packet = nft.Packet{Src: x.q.src, Dst: x.q.dst.Addr(), Protocol: x.q.protocol, DstPort: x.q.dst.Port()}
	back, err := x.Route(x.q.src)
	if err != nil {
		return false, err
	}
	how := "is sent by this node"
	if x.packet.Local = back.local; !back.local {
		x.packet.Interface = back.link
		if x.q.link != "" {
			x.packet.Interface = x.q.link
		}
		how = "comes in by " + x.packet.Interface
		if x.packet.Interface == "" {
			how = "comes from an address to which this node has no route"
		}
	}
	x.add("packet", fmt.Sprintf("%s %s.", &x.q, how))
	return false, nil
}

// firstHook is the hook at which destinations are translated.
func (x *explainer) firstHook() string {
	if x.packet.Local {
		return "output"
	}
	return "prerouting"
}

// walk sends the packet through the chains at a hook. Without tables, and while they sleep, nothing happens.
func (x *explainer) walk(hook, kind string, p nft.Packet) (nft.Passage, error) {
	passage, err := x.Walk(hook, kind, p)
	switch {
	case errors.Is(err, nft.ErrNoTables):
		x.without(fmt.Sprintf("There is no table %s verdict: Verdict has not run here, or its rules were removed.", x.q.family()))
	case errors.Is(err, nft.ErrAsleep):
		x.without(fmt.Sprintf("Table %s verdict sleeps (flags dormant), so no rule of it sees packets. Another process has put it to sleep; "+
			"\"verdict run\" wakes it, unless it has --repair=false.", x.q.family()))
	default:
		return passage, err
	}
	return nft.Passage{}, nil
}

// without notes, once, why no rule of Verdict acts.
func (x *explainer) without(why string) {
	if !x.missing {
		x.missing = true
		x.add("tables", why)
	}
}

// droppedByPolicy reports whether a base chain of Verdict drops the packet by its policy, and says so.
func (x *explainer) droppedByPolicy(p nft.Passage) bool {
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

func (x *explainer) translation() (bool, error) {
	hook := x.firstHook()
	guard, err := x.walk(hook, "filter", x.packet)
	if err != nil {
		return false, err
	}
	if hook == "prerouting" && x.droppedByPolicy(guard) {
		return true, nil
	}
	if hook == "prerouting" && guard.Fate == nft.Dropped {
		x.add("loopback", "Packets from other hosts to a loopback address are dropped.", x.rules(guard)...)
		x.end(Dropped, "the loopback guard")
		return true, nil
	}
	passage, err := x.walk(hook, "nat", x.packet)
	if err != nil {
		return false, err
	}
	if x.droppedByPolicy(passage) {
		return true, nil
	}
	x.frontend(passage)
	x.sourceRanges(passage)
	switch passage.Fate {
	case nft.Dropped:
		x.end(Dropped, "the client is outside of the source ranges (loadBalancerSourceRanges)")
		return true, nil
	case nft.Translated:
		return true, x.translated(passage.Pick)
	}
	return true, x.untranslated()
}

func (x *explainer) end(outcome Outcome, by string) {
	x.Verdict.Outcome, x.Verdict.By = outcome, by
}

// element is an element in the syntax of "nft get element".
func (x *explainer) element(l nft.Look) string {
	return fmt.Sprintf("%s verdict %s { %s }", x.q.family(), l.Set, l.Element)
}

// rules are the rules that decided, with their chains.
func (x *explainer) rules(p nft.Passage) (out []string) {
	for _, s := range p.Steps {
		if s.Action != "" {
			out = append(out, x.rule(s))
		}
	}
	return out
}

func (x *explainer) rule(s nft.Step) string {
	return fmt.Sprintf("%s verdict %s: %s", x.q.family(), s.Chain, s.Rule)
}

// found is the look-up in one of the sets that found something.
func found(p nft.Passage, sets ...string) (nft.Look, bool) {
	for _, s := range p.Steps {
		for _, l := range s.Looks {
			for _, set := range sets {
				if l.Found && l.Set == set {
					return l, true
				}
			}
		}
	}
	return nft.Look{}, false
}

func (x *explainer) at() string {
	return netip.AddrPortFrom(x.packet.Dst, x.packet.DstPort).String() + "/" + protocolName(x.packet.Protocol)
}
