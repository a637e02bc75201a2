package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/cmd/verdict/takeover"
	"github.com/verdict-proxy/verdict/nft/inspect"
)

// translationPriority is where destinations are translated.
const translationPriority = -100

// strangers are the tables of others.
type strangers struct {
	*path
	chains []inspect.ForeignChain
}

// readOthers reads the chains of other tables, and says what cannot be read.
func (x *strangers) readOthers() (bool, error) {
	list, err := x.Others(x.q.family())
	if err != nil {
		return false, err
	}
	x.chains = list
	if tables := x.Legacy(x.q.family()); len(tables) > 0 {
		x.add("other rules", fmt.Sprintf("iptables-legacy has rules that this command cannot read: tables %s.", strings.Join(tables, ", ")))
	}
	return false, nil
}

// beforeTranslation looks at chains that see the packet before Verdict does.
func (x *strangers) beforeTranslation() (bool, error) {
	for i := range x.chains {
		c := &x.chains[i]
		if c.Hook != x.firstHook() || c.Priority > translationPriority {
			continue
		}
		if x.stopped(c) {
			return true, nil
		}
		translates := slices.DeleteFunc(slices.Clone(c.Translates), func(r inspect.ForeignRule) bool {
			return !slices.Contains([]string{"dnat", "DNAT", "redirect", "REDIRECT"}, r.Action)
		})
		if c.Type == "nat" && len(translates) > 0 {
			x.add("other rules", fmt.Sprintf("Chain %s (%s) can translate it before Verdict does.%s", c.Ref(), place(c), leftover(c)),
				ruleLines(c, translates)...)
			x.Verdict.Unless = append(x.Verdict.Unless, c.Ref())
		}
	}
	return false, nil
}

// stoppedByOthers looks at the chains that see the packet after the translation. It reports whether one of them stops it
// for certain.
func (x *strangers) stoppedByOthers(hooks []string) bool {
	first := x.firstHook()
	for i := range x.chains {
		c := &x.chains[i]
		after := c.Hook == first && c.Priority > translationPriority
		if (after || slices.Contains(hooks, c.Hook) && c.Hook != first) && x.stopped(c) {
			return true
		}
	}
	return false
}

// stopped notes a chain that can stop the packet, and reports whether it does so for certain.
func (x *strangers) stopped(c *inspect.ForeignChain) bool {
	if !c.PolicyDrop && len(c.Stops) == 0 {
		return false
	}
	lines := ruleLines(c, c.Stops)
	if c.PolicyDrop {
		lines = append(lines, c.Ref()+": policy drop")
	}
	if c.Certain() {
		x.add("other rules", fmt.Sprintf("Chain %s (%s) stops it.%s", c.Ref(), place(c), leftover(c)), upTo(lines, maxListed)...)
		outcome := outcomeOf(c)
		x.Verdict = Verdict{}
		x.end(outcome, "chain "+c.Ref())
		return true
	}
	x.add("other rules", fmt.Sprintf("Chain %s (%s) can stop it. "+
		"Its conditions are not evaluated here; --trace shows what happens.%s", c.Ref(), place(c), leftover(c)), upTo(lines, maxListed)...)
	x.Verdict.Unless = append(x.Verdict.Unless, c.Ref())
	return false
}

// outcomeOf is what the client sees of a chain that stops it for certain. A chain at output that rejects everything stops
// its own answers, too.
func outcomeOf(c *inspect.ForeignChain) Outcome {
	for _, r := range c.Stops {
		if r.Always && r.Action != "drop" && c.Hook != "output" {
			return Refused
		}
	}
	return Dropped
}

func place(c *inspect.ForeignChain) string { return fmt.Sprintf("%s, priority %d", c.Hook, c.Priority) }

func ruleLines(c *inspect.ForeignChain, rules []inspect.ForeignRule) (lines []string) {
	for _, r := range rules {
		lines = append(lines, fmt.Sprintf("%s %s %s: rule with handle %d: %s", c.Family, c.Table, r.Chain, r.Handle, r.Action))
	}
	return upTo(lines, maxListed)
}

// leftover says how to remove what kube-proxy left behind.
func leftover(c *inspect.ForeignChain) string {
	of := func(r inspect.ForeignRule) bool { return takeover.IsKubeProxys(r.Chain) }
	switch {
	case c.Table == "kube-proxy":
		return fmt.Sprintf(" It is of kube-proxy in nftables mode, which must not run beside Verdict; "+
			"if it has been removed: nft delete table %s %s", c.Family, c.Table)
	case slices.ContainsFunc(c.Stops, of) || slices.ContainsFunc(c.Translates, of):
		return " Its chains KUBE-* are of kube-proxy in iptables mode, which must not run beside Verdict; " +
			"if it has been removed: kube-proxy --cleanup"
	}
	return ""
}
