package ruleset

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// Canonical is the text of the tables of Verdict, as nft lists them, without what differs between processes that mean
// the same: the numbers of pools, classes and tokens, the order of slots, counters, unused classes and groups of prefix
// lengths, and the entries of clients. A hash table that no pool uses stays until the next transaction, and so do its
// target ports. Canonical returns sorted lines.
func Canonical(listing string) []string { return canonical(parseTables(listing)) }

func canonical(tables []*listed) (out []string) {
	for _, t := range tables {
		for _, line := range t.canonical() {
			out = append(out, t.family+" "+line)
		}
	}
	slices.Sort(out)
	return out
}

// number reads a number that nft prints like the handle of a traffic class.
func number(text string) uint64 {
	if text == "none" {
		return 0
	}
	high, low, _ := strings.Cut(strings.TrimSpace(text), ":")
	h, errHigh := strconv.ParseUint("0"+high, 16, 32)
	l, errLow := strconv.ParseUint("0"+low, 16, 32)
	if errHigh != nil || errLow != nil {
		return 1<<63 - 1 // no pool has it, so the difference shows
	}
	return h<<16 | l
}

// Bits of the scratch number; see nft/README.md.
const (
	poolMask    = 1<<20 - 1
	portMask    = poolMask &^ 1
	frontendAll = 1<<30 - 1
)

// names translates numbers of a table.
type names struct {
	classes map[uint64]string // number of the class, shifted: its chain
	pools   map[uint64]string
	tokens  map[uint64]string
	ports   map[uint64]string // number of the service port
	hashes  map[uint64]string // number of the hash table: its slots
	targets map[uint64]string // target port
}

func (t *listed) names() names {
	n := names{
		classes: map[uint64]string{}, pools: map[uint64]string{}, tokens: map[uint64]string{}, ports: map[uint64]string{},
		hashes: t.hashes(), targets: map[uint64]string{0: "of the table"},
	}
	for _, e := range t.elements("target-ports") {
		n.targets[number(e.key)] = e.data
	}
	for _, e := range t.elements("firewalled") { // a port without endpoints has no pool
		n.ports[number(e.data)&portMask] = e.comment
	}
	for _, e := range t.elements("dispatch") {
		n.classes[number(e.key)] = strings.TrimPrefix(e.data, "goto ")
	}
	for _, e := range t.elements("pools") {
		n.pools[number(e.key)], n.ports[number(e.key)&portMask] = e.comment, e.comment
	}
	for _, e := range t.elements("sticky-endpoints") {
		n.tokens[number(e.key)] = e.comment + " " + e.data
	}
	return n
}

// hashes names each hash table by a digest of its slots: the same endpoints must have the same slots on each node.
func (t *listed) hashes() map[uint64]string {
	tables := map[uint64]bool{}
	for _, e := range t.elements("hash-tables") {
		tables[number(e.data)>>16] = true
	}
	slots := map[uint64][]string{}
	for _, set := range []string{"hash-slots", "endpoints"} {
		for _, e := range t.elements(set) {
			key, slot, _ := strings.Cut(e.key, " . ")
			if n := number(key) >> 16; set == "hash-slots" || tables[n] {
				slots[n] = append(slots[n], slot+" "+e.data)
			}
		}
	}
	out := map[uint64]string{}
	for n, list := range slots {
		slices.Sort(list)
		out[n] = fmt.Sprintf("table of %d slots with digest %x", len(list), sha256.Sum256([]byte(strings.Join(list, "\n"))))
	}
	return out
}

func (t *listed) elements(set string) []listedElement {
	if s := t.sets[set]; s != nil {
		return s.elements
	}
	return nil
}

// canonical lists the content of the table.
func (t *listed) canonical() []string {
	n := t.names()
	out := slices.Clone(t.other)
	used := map[string]bool{}
	for name, s := range t.sets {
		out = append(out, name+": "+strings.Join(s.header, "; "))
		out = append(out, s.canonical(name, n, used)...)
	}
	return append(out, t.usedChains(used, n)...)
}

// isCompared reports whether the elements of a set count. Some are entries that packets make, and a plan knows no devices; of classes and
// target ports, pools and hash tables say which are used.
func isCompared(set string) bool {
	return !slices.Contains([]string{"affinity", "unanswered", "refusing", "held-back", "dispatch", "target-ports", "fast-path-devices"}, set)
}

// canonical lists the elements of a set. It notes the chains that the set leads to.
func (s *listedSet) canonical(name string, n names, used map[string]bool) (out []string) {
	if !isCompared(name) {
		return nil
	}
	slots := map[string][]string{}
	for _, e := range s.elements {
		key, data := e.key, e.data
		switch name {
		case "services", "nodeports":
			v := number(data)
			data = fmt.Sprintf("%x %s", v>>30, known(n.pools, v&frontendAll))
		case "firewalled":
			data = fmt.Sprintf("%x %s", number(data)>>30, known(n.ports, number(data)&portMask))
		case "source-lengths", "allowed-sources":
			first, rest, _ := strings.Cut(key, " . ")
			v := number(first)
			key = fmt.Sprintf("%s, length %d, %s", known(n.ports, v&portMask), v>>20, rest)
		case "pools":
			v := number(data)
			chain := known(n.classes, v&^poolMask)
			used[chain] = true
			key, data = "", chain
			if v&poolMask != number(e.key) {
				data += " and another pool"
			}
		case "hash-tables":
			v := number(data)
			key, data = known(n.pools, number(key)), fmt.Sprintf("%s, port %s", known(n.hashes, v>>16), known(n.targets, v&0xffff))
		case "hash-slots", "endpoints", "sticky-slots":
			pool, slot, _ := strings.Cut(key, " . ")
			if number(pool) > poolMask {
				continue // a hash table; the pools that use it name its slots
			}
			at := known(n.pools, number(pool))
			if name == "sticky-slots" {
				data = known(n.tokens, number(data))
			}
			slots[at] = append(slots[at], data)
			key, data = at, "has slot "+slot
		case "sticky-endpoints", "generation": // a number that only this process has, and what the comment says
			key = ""
		}
		out = append(out, strings.Join([]string{name, key, e.comment, data}, " | "))
	}
	for pool, list := range slots {
		slices.Sort(list)
		out = append(out, fmt.Sprintf("%s | %s | %s", name, pool, strings.Join(list, ", ")))
	}
	return out
}

// known translates a number. A number without a name stays visible as an error.
func known(names map[uint64]string, v uint64) string {
	if name, ok := names[v]; ok {
		return name
	}
	return "NOTHING"
}

var leadsTo = regexp.MustCompile(`(?:goto|jump) ([a-z0-9-]+)`)

// groupPrefix begins the names of the chains for groups of prefix lengths.
const groupPrefix = "source-ranges-"

// groups are the endings of these names for the groups that source ranges use.
func (t *listed) groups() map[string]bool {
	const lengths = 8 // of a group
	out := map[string]bool{}
	for _, e := range t.elements("source-lengths") {
		last := number(e.key) >> 20
		out[fmt.Sprintf("%d-%d", last-lengths+1, last)] = true
	}
	return out
}

// usedChains lists the rules of the fixed chains, of the classes that pools use, and of what these lead to.
func (t *listed) usedChains(used map[string]bool, n names) (out []string) {
	spare := map[string]bool{}
	for _, chain := range n.classes {
		spare[chain] = true
	}
	var queue []string
	groups := t.groups()
	isSpareGroup := func(rule string) bool {
		_, group, ok := strings.Cut(rule, " jump "+groupPrefix)
		return ok && !groups[group]
	}
	for name := range t.chains {
		ofClass := strings.HasPrefix(name, groupPrefix) || strings.HasPrefix(name, "token-") || strings.HasPrefix(name, "table-")
		if used[name] || !spare[name] && !ofClass {
			queue = append(queue, name)
		}
	}
	done := map[string]bool{}
	for ; len(queue) > 0; queue = queue[1:] {
		name := queue[0]
		if done[name] {
			continue
		}
		done[name] = true
		body := slices.DeleteFunc(slices.Clone(t.chains[name]), isSpareGroup)
		for i, rule := range body {
			out = append(out, fmt.Sprintf("chain %s %d | %s", name, i, counterText.ReplaceAllString(rule, " counter")))
			if m := leadsTo.FindStringSubmatch(rule); m != nil {
				queue = append(queue, m[1])
			}
		}
	}
	return out
}

// Difference is an error that shows where two contents differ.
func Difference(want, got []string) error {
	diff := cmp.Diff(want, got)
	if diff == "" {
		return nil
	}
	return errors.New("the kernel differs from a fresh plan (- plan, + kernel):\n" + diff)
}
