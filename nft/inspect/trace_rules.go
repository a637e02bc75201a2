package inspect

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

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
