package nft

import (
	"encoding/binary"
	"hash/fnv"
	"strings"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// Each rule carries a digest of its own bytecode in its user data. nft does not show it, and does not write it into
// rules of its own. So the engine sees whether the rules in the kernel are those that it would write, and leaves them
// alone: to write a rule again that looks up a map makes the kernel walk all elements of the map.

// ruleDigest is the type of the digest among the user data of a rule (libnftnl: enum nftnl_udata_rule_types). nft skips
// types that it does not know.
const ruleDigest userdata.Type = 64

// rulesShape is what the rules of a chain say.
type rulesShape struct {
	count  int
	digest uint64
	jumps  string // where they lead: a chain that others rename takes the rules along that lead to it
}

func (s *rulesShape) add(digest uint64, jumps []string) {
	h := fnv.New64a()
	var b [16]byte
	binary.NativeEndian.PutUint64(b[:8], s.digest)
	binary.NativeEndian.PutUint64(b[8:], digest)
	_, _ = h.Write(b[:]) // cannot fail
	s.count, s.digest, s.jumps = s.count+1, h.Sum64(), s.jumps+strings.Join(jumps, " ")+";"
}

func rulesOf(f Family, rules []rule) (s rulesShape) {
	for _, r := range rules {
		_, jumps := r.references()
		s.add(r.digest(f), jumps)
	}
	return s
}

// rulesShape is what the rules of a wanted chain say. The rules of a program never change, and to encode them takes
// milliseconds.
func (tb *table) rulesShape(c *chainDef) rulesShape {
	if p := tb.program(); tb.shapes.of != p || tb.shapes.byChain == nil {
		tb.shapes.of, tb.shapes.byChain = p, map[string]rulesShape{}
	}
	s, known := tb.shapes.byChain[c.name]
	if !known {
		s = rulesOf(tb.family, c.rules)
		tb.shapes.byChain[c.name] = s
	}
	return s
}

// digest is a hash of a rule's bytecode. A rule that cannot be encoded cannot be sent either.
func (r rule) digest(f Family) uint64 {
	digest, _ := r.encode(f, 0, func([]byte) {})
	return digest
}

// encode calls each with the bytecode of the expressions, and returns the digest. The set of protocols gets a number,
// which is another one in each batch, and counts as 0 in the digest.
func (r rule) encode(f Family, protocols uint32, each func(body []byte)) (uint64, error) {
	h := fnv.New64a()
	for _, e := range r.exprs() {
		plain := withProtocols(e, 0)
		body, err := expr.Marshal(byte(f), plain)
		if err != nil {
			return 0, err
		}
		_, _ = h.Write(body) // cannot fail
		if plain != e {
			if body, err = expr.Marshal(byte(f), withProtocols(e, protocols)); err != nil {
				return 0, err
			}
		}
		each(body)
	}
	return h.Sum64(), nil
}

// withProtocols gives the set of protocols a number. It returns other expressions as they are.
func withProtocols(e expr.Any, set uint32) expr.Any {
	if l, ok := e.(*expr.Lookup); ok && l.SetID == protocolsSetID {
		return &expr.Lookup{SourceRegister: l.SourceRegister, SetName: l.SetName, SetID: set}
	}
	return e
}

func (w *wire) ruleDigest(attr uint16, digest uint64) {
	w.Bytes(attr, userdata.Append(nil, ruleDigest, binary.NativeEndian.AppendUint64(nil, digest)))
}

// readRuleDigest reads the digest from the user data of a rule; 0: another program wrote the rule.
func readRuleDigest(udata []byte) uint64 {
	b := findUserData(udata, ruleDigest)
	if len(b) != 8 {
		return 0
	}
	return binary.NativeEndian.Uint64(b)
}

// addRule notes one of the rules that the kernel has.
func (was existing) addRule(a nlmsg.Attributes) {
	table, chain, digest := "", "", uint64(0)
	var leads otherRule
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_RULE_TABLE:
			table = a.Text()
		case unix.NFTA_RULE_CHAIN:
			chain = a.Text()
		case unix.NFTA_RULE_USERDATA:
			digest = readRuleDigest(a.Value)
		case unix.NFTA_RULE_EXPRESSIONS:
			leads.read(a.Nested())
		}
	}
	if was.isOf(table) {
		s := was.rules[chain]
		s.add(digest, leads.jumps)
		was.rules[chain] = s
	}
}
