package program

import (
	"cmp"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/nft/rule"
)

// redraws is how often a class draws again when its number has no slot. At least every second number has a slot, so one
// connection in 65,536 finds none. The last draw is from the lower half, in which every number has a slot.
const redraws = 16

// attempts lists the draws of a class, in order; the first one that hits a slot counts. The last one always takes the
// first slot, which every pool has. It is for a packet that got the class of its pool just before the pool lost a slot,
// and looks up the slot just after: the kernel evaluates a chain as of one generation, but each lookup as of now. Under
// TestChurnUnderLoad one connection in 200 needs it.
func (d Draw) attempts() []Draw {
	list := []Draw{d}
	if !d.exact() {
		list = append(slices.Repeat(list, redraws), Draw{d.Method, d.Size / 2})
	}
	if d.Size > 1 {
		list = append(list, Draw{Random, 1})
	}
	return list
}

// perAttempt is a rule for each attempt. Equal attempts share one.
func (d Draw) perAttempt(build func(Draw) rule.Rule) (rules []rule.Rule) {
	of := map[Draw]rule.Rule{}
	for _, a := range d.attempts() {
		if of[a] == nil {
			of[a] = build(a)
		}
		rules = append(rules, of[a])
	}
	return rules
}

// ClassChain is the chain of a class: it draws a slot of the pool in the scratch number, and translates.
func (p Program) ClassChain(c Class) Chain {
	if c.Affinity > 0 {
		return Chain{Name: c.ChainName(), Rules: p.stickyRules(c)}
	}
	if c.Hashed() {
		return Chain{Name: c.ChainName(), Rules: []rule.Rule{
			{rule.SetScratch(HashTables, rule.Masked(PoolMask)), rule.GoTo(c.TableChainName())},
			// A packet whose pool changed its class at this moment takes the first slot of the pool.
			{rule.DNAT(p.Family, Endpoints, rule.Masked(PoolMask), drawn(p.Family, Draw{Random, 1}))},
		}}
	}
	return Chain{Name: c.ChainName(), Rules: c.perAttempt(func(d Draw) rule.Rule {
		if c.SamePort {
			return rule.Rule{rule.DNATAddress(p.Family, Addresses, rule.Masked(PoolMask), drawn(p.Family, d))}
		}
		return rule.Rule{rule.DNAT(p.Family, Endpoints, rule.Masked(PoolMask), drawn(p.Family, d))}
	})}
}

func (d Draw) TokenChainName() string { return TokenPrefix + d.String() }

// TokenChain draws a token of the pool in the scratch number and leaves it there.
func (p Program) TokenChain(d Draw) Chain {
	return Chain{Name: d.TokenChainName(), Rules: d.perAttempt(func(d Draw) rule.Rule {
		return rule.Rule{rule.SetScratch(StickySlots, rule.Masked(PoolMask), drawn(p.Family, d)), rule.ReturnNow()}
	})}
}

// stickyRules draws a token (ordinal and service port), lets the affinity map replace it by the client's earlier token,
// and translates. A token does not translate if its endpoint is gone or is not in this pool: then the entry is removed,
// and the client gets another token. All lookups are in chains that many classes share (ExactDraws says why).
func (p Program) stickyRules(c Class) []rule.Rule {
	pick, recall := rule.Rule{rule.Jump(c.TokenChainName())}, rule.Rule{rule.Jump(recallChain(c.local))}
	remember := rule.Rule{affinityEntry(p, "update", c.Affinity)}
	again := pick
	if c.local {
		// A token names only the service port. So the scratch number has to name the local pool again.
		again = rule.Rule{rule.SetScratchTo(localPool()), rule.Jump(c.TokenChainName())}
	}
	// The third attempt is for a client whose endpoint is gone, and whose next endpoint goes in the same microsecond.
	rules := []rule.Rule{pick, remember, recall, again, remember, recall, again, remember, recall}
	if c.local {
		rules = append(rules, rule.Rule{rule.SetScratchTo(localPool())}) // see overtaken
	}
	return rules
}

func recallChain(local bool) string {
	if local {
		return "recall-local"
	}
	return "recall"
}

// recall translates to the endpoint in the client's affinity entry. If the client has no entry because the map is full,
// it translates to the endpoint just drawn. Entries hold tokens of the cluster pool. An endpoint in the local pool has
// a second token for that pool, so one entry is good for both pools of a service port. The tokens of a range of ports are in
// a map of their own, without ports.
func (p Program) recall(local bool) Chain {
	token := rule.Scratch()
	if local {
		token = rule.Flipped(LocalBit)
	}
	return Chain{Name: recallChain(local), Rules: []rule.Rule{
		{rule.SetScratch(Affinity, clientKey(p, rule.HashRegister)...)},
		{rule.DNAT(p.Family, StickyEndpoints, token)},
		{rule.DNATAddress(p.Family, StickyAddresses, token)},
		{affinityEntry(p, "delete", 0)},
	}}
}

// drawn is the slot number that a draw yields.
func drawn(f Family, d Draw) rule.Field {
	switch d.Method {
	case InTurn:
		return rule.Numgen("inc", d.Size)
	case SourceHash:
		return rule.SourceHash(f, d.Size, rule.HashRegister)
	case SourcePortHash:
		return rule.SourcePortHash(f, d.Size, rule.HashRegister)
	}
	return rule.Numgen("random", d.Size)
}

// clientKey is the key of the client's entry in the affinity map: the number of the service port, and the client
// number. There are only so many client numbers, and so no flood of forged addresses to one service port fills the map.
func clientKey(p Program, input uint32) rule.Key {
	return rule.Key{rule.Masked(GroupMask), rule.SourceHash(p.Family, cmp.Or(p.AffinityShare, DefaultAffinityShare), input)}
}

// affinityEntry adds or refreshes ("update") or removes ("delete") the client's entry in the affinity map. An update of
// an existing entry renews the timeout and keeps the data, so the client stays with its endpoint.
func affinityEntry(p Program, op string, timeout time.Duration) rule.Statement {
	return rule.UpdateMap(op, Affinity, clientKey(p, rule.DynsetHashRegister), rule.Scratch(), timeout)
}

// A pool whose class hashes the client's address has a hash table, which leads from a slot to an endpoint. The pools of
// a family share a table if they have the same endpoints with the same weights. Service ports of one Service usually
// have the same endpoints at different target ports, so a table has addresses only, and the target port belongs to the
// pool:
//
//	hash-tables     pool                 -> table and target port, 16 bits each
//	hash-slots      table . slot         -> address
//	target-ports    target port          -> the same as a port: the program cannot compute it
//
// If the endpoints of a pool have several ports, the table has addresses with ports. Its slots are in the map endpoints,
// under the number of the table, which is larger than that of any pool.
//
// A table that no pool uses any more stays in the kernel until the next transaction, for packets that have read its
// number. Then it leaves in pieces. If a pool changes its endpoints, and no other pool has the old ones, the table changes with it.

const (
	TableShift        = 16
	TableMask  uint32 = 0xffff << TableShift
	PortMask   uint32 = ^TableMask
	// FirstTable makes the keys of tables in the map endpoints larger than those of pools.
	FirstTable = 1 << (PoolBits - TableShift)
	MaxTables  = 1 << 15 // of a family; the other half of the numbers is for tables that leave
)

// TableOf reads the data of a pool in the map hash-tables: the map with the slots of its table, the number that their keys begin
// with, and the target port. If that is 0, the slots have ports.
func TableOf(value uint32) (slots SetID, number uint32, port uint16) {
	if slots = Endpoints; value&PortMask != 0 {
		slots = HashSlots
	}
	return slots, value & TableMask, uint16(value & PortMask)
}

func (d Draw) TableChainName() string { return TablePrefix + d.String() }

// TableChain translates by the table in the scratch number. The last two rules are for a packet whose table gets
// smaller at this moment.
func (p Program) TableChain(d Draw) Chain {
	var rules []rule.Rule
	for _, d := range []Draw{d, {Random, 1}} {
		rules = append(rules,
			rule.Rule{rule.DNATToPort(p.Family, HashSlots, rule.Key{rule.Masked(TableMask), drawn(p.Family, d)}, TargetPorts, rule.Masked(PortMask))},
			rule.Rule{rule.DNAT(p.Family, Endpoints, rule.Masked(TableMask), drawn(p.Family, d))})
	}
	return Chain{Name: d.TableChainName(), Rules: rules}
}

// localPool is the local pool of the service port in the scratch number.
func localPool() rule.Field {
	return rule.MaskedWith(GroupMask, LocalBit)
}
