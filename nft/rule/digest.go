package rule

import (
	"encoding/binary"
	"hash/fnv"
	"strings"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
)

// References are the names of the sets and chains that a rule uses.
func (r Rule) References() (sets, chains []string) {
	for _, e := range r.Exprs() {
		switch e := e.(type) {
		case *expr.Lookup:
			if e.SetID != protocolsSetID { // that one is created together with the rule
				sets = append(sets, e.SetName)
			}
		case *expr.Dynset:
			sets = append(sets, e.SetName)
		case *expr.Verdict:
			if e.Chain != "" {
				chains = append(chains, e.Chain)
			}
		}
	}
	return sets, chains
}

// Each rule carries a digest of its own bytecode in its user data. nft does not show it, and does not write it into
// rules of its own. So the engine sees whether the rules in the kernel are those that it would write, and leaves them
// alone: to write a rule again that looks up a map makes the kernel walk all elements of the map.

// DigestType is the type of the digest among the user data of a rule (libnftnl: enum nftnl_udata_rule_types). nft skips
// types that it does not know.
const DigestType userdata.Type = 64

// RulesShape is what the rules of a chain say.
type RulesShape struct {
	Count  int
	Digest uint64
	jumps  string // where they lead: a chain that others rename takes the rules along that lead to it
}

func (s *RulesShape) Add(digest uint64, jumps []string) {
	h := fnv.New64a()
	var b [16]byte
	binary.NativeEndian.PutUint64(b[:], s.Digest)
	binary.NativeEndian.PutUint64(b[8:], digest)
	_, _ = h.Write(b[:]) // cannot fail
	s.Count, s.Digest, s.jumps = s.Count+1, h.Sum64(), s.jumps+strings.Join(jumps, " ")+";"
}

func RulesOf(f Family, rules []Rule) (s RulesShape) {
	for _, r := range rules {
		_, jumps := r.References()
		s.Add(r.digest(f), jumps)
	}
	return s
}

// digest is a hash of a rule's bytecode. A rule that cannot be encoded cannot be sent either.
func (r Rule) digest(f Family) uint64 {
	digest, _ := r.Encode(f, 0, func([]byte) {})
	return digest
}

// Encode calls each with the bytecode of the expressions, and returns the digest. The set of protocols gets a number,
// which is another one in each batch, and counts as 0 in the digest.
func (r Rule) Encode(f Family, protocols uint32, each func(body []byte)) (uint64, error) {
	h := fnv.New64a()
	for _, e := range r.Exprs() {
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
