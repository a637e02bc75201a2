package demo

import (
	"fmt"
	"strings"
)

// part is a chain, map or set of the ruleset that is worth showing, with what it does.
type part struct {
	header string // as nft has it
	says   string
	only   string // if set, leave out elements without this
}

// path lists the parts in the order in which a packet to the Service meets them, once it has the given number of
// endpoints.
func path(endpoints int) []part {
	class := fmt.Sprintf("random-%d", endpoints)
	return []part{
		{header: "chain services", says: "The first packet of every connection comes here."},
		{header: "map services", says: "Cluster IP, protocol and port lead to the number of a pool."},
		{header: "map nodeports", says: "So does a node port."},
		{header: "chain balance", says: "The pool says how it picks ..."},
		{header: "map pools", says: "... here: the upper part is the way of picking, the lower one the pool."},
		{header: "map dispatch", says: "Each way of picking has a chain; other Services of the same size share it.", only: class},
		{header: "chain " + class, says: "Throw a die, look the slot up, translate the destination; slot 0 if it went away at this moment."},
		{header: "map endpoints", says: "The slots of the pool."},
	}
}

// excerpt takes the parts out of a table of the ruleset.
func excerpt(ruleset, table string, parts []part) (string, error) {
	_, rest, found := strings.Cut(ruleset, "table "+table+" {\n")
	if !found {
		return "", fmt.Errorf("the ruleset has no table %s", table)
	}
	body, _, _ := strings.Cut(rest, "\n}")
	var out strings.Builder
	for _, p := range parts {
		lines, err := p.lines(body)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "# %s\n", p.says)
		for _, line := range lines {
			out.WriteString(indent(line) + "\n")
		}
	}
	return out.String(), nil
}

// indent takes four columns for a tab; more than one stand before elements after the first, which belong below it.
func indent(line string) string {
	text := strings.TrimLeft(line, "\t ")
	switch tabs := strings.Count(line[:len(line)-len(text)], "\t"); tabs {
	case 0, 1:
		return strings.Repeat("    ", tabs) + text
	}
	return strings.Repeat(" ", len("    elements = { ")) + text
}

// lines of the part, with one tab less.
func (p *part) lines(body string) ([]string, error) {
	_, rest, found := strings.Cut("\n"+body, "\n\t"+p.header+" {\n")
	if !found {
		return nil, fmt.Errorf("the ruleset has no %s", p.header)
	}
	block, _, _ := strings.Cut("\n"+rest, "\n\t}")
	lines := []string{p.header + " {"}
	for line := range strings.Lines(strings.TrimPrefix(block, "\n")) {
		lines = append(lines, strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "\t"))
	}
	if p.only != "" {
		if lines = withElement(lines, p.only); len(lines) == 1 {
			return nil, fmt.Errorf("%s has no element with %s", p.header, p.only)
		}
	}
	return append(lines, "}"), nil
}

// withElement shortens the elements to the one that contains a word; there may be several on a line.
func withElement(lines []string, word string) []string {
	var kept []string
	for _, line := range lines {
		if !strings.Contains(line, " : ") {
			kept = append(kept, line)
			continue
		}
		line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "elements = { "), " }")
		for element := range strings.SplitSeq(line, ", ") {
			element = strings.TrimSuffix(element, ",")
			if strings.HasSuffix(element, word) {
				kept = append(kept, "\telements = { ... "+element+" ... }")
			}
		}
	}
	return kept
}
