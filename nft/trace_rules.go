package nft

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// ruleBook knows what the rules with given handles do.
type ruleBook struct {
	conn  *conn
	ours  map[uint64]ruleText                // rules of Verdict
	other map[[3]string]map[uint64]otherRule // by family, table and chain
	// family of the traced packets.
	family Family
}

// ruleText is a rule and what it does.
type ruleText struct {
	text                             string
	rejects, masquerades, translates bool
}

// ruleBook reads the handles of the rules of Verdict. Their texts are those of the program, which has the same rules in
// the same order.
func (c *conn) ruleBook(f Family) (*ruleBook, error) {
	r := &ruleBook{conn: c, ours: map[uint64]ruleText{}, other: map[[3]string]map[uint64]otherRule{}, family: f}
	tables := newTables(c, nil)
	v, err := tables.view(f)
	if err != nil {
		return r, nil //nolint:nilerr // without tables of this version there are handles instead of texts
	}
	handles := map[string][]uint64{}
	err = c.dump(unix.NFT_MSG_GETRULE, f, func(w *wire) { w.Text(unix.NFTA_RULE_TABLE, TableName) }, func(a nlmsg.Attributes) {
		chain, handle := "", uint64(0)
		for a.Next() {
			switch a.Kind {
			case unix.NFTA_RULE_CHAIN:
				chain = a.Text()
			case unix.NFTA_RULE_HANDLE:
				handle = number64(a.Value)
			}
		}
		handles[chain] = append(handles[chain], handle)
	})
	for chain, list := range handles {
		r.name(v.program.chainNamed(chain), list)
	}
	return r, err
}

// name gives the rules of a chain their texts, if there are as many as the program has.
func (r *ruleBook) name(c chainDef, handles []uint64) {
	if len(c.rules) != len(handles) {
		return
	}
	for i, handle := range handles {
		text := c.rules[i].String()
		r.ours[handle] = ruleText{
			text: text, rejects: strings.Contains(text, "reject"), masquerades: strings.Contains(text, "masquerade fully"),
			translates: strings.Contains(text, "dnat "),
		}
	}
}

// chainNamed is the chain of that name; without rules: the program has none.
func (p program) chainNamed(name string) chainDef {
	for _, c := range p.chains() {
		if c.name == name {
			return c
		}
	}
	prefix, rest, _ := strings.Cut(name, "-")
	switch c, ok := parseClass(rest); {
	case ok && prefix+"-" == tokenPrefix:
		return p.tokenDrawChain(c.draw)
	case ok && prefix+"-" == hashTablePrefix:
		return p.hashTableChain(c.draw)
	}
	if c, ok := parseClass(name); ok {
		return p.classChain(c)
	}
	return chainDef{}
}

// of is what a rule does.
func (r *ruleBook) of(family, table, chain string, handle uint64) ruleText {
	if t, ok := r.ours[handle]; ok && table == TableName && family == r.family.String() {
		return t
	}
	at := [3]string{family, table, chain}
	if r.other[at] == nil {
		r.other[at] = r.read(at)
	}
	rule := r.other[at][handle]
	text := fmt.Sprintf("rule with handle %d", handle)
	if rule.action != "" {
		text += ": " + rule.action
	}
	return ruleText{
		text: text, rejects: strings.HasPrefix(rule.action, "reject"),
		masquerades: strings.EqualFold(rule.action, "masquerade") || strings.EqualFold(rule.action, "snat"),
		translates:  strings.EqualFold(rule.action, "dnat") || strings.EqualFold(rule.action, "redirect"),
	}
}

// read reads the rules of a chain of another table. What cannot be read has no description.
func (r *ruleBook) read(at [3]string) map[uint64]otherRule {
	out := map[uint64]otherRule{}
	_ = r.conn.dump(unix.NFT_MSG_GETRULE, familyNumber(at[0]), func(w *wire) {
		w.Text(unix.NFTA_RULE_TABLE, at[1])
		w.Text(unix.NFTA_RULE_CHAIN, at[2])
	}, func(a nlmsg.Attributes) {
		rule := decodeOtherRule(a)
		out[rule.handle] = rule
	})
	return out
}
