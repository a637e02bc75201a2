package nft

import (
	"cmp"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// existing is what the kernel has in one family: from an earlier process, or from an earlier transaction of this one.
type existing struct {
	named      string // the table's name; "": TableName
	table      bool
	sameLayout bool
	flags      uint32 // of the table
	chains     map[string]chainShape
	dropping   map[string]bool       // base chains with the policy drop; those of Verdict accept
	rules      map[string]rulesShape // by chain
	sets       map[string]setShape   // without anonymous sets
	counts     map[string]int        // elements of these sets, if the kernel counts them
}

// chainShape is what cannot be changed about a chain. The zero value is a chain without a hook.
type chainShape struct {
	kind           string
	hook, priority uint32
}

func (c chainDef) shape() chainShape {
	if c.base == nil {
		return chainShape{}
	}
	return chainShape{kind: c.base.kind, hook: c.base.hook, priority: uint32(c.base.priority)}
}

// setShape is what cannot be changed about a set.
type setShape struct {
	flags, keyType, keyLen, dataType, dataLen uint32

	counter  bool
	userData string // from which nft makes its listing
	tuning
}

// tuning is what can be changed about a set that exists (Linux 6.5 and newer).
type tuning struct {
	size       uint32 // the largest number of elements; 0: no limit
	timeout    uint64 // of elements without one of their own, in milliseconds; 0: none
	gcInterval uint32 // between two searches for elements that have expired, in milliseconds; 0: the kernel chooses
}

func (d *setDef) shape() setShape {
	s := setShape{
		flags: d.flags(), keyType: concatMagic(d.key), keyLen: uint32(concatLen(d.key)),
		counter: d.counter, userData: string(d.userData()), tuning: tuning{size: d.size},
	}
	if d.isMap() {
		s.dataType, s.dataLen = d.mapData()
	}
	return s
}

// hasSet reports whether a set exists and can stay.
func (was existing) hasSet(d *setDef) bool {
	is, ok := was.sets[d.name]
	want := d.shape()
	if d.dynamic { // to keep the entries is worth more than a correct listing; retuned takes care of the rest
		is.userData, is.tuning = want.userData, want.tuning
	}
	return ok && is == want
}

// retuned reports whether a set is there that another process gave another size, timeout or interval. To add the set
// again corrects that, and its entries stay. Only dynamic sets can stay: a limit can be changed, but not taken away.
func (was existing) retuned(d *setDef) bool {
	is, ok := was.sets[d.name]
	return ok && d.dynamic && is.tuning != d.shape().tuning
}

// isRetuned reports whether another process has tuned a set.
func (tb *table) isRetuned(was existing) bool {
	for id := range tb.defs {
		if was.retuned(&tb.defs[id]) {
			return true
		}
	}
	return false
}

// survey reads what exists of our table, without elements.
func (c *conn) survey(f Family) (existing, error) {
	was, err := c.surveySets(f)
	if err != nil || !was.table {
		return was, err
	}
	if err := c.readChains(f, &was); err != nil {
		return was, err
	}
	was.rules = map[string]rulesShape{}
	return was, c.dump(unix.NFT_MSG_GETRULE, f, ofOurTable(unix.NFTA_RULE_TABLE), was.addRule)
}

// surveyChains reads the table and its chains, without sets and rules.
func (c *conn) surveyChains(f Family) (existing, error) {
	was, err := c.surveyTable(f)
	if err != nil || !was.table {
		return was, err
	}
	return was, c.readChains(f, &was)
}

// readChains reads the chains. The kernel leaves out the rules and sets of other tables when it is told to, but not their
// chains.
func (c *conn) readChains(f Family, was *existing) error {
	return retryInterrupted("chains", func() error {
		was.chains, was.dropping = map[string]chainShape{}, map[string]bool{}
		return c.dump(unix.NFT_MSG_GETCHAIN, f, nil, was.addChain)
	})
}

// surveySets reads only what changes of other tables cannot interrupt: whether there is a table, and its sets.
func (c *conn) surveySets(f Family) (existing, error) {
	was, err := c.surveyTable(f)
	if err != nil || !was.table {
		return was, err
	}
	was.sets, was.counts = map[string]setShape{}, map[string]int{}
	err = c.dump(unix.NFT_MSG_GETSET, f, ofOurTable(unix.NFTA_SET_TABLE), was.addSet)
	if errors.Is(err, unix.ENOENT) {
		return existing{}, nil // another program has just deleted the table
	}
	return was, err
}

// surveyTable reads whether there is a table, and of which layout.
func (c *conn) surveyTable(f Family) (was existing, err error) {
	err = c.ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK, f, ofOurTable(unix.NFTA_TABLE_NAME), was.addTable)
	if errors.Is(err, unix.ENOENT) {
		return existing{}, nil
	}
	return was, err
}

func ofOurTable(attr uint16) func(*wire) { return ofTable(attr, TableName) }

func ofTable(attr uint16, table string) func(*wire) {
	return func(w *wire) { w.Text(attr, table) }
}

// asleep reports whether the kernel calls no chain of the table.
func (was existing) asleep() bool { return was.flags&unix.NFT_TABLE_F_DORMANT != 0 }

func (was *existing) addTable(a nlmsg.Attributes) {
	was.table = true
	for a.Next() {
		switch a.Kind {
		case tableUserData:
			was.sameLayout = readComment(a.Value) == layoutComment
		case unix.NFTA_TABLE_FLAGS:
			was.flags = a.Uint32()
		}
	}
}

// isOf reports whether an object of a table belongs to the one that is read.
func (was existing) isOf(table string) bool { return table == cmp.Or(was.named, TableName) }

func (was existing) addChain(a nlmsg.Attributes) {
	table, name, drops := "", "", false
	var is chainShape
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_CHAIN_TABLE:
			table = a.Text()
		case unix.NFTA_CHAIN_NAME:
			name = a.Text()
		case unix.NFTA_CHAIN_TYPE:
			is.kind = a.Text()
		case unix.NFTA_CHAIN_HOOK:
			is.readHook(a.Nested())
		case unix.NFTA_CHAIN_POLICY:
			drops = a.Uint32() == verdictDrop
		}
	}
	if was.isOf(table) {
		was.chains[name] = is
		if drops {
			was.dropping[name] = true
		}
	}
}

func (c *chainShape) readHook(a nlmsg.Attributes) {
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_HOOK_HOOKNUM:
			c.hook = a.Uint32()
		case unix.NFTA_HOOK_PRIORITY:
			c.priority = a.Uint32()
		}
	}
}

func (was existing) addSet(a nlmsg.Attributes) {
	table, name, count := "", "", -1
	var is setShape
	for a.Next() {
		switch a.Kind {
		case setCountAttribute:
			count = int(a.Uint32())
		case unix.NFTA_SET_TABLE:
			table = a.Text()
		case unix.NFTA_SET_NAME:
			name = a.Text()
		case unix.NFTA_SET_USERDATA:
			is.userData = string(a.Value)
		case setExpr:
			is.readExpr(a.Nested())
		case unix.NFTA_SET_DESC:
			is.readDescription(a.Nested())
		case unix.NFTA_SET_TIMEOUT:
			is.timeout = number64(a.Value)
		default:
			is.readNumber(a)
		}
	}
	if table == TableName && is.flags&unix.NFT_SET_ANONYMOUS == 0 {
		was.sets[name] = is
		if count >= 0 {
			was.counts[name] = count
		}
	}
}

func (s *setShape) readNumber(a nlmsg.Attributes) {
	switch a.Kind {
	case unix.NFTA_SET_FLAGS:
		s.flags = a.Uint32()
	case unix.NFTA_SET_KEY_TYPE:
		s.keyType = a.Uint32()
	case unix.NFTA_SET_KEY_LEN:
		s.keyLen = a.Uint32()
	case unix.NFTA_SET_DATA_TYPE:
		s.dataType = a.Uint32()
	case unix.NFTA_SET_DATA_LEN:
		s.dataLen = a.Uint32()
	case unix.NFTA_SET_GC_INTERVAL:
		s.gcInterval = a.Uint32()
	}
}

func (s *setShape) readDescription(a nlmsg.Attributes) {
	for a.Next() {
		if a.Kind == unix.NFTA_SET_DESC_SIZE {
			s.size = a.Uint32()
		}
	}
}

func (s *setShape) readExpr(a nlmsg.Attributes) {
	for a.Next() {
		if a.Kind == unix.NFTA_EXPR_NAME {
			s.counter = a.Text() == "counter"
		}
	}
}

// hasChain reports whether a chain exists with its rules and its policy.
func (tb *table) hasChain(was existing, c *chainDef) bool {
	is, ok := was.chains[c.name]
	return ok && is == c.shape() && !was.dropping[c.name] && was.rules[c.name] == tb.rulesShape(c)
}

// intact reports whether the table is awake and has exactly the chains, rules and sets that belong to it. Objects and
// flowtables of others do not count: no rule of Verdict uses them, so they change nothing.
func (tb *table) intact(was existing) bool {
	chains := tb.wantedChains()
	if !was.sameLayout || was.asleep() || len(was.sets) != len(tb.defs) || len(was.chains) != len(chains) {
		return false
	}
	for id := range tb.defs {
		if !was.hasSet(&tb.defs[id]) {
			return false
		}
	}
	for _, c := range chains {
		if !tb.hasChain(was, &c) {
			return false
		}
	}
	return true
}
