package nft

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// meaning is a listing without the numbers that depend on history: numbers of service ports and classes, slots and
// ordinals are replaced by what they stand for.
type meaning map[string][]string

// numbered are the maps whose elements have such numbers.
var numbered = []string{
	program.Services.Name(), program.NodePorts.Name(), program.Pools.Name(), program.Dispatch.Name(), program.Endpoints.Name(), program.StickySlots.Name(), program.StickyEndpoints.Name(), program.Affinity.Name(),
	program.Firewalled.Name(), program.RangeServices.Name(), program.RangeFirewalled.Name(), program.Addresses.Name(), program.StickyAddresses.Name(),
	program.HashTables.Name(), program.HashSlots.Name(), program.TargetPorts.Name(),
}

// numberedSets are the sets whose elements have such numbers.
var numberedSets = []string{program.SourceLengths.Name(), program.AllowedSources.Name()}

// reader replaces the numbers of one family.
type reader struct {
	t      testing.TB
	family string
	from   listing
	maps   map[string]map[string]entry
}

// entry is one element of a map, by its key.
type entry struct{ data, comment string }

func meaningOf(t testing.TB, l listing) meaning {
	t.Helper()
	m := meaning{}
	for _, f := range program.Families() {
		r := reader{t: t, family: f.String(), from: l, maps: map[string]map[string]entry{}}
		for _, name := range numbered {
			r.maps[name] = r.entries(name)
		}
		r.frontends(m)
		r.pools(m)
		r.sources(m)
		r.plain(m)
	}
	return m
}

func (r *reader) entries(name string) map[string]entry {
	out := map[string]entry{}
	for _, e := range r.from[r.family+" map "+name].Elements {
		left, data, ok := cutLast(e, " : ")
		if !ok {
			r.t.Fatalf("map %s: element %q without data", name, e)
		}
		key, comment, _ := strings.Cut(left, ` comment "`)
		out[key] = entry{data, strings.TrimSuffix(comment, `"`)}
	}
	return out
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// frontends adds each frontend with the pools that serve it.
func (r *reader) frontends(m meaning) {
	for _, name := range []string{program.Services.Name(), program.NodePorts.Name(), program.RangeServices.Name()} {
		for key, e := range r.maps[name] {
			data := r.number(e.data)
			number := data & program.PoolMask
			pools := []uint32{number}
			if data&program.BySourceBit != 0 {
				pools = []uint32{number, number | program.LocalBit}
			}
			where := fmt.Sprintf("%s %s %s", r.family, name, key)
			m[where] = []string{e.comment}
			for _, p := range pools {
				m[where] = append(m[where], r.pool(p))
			}
			if data&program.LimitedBit != 0 {
				m[where] = append(m[where], "limited to sources")
			}
		}
	}
}

// sources adds the limited frontends, and the source ranges of their service ports with the groups of their lengths.
func (r *reader) sources(m meaning) {
	names := map[uint32]string{}
	for _, set := range []program.SetID{program.Firewalled, program.RangeFirewalled} {
		for key, e := range r.maps[set.Name()] {
			data := r.number(e.data)
			names[data&program.GroupMask] = e.comment
			m[r.family+" firewalled "+key] = []string{e.comment, fmt.Sprintf("looked up: %t", data&program.LimitedBit != 0)}
		}
	}
	for _, set := range numberedSets {
		for _, e := range r.from[r.family+" set "+set].Elements {
			key, comment, _ := strings.Cut(e, ` comment "`)
			first, rest, _ := strings.Cut(key, " . ")
			number := r.number(first)
			name := names[number&program.GroupMask]
			if name == "" || number&program.LocalBit != 0 || !strings.HasSuffix(comment, name+`"`) {
				r.t.Fatalf("%s { %s }: the number is that of %q in %s", set, e, name, program.Firewalled.Name())
			}
			if set == program.SourceLengths.Name() {
				r.checkGroup(int(number >> program.PoolBits))
			}
			where := fmt.Sprintf("%s %s of %s", r.family, set, name)
			m[where] = append(m[where], fmt.Sprintf("/%d %s %s", number>>program.PoolBits, rest, comment))
			slices.Sort(m[where])
		}
	}
}

// checkGroup checks that a group of prefix lengths has a chain, and that the program looks at it.
func (r *reader) checkGroup(last int) {
	chain := program.GroupChain(last)
	jumps := slices.ContainsFunc(r.from[r.family+" chain "+program.SourceRangesChain].Lines, func(rule string) bool {
		return strings.HasSuffix(rule, " jump "+chain)
	})
	if n := len(r.from[r.family+" chain "+chain].Lines); n != program.LengthsEach || !jumps {
		r.t.Fatalf("%s: a range needs the chain %s, which has %d rules; the program looks at it: %t", r.family, chain, n, jumps)
	}
}

// pools adds all pools, even those that no frontend uses, and the numbers of elements.
func (r *reader) pools(m meaning) {
	for key, e := range r.maps[program.Pools.Name()] {
		where := r.family + " pool " + e.comment
		m[where] = append(m[where], r.pool(r.number(key)))
	}
	tokens := []string{program.StickyEndpoints.Name(), program.StickyAddresses.Name()}
	for _, name := range tokens {
		for _, e := range r.maps[name] {
			where := r.family + " tokens " + e.comment
			m[where] = append(m[where], e.data)
			slices.Sort(m[where])
		}
	}
	for _, name := range append([]string{program.Pools.Name(), program.Endpoints.Name(), program.Addresses.Name(), program.StickySlots.Name(), program.HashTables.Name()}, tokens...) {
		n := 0
		for key := range r.maps[name] {
			if number, _, _ := strings.Cut(key, " "); r.number(number) <= program.PoolMask || slices.Contains(tokens, name) {
				n++ // not a slot of a hash table, which may be on its way out
			}
		}
		m[r.family+" elements of "+name] = []string{strconv.Itoa(n)}
	}
}

// pool describes a pool by the chain of its class and the endpoints in its slots.
func (r *reader) pool(number uint32) string {
	key := rule.NumberText(number)
	p, ok := r.maps[program.Pools.Name()][key]
	if !ok {
		return "no pool"
	}
	value := r.number(p.data)
	chain, ok := r.maps[program.Dispatch.Name()][rule.NumberText(value&program.ClassMask)]
	if !ok || value&program.PoolMask != number {
		r.t.Fatalf("pool %s (%s) has the value %s, which is not the number of a class and the pool", key, p.comment, p.data)
	}
	chainName := strings.TrimPrefix(chain.data, "goto ")
	if len(r.from[r.family+" chain "+chainName].Lines) == 0 {
		r.t.Fatalf("pool %s (%s): chain %s has no rules", key, p.comment, chainName)
	}
	slots := r.slots(number)
	if table, ok := r.maps[program.HashTables.Name()][key]; ok {
		slots = r.tableSlots(r.number(table.data))
	}
	r.checkSize(chainName, len(slots))
	return fmt.Sprintf("%s local=%t %s", chainName, number&program.LocalBit != 0, strings.Join(slots, ","))
}

// checkSize checks that a class draws the numbers of all slots, and that less than half of its numbers have no slot.
func (r *reader) checkSize(chainName string, slots int) {
	size, err := strconv.Atoi(strings.Split(chainName, "-")[1])
	inexact := !strings.HasPrefix(chainName, "hash") && size > program.ExactDraws
	if err != nil || slots > size || slots < size && !inexact || slots <= size/2 {
		r.t.Fatalf("chain %s serves a pool of %d slots", chainName, slots)
	}
}

// slots lists the endpoints in the slots of a pool, sorted.
func (r *reader) slots(number uint32) []string {
	var out []string
	for slot := 0; ; slot++ {
		key := fmt.Sprintf("%s . %d", rule.NumberText(number), slot)
		e, plain := r.maps[program.Endpoints.Name()][key]
		if address, ok := r.maps[program.Addresses.Name()][key]; ok && plain {
			r.t.Fatalf("slot %s is in both maps, endpoints and addresses", key)
		} else if ok {
			e, plain = address, true
		}
		token, sticky := r.maps[program.StickySlots.Name()][key]
		switch {
		case plain && sticky:
			r.t.Fatalf("slot %s is in both maps, endpoints and sticky-slots", key)
		case sticky:
			// Tokens in slots are those of the cluster pool; the class of the local pool flips the bit.
			number := rule.NumberText(r.number(token.data) | number&program.LocalBit)
			if e, sticky = r.maps[program.StickyEndpoints.Name()][number]; !sticky {
				e, sticky = r.maps[program.StickyAddresses.Name()][number]
			}
			if !sticky {
				r.t.Fatalf("slot %s: token %s leads to no endpoint", key, token.data)
			}
		case !plain:
			slices.Sort(out)
			return out
		}
		out = append(out, e.data)
	}
}

// tableSlots lists the endpoints in the slots of a hash table, sorted.
func (r *reader) tableSlots(hashed uint32) []string {
	var out []string
	for slot := 0; ; slot++ {
		key := fmt.Sprintf("%s . %d", rule.NumberText(hashed&program.TableMask), slot)
		e, withPort := r.maps[program.Endpoints.Name()][key]
		if address, ok := r.maps[program.HashSlots.Name()][key]; ok {
			e.data, withPort = address.data+" . "+r.maps[program.TargetPorts.Name()][rule.NumberText(hashed&program.PortMask)].data, true
		}
		if !withPort {
			slices.Sort(out)
			return out
		}
		out = append(out, e.data)
	}
}

// plain adds all other sets, and the chains that do not belong to classes or groups of prefix lengths.
func (r *reader) plain(m meaning) {
	ofClass := map[string]bool{}
	for _, e := range r.maps[program.Dispatch.Name()] {
		ofClass[strings.TrimPrefix(e.data, "goto ")] = true
	}
	for where, o := range r.from {
		family, what, _ := strings.Cut(where, " ")
		kind, name, _ := strings.Cut(what, " ")
		if family != r.family || ofClass[name] || strings.HasPrefix(name, program.SourceRangesChain) || strings.HasPrefix(name, program.TokenPrefix) ||
			strings.HasPrefix(name, program.TablePrefix) || kind == "map" && slices.Contains(numbered, name) || slices.Contains(numberedSets, name) {
			continue
		}
		m[where] = append(slices.Clone(o.Lines), o.Elements...)
	}
}

// number is the inverse of NumberText.
func (r *reader) number(s string) uint32 {
	if s == "none" {
		return 0
	}
	major, minor, ok := strings.Cut(s, ":")
	high, err1 := strconv.ParseUint(major, 16, 16)
	low, err2 := strconv.ParseUint(minor, 16, 16)
	if !ok || err1 != nil || err2 != nil {
		r.t.Fatalf("%q is not a class ID", s)
	}
	return uint32(high)<<16 | uint32(low)
}
