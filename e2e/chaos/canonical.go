package main

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// canonical is the text of the tables of Verdict, as nft lists them, without what differs between processes that mean
// the same: the numbers of pools, classes and tokens, the order of slots, counters, unused classes and groups of prefix
// lengths, and the entries of clients. A hash table that no pool uses stays until the next transaction, and so do its target ports. It returns sorted
// lines.
func canonical(listing string) []string {
	var out []string
	for _, t := range parseTables(listing) {
		for _, line := range t.canonical() {
			out = append(out, t.family+" "+line)
		}
	}
	slices.Sort(out)
	return out
}

// listed is a table as nft lists it.
type listed struct {
	family string
	sets   map[string]*listedSet
	chains map[string][]string
	other  []string // lines outside of blocks
}

// listedSet is a set or map.
type listedSet struct {
	header   []string
	elements []listedElement
}

// listedElement is an element without its counter.
type listedElement struct{ key, comment, data string }

// parseTables reads the tables of Verdict out of a listing. It knows no more of the syntax than it needs.
func parseTables(listing string) (tables []*listed) {
	var t *listed
	kind, name := "", ""
	var body []string
	for line := range strings.Lines(listing) {
		depth := len(line) - len(strings.TrimLeft(line, "\t"))
		text := strings.TrimSpace(line)
		words := strings.Fields(text)
		switch {
		case text == "":
		case depth == 0 && words[0] == "table":
			t = nil
			if words[2] == "verdict" {
				t = &listed{family: words[1], sets: map[string]*listedSet{}, chains: map[string][]string{}}
				tables = append(tables, t)
			}
		case t == nil || depth == 0:
		case depth == 1 && strings.HasSuffix(text, " {"):
			kind, name, body = words[0], words[1], nil
		case depth == 1 && text == "}":
			t.block(kind, name, body)
		case depth == 1 && isIdle(text):
		case depth == 1:
			t.other = append(t.other, text)
		default:
			body = append(body, text)
		}
	}
	return tables
}

// isIdle reports whether a line has flags of a table that do nothing: "persist" of an earlier daemon stays, and matters
// only with an owner (nft 1.0.6 prints no name for it). A table that sleeps is another matter.
func isIdle(text string) bool {
	return strings.Fields(text)[0] == "flags" && !strings.Contains(text, "dormant")
}

func (t *listed) block(kind, name string, body []string) {
	if kind == "chain" {
		t.chains[name] = body
		return
	}
	s := &listedSet{header: []string{kind}}
	t.sets[name] = s
	for i, line := range body {
		if !strings.HasPrefix(line, "elements = {") {
			s.header = append(s.header, line)
			continue
		}
		text := strings.Join(body[i:], " ")
		text = strings.TrimSuffix(strings.TrimPrefix(text, "elements = {"), "}")
		for _, one := range splitOutsideQuotes(text) {
			s.elements = append(s.elements, parseListed(one))
		}
		return
	}
}

// splitOutsideQuotes splits at commas that are not part of a comment.
func splitOutsideQuotes(text string) (parts []string) {
	quoted, start := false, 0
	for i := range len(text) {
		switch {
		case text[i] == '"':
			quoted = !quoted
		case text[i] == ',' && !quoted:
			parts, start = append(parts, text[start:i]), i+1
		}
	}
	return append(parts, text[start:])
}

var (
	counterText = regexp.MustCompile(` counter packets \d+ bytes \d+`)
	timeText    = regexp.MustCompile(` (timeout|expires) \S+`)
	commentText = regexp.MustCompile(` comment "([^"]*)"`)
)

func parseListed(text string) listedElement {
	text = timeText.ReplaceAllString(counterText.ReplaceAllString(" "+strings.TrimSpace(text), ""), "")
	var e listedElement
	if m := commentText.FindStringSubmatch(text); m != nil {
		e.comment = m[1]
		text = strings.Replace(text, m[0], "", 1)
	}
	e.key, e.data, _ = strings.Cut(text, " : ")
	e.key, e.data = strings.TrimSpace(e.key), strings.TrimSpace(e.data)
	return e
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

// canonical lists the elements of a set. It notes the chains that the set leads to.
func (s *listedSet) canonical(name string, n names, used map[string]bool) (out []string) {
	switch name {
	case "affinity", "unanswered", "refusing", "held-back", "dispatch", "target-ports":
		return nil // entries that packets make; classes and ports, of which pools and hash tables say what is used
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
