package program

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/nft/rule"
	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// The program works on one 32-bit number, the scratch number. It is in the packet's priority field while the rules look
// at a new connection:
//
//	31                20 19                  1  0
//	+-------------------+---------------------+---+
//	| class or ordinal  | service port        | L |
//	+-------------------+---------------------+---+
//
// The lower 20 bits are the number of a pool: 19 bits for the service port, and bit L, which is set for its local pool
// (the endpoints on this node) and clear for its cluster pool. The meaning of the upper 12 bits depends on the map:
//
//	pools                             the class of the pool
//	sticky-slots, affinity            the ordinal of an endpoint; with the lower bits it is a token
//	services, nodeports, bit 31       the client's address decides which pool serves it
//	services, nodeports, bit 30       the client's address must be in the source ranges of the frontend
const (
	PoolBits           = 20
	PoolMask    uint32 = 1<<PoolBits - 1
	ClassMask   uint32 = ^PoolMask
	LocalBit    uint32 = 1
	GroupMask   uint32 = PoolMask &^ LocalBit
	BySourceBit uint32 = 1 << 31
	LimitedBit  uint32 = 1 << 30

	MaxPorts    = 1 << (PoolBits - 1) // 524,288 service ports in each family
	MaxClasses  = 1 << (32 - PoolBits)
	MaxOrdinals = 1 << (32 - PoolBits) // endpoints of a service port with affinity
	// MaxSlots bounds a pool: the modulus that the endpoints map is declared with.
	MaxSlots = 65536
)

// Method is how a class draws a slot.
type Method uint8

// The methods.
const (
	Random         Method = iota // numgen random
	InTurn                       // numgen inc: one counter for each class, which all pools of the class share
	SourceHash                   // a hash of the client's address, into a table that Maglev's method fills
	SourcePortHash               // the same with a hash of the client's address and port
)

// Methods lists all methods.
func Methods() []Method { return []Method{Random, InTurn, SourceHash, SourcePortHash} }

// Hashes reports whether the method draws by a hash of the client.
func (m Method) Hashes() bool { return m == SourceHash || m == SourcePortHash }

func (m Method) String() string { return [...]string{"random", "turn", "hash", "porthash"}[m] }

// Draw is a way to get the number of a slot.
type Draw struct {
	Method Method
	Size   uint32 // the numbers drawn are below it
}

// ExactDraws is the largest number of slots for which a draw has a class of its own. For a larger pool, the class draws
// a number below the next power of two, and draws again if the number has no slot. So there are few classes, and no
// number of endpoints needs a class that is not there for all. It also matters because a new chain with a lookup makes
// the kernel walk all elements of the map (nf_tables_bind_set): 25 ms at 10,000 services, 150 ms at 50,000. The exact
// random classes exist from the start, when the maps are empty. Other classes without affinity are made when the first
// pool needs them, and they stay.
const ExactDraws = 16

// drawFor is the draw for a pool of n slots.
func drawFor(method Method, n int) Draw {
	size := uint32(n)
	if !method.Hashes() && n > ExactDraws {
		size = 1 << bits.Len32(size-1)
	}
	return Draw{method, size}
}

// exact reports whether every number drawn has a slot.
func (d Draw) exact() bool { return d.Method.Hashes() || d.Size <= ExactDraws }

func CompareDraws(a, b Draw) int {
	return cmp.Or(cmp.Compare(a.Method, b.Method), cmp.Compare(a.Size, b.Size))
}

func (d Draw) String() string { return fmt.Sprintf("%s-%d", d.Method, d.Size) }

// Class is how the program picks an endpoint of a pool. All pools that are served alike share a class, and every class
// has one chain.
type Class struct {
	Draw
	Affinity time.Duration // 0: none
	local    bool          // only with affinity: the chain looks for endpoints of the local pool
	// SamePort is set if connections keep their port. With affinity, the client's token decides that.
	SamePort bool
}

// Hashed reports whether the pools of the class have hash tables (hash.go). With affinity, the slots of a pool have
// tokens, which no other pool can share. A pool whose connections keep their port has no target port, which hash tables
// have.
func (c Class) Hashed() bool {
	return c.Method.Hashes() && c.Affinity == 0 && !c.SamePort && !c.Empty()
}

// Slots is the map that has the slots of pools of the class.
func (c Class) Slots() SetID {
	switch {
	case c.Affinity > 0:
		return StickySlots
	case c.SamePort:
		return Addresses
	}
	return Endpoints
}

// NewClass is the class of a pool; the zero class for a pool without slots.
func NewClass(method Method, slots int, affinity time.Duration, local bool) Class {
	if slots == 0 {
		return Class{}
	}
	return Class{Draw: drawFor(method, slots), Affinity: affinity, local: local && affinity > 0}
}

// KeepPort is the class for endpoints without ports.
func (c Class) KeepPort() Class {
	c.SamePort = c.Affinity == 0 && !c.Empty()
	return c
}

// Empty reports whether it is the class of a pool without slots.
func (c Class) Empty() bool { return c.Size == 0 }

// ChainName is the name of the class's chain, such as random-3 or random-3-sticky-3h.
func (c Class) ChainName() string {
	name := fmt.Sprint(c.Draw)
	switch {
	case c.SamePort:
		return name + samePort
	case c.Affinity == 0:
		return name
	}
	name += "-sticky-" + rule.DurationText(c.Affinity)
	if c.local {
		name += "-local"
	}
	return name
}

// samePort ends the names of the chains of classes whose connections keep their port.
const samePort = "-same-port"

// Permanent reports whether the class is never removed once it exists. There are few such classes.
func (c Class) Permanent() bool { return c.Affinity == 0 }

// ParseClass reads the name of the chain of a class. It is the inverse of class.chain. What it cannot read makes a class of
// another name.
func ParseClass(chain string) (c Class, ok bool) {
	words := strings.Split(strings.TrimSuffix(chain, samePort), "-")
	if c.SamePort = strings.HasSuffix(chain, samePort); len(words) < 2 {
		return c, false
	}
	size, _ := strconv.ParseUint(words[1], 10, 32)
	method := slices.IndexFunc(Methods(), func(m Method) bool { return m.String() == words[0] })
	c.Draw = Draw{Methods()[max(method, 0)], uint32(size)}
	if rest := words[2:]; len(rest) > 1 && rest[0] == "sticky" {
		c.Affinity = parseDuration(rest[1])
		c.local = len(rest) == 3 && rest[2] == "local"
	}
	return c, c.ChainName() == chain
}

// parseDuration reads the form that DurationText prints; 0 for most other texts.
func parseDuration(s string) (d time.Duration) {
	if days, rest, found := strings.Cut(s, "d"); found {
		n, _ := strconv.Atoi(days) // 0 for other texts
		d, s = time.Duration(n)*24*time.Hour, rest
	}
	below, _ := time.ParseDuration(s) // 0 for other texts, and if nothing follows the days
	return d + below
}

// Which pool serves a frontend, and what happens to packets that it does not take.
type (
	PoolChoice = serviceport.Pool
	Refusal    = serviceport.Refusal
)

// The choices and the refusals.
const (
	NoPool      = serviceport.NoPool
	ClusterPool = serviceport.ClusterPool
	LocalPool   = serviceport.LocalPool
	BySource    = serviceport.BySource

	NoRefusal = serviceport.NoRefusal
	Reject    = serviceport.Reject
	Drop      = serviceport.Drop
)

// TokenPrefix begins the names of chains that draw tokens.
const TokenPrefix = "token-"

// TablePrefix begins the names of chains that look up a hash table.
const TablePrefix = "table-"
