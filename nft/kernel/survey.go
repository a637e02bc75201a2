package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// SetCountAttribute is NFTA_SET_COUNT of Linux 6.16, which package unix does not have.
const SetCountAttribute = 20

// ErrNoTables means that Verdict has no tables in this network namespace.
var ErrNoTables = errors.New("there is neither a table ip verdict nor a table ip6 verdict")

// Lengths are the groups that have a chain.
func (was Existing) Lengths(f program.Family) (groups program.LengthGroups) {
	program.AllLengths(f).Each(f, func(last int) {
		if _, there := was.Chains[program.GroupChain(last)]; there {
			groups |= program.GroupOf(last)
		}
	})
	return groups
}

// Existing is what the kernel has in one family: from an earlier process, or from an earlier transaction of this one.
type Existing struct {
	Named      string // the table's name; "": TableName
	Table      bool
	SameLayout bool
	Flags      uint32 // of the table
	Chains     map[string]program.ChainShape
	Dropping   map[string]bool             // base chains with the policy drop; those of Verdict accept
	Rules      map[string]rule.RulesShape  // by chain
	Sets       map[string]program.SetShape // without anonymous sets
	Flowtables map[string]FoundFlowtable
	Counts     map[string]int // elements of these sets, if the kernel counts them
}

// HasSet reports whether a set exists and can stay.
func (was Existing) HasSet(d *program.Set) bool {
	is, ok := was.Sets[d.Name]
	want := d.Shape()
	if d.Dynamic { // to keep the entries is worth more than a correct listing; retuned takes care of the rest
		is.UserData, is.Tuning = want.UserData, want.Tuning
	}
	return ok && is == want
}

// Retuned reports whether a set is there that another process gave another size, timeout or interval. To add the set
// again corrects that, and its entries stay. Only dynamic sets can stay: a limit can be changed, but not taken away.
func (was Existing) Retuned(d *program.Set) bool {
	is, ok := was.Sets[d.Name]
	return ok && d.Dynamic && is.Tuning != d.Shape().Tuning
}

// Survey reads what exists of our table, without elements.
func (c *Conn) Survey(f program.Family) (Existing, error) {
	was, err := c.SurveySets(f)
	if err != nil || !was.Table {
		return was, err
	}
	if err := c.readChains(f, &was); err != nil {
		return was, err
	}
	if was.Flowtables, err = c.Flowtables(f); err != nil {
		return was, err
	}
	was.Rules = map[string]rule.RulesShape{}
	return was, c.Dump(unix.NFT_MSG_GETRULE, f, ofOurTable, was.addRule)
}

// SurveyChains reads the table and its chains, without sets and rules.
func (c *Conn) SurveyChains(f program.Family) (Existing, error) {
	was, err := c.SurveyTable(f)
	if err != nil || !was.Table {
		return was, err
	}
	return was, c.readChains(f, &was)
}

// readChains reads the chains. The kernel leaves out the rules and sets of other tables on request, but not their
// chains.
func (c *Conn) readChains(f program.Family, was *Existing) error {
	return RetryInterrupted("chains", func() error {
		was.Chains, was.Dropping = map[string]program.ChainShape{}, map[string]bool{}
		return c.Dump(unix.NFT_MSG_GETCHAIN, f, nil, was.addChain)
	})
}

// SurveySets reads only what changes of other tables cannot interrupt: whether there is a table, and its sets.
func (c *Conn) SurveySets(f program.Family) (Existing, error) {
	was, err := c.SurveyTable(f)
	if err != nil || !was.Table {
		return was, err
	}
	was.Sets, was.Counts = map[string]program.SetShape{}, map[string]int{}
	err = c.Dump(unix.NFT_MSG_GETSET, f, ofOurTable, was.addSet)
	if errors.Is(err, unix.ENOENT) {
		return Existing{}, nil // another program has just deleted the table
	}
	return was, err
}

// SurveyTable reads whether there is a table, and of which layout.
func (c *Conn) SurveyTable(f program.Family) (was Existing, err error) {
	err = c.Ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK, f, ofOurTable, was.addTable)
	if errors.Is(err, unix.ENOENT) {
		return Existing{}, nil
	}
	return was, err
}

func ofOurTable(w *nlmsg.Writer) { ofTable(tableName, program.TableName)(w) }

// tableName names the table in all messages.
const tableName = 1

func ofTable(attr uint16, table string) func(*nlmsg.Writer) {
	return func(w *nlmsg.Writer) { w.Text(attr, table) }
}

// Asleep reports whether the kernel calls no chain of the table.
func (was Existing) Asleep() bool { return was.Flags&unix.NFT_TABLE_F_DORMANT != 0 }

func (was *Existing) addTable(a nlmsg.Attributes) {
	was.Table, was.Flags = true, a.Find(unix.NFTA_TABLE_FLAGS).Uint32()
	was.SameLayout = readComment(a.Find(tableUserData).Value) == program.LayoutComment
}

// isOf reports whether an object of a table belongs to the one that is read.
func (was Existing) isOf(table string) bool { return table == cmp.Or(was.Named, program.TableName) }

func (was Existing) addChain(a nlmsg.Attributes) {
	if !was.isOf(a.Find(unix.NFTA_CHAIN_TABLE).Text()) {
		return
	}
	name, is := a.Find(unix.NFTA_CHAIN_NAME).Text(), program.ChainShape{Kind: a.Find(unix.NFTA_CHAIN_TYPE).Text()}
	is.Hook, is.Priority = DecodeHook(a.Find(unix.NFTA_CHAIN_HOOK).Nested())
	if was.Chains[name] = is; PolicyDrops(a) {
		was.Dropping[name] = true
	}
}

// PolicyDrops reports whether a chain drops what no rule accepts.
func PolicyDrops(chain nlmsg.Attributes) bool {
	policy := chain.Find(unix.NFTA_CHAIN_POLICY)
	return policy.Value != nil && policy.Uint32() == VerdictDrop
}

func DecodeHook(a nlmsg.Attributes) (hook, priority uint32) {
	return a.Find(unix.NFTA_HOOK_HOOKNUM).Uint32(), a.Find(unix.NFTA_HOOK_PRIORITY).Uint32()
}

func (was Existing) addSet(a nlmsg.Attributes) {
	is := program.SetShape{
		Flags: a.Find(unix.NFTA_SET_FLAGS).Uint32(), KeyType: a.Find(unix.NFTA_SET_KEY_TYPE).Uint32(),
		KeyLen: a.Find(unix.NFTA_SET_KEY_LEN).Uint32(), DataType: a.Find(unix.NFTA_SET_DATA_TYPE).Uint32(),
		DataLen: a.Find(unix.NFTA_SET_DATA_LEN).Uint32(), UserData: string(a.Find(unix.NFTA_SET_USERDATA).Value),
		Tuning: program.Tuning{
			Size:    a.Find(unix.NFTA_SET_DESC).Nested().Find(unix.NFTA_SET_DESC_SIZE).Uint32(),
			Timeout: a.Find(unix.NFTA_SET_TIMEOUT).Uint64(), GcInterval: a.Find(unix.NFTA_SET_GC_INTERVAL).Uint32(),
		},
	}
	if a.Find(unix.NFTA_SET_TABLE).Text() != program.TableName || is.Flags&unix.NFT_SET_ANONYMOUS != 0 {
		return
	}
	readElementExpr(a.Find(setExpr).Nested(), &is)
	for list := a.Find(setExprs).Nested(); list.Next(); {
		readElementExpr(list.Nested(), &is)
	}
	name := a.Find(unix.NFTA_SET_NAME).Text()
	was.Sets[name] = is
	if count := a.Find(SetCountAttribute); count.Value != nil {
		was.Counts[name] = int(count.Uint32())
	}
}

func readElementExpr(e nlmsg.Attributes, is *program.SetShape) {
	switch e.Find(unix.NFTA_EXPR_NAME).Text() {
	case "counter":
		is.Counter = true
	case "limit":
		is.Rate = e.Find(unix.NFTA_EXPR_DATA).Nested().Find(unix.NFTA_LIMIT_RATE).Uint64()
	}
}

// addRule notes one of the rules that the kernel has.
func (was Existing) addRule(a nlmsg.Attributes) {
	if !was.isOf(a.Find(unix.NFTA_RULE_TABLE).Text()) {
		return
	}
	chain := a.Find(unix.NFTA_RULE_CHAIN).Text()
	s := was.Rules[chain]
	var digest uint64 // 0: another program wrote the rule
	if b := findUserData(a.Find(unix.NFTA_RULE_USERDATA).Value, rule.DigestType); len(b) == 8 {
		digest = binary.NativeEndian.Uint64(b)
	}
	s.Add(digest, DecodeOtherRule(a).Jumps)
	was.Rules[chain] = s
}
