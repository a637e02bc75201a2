package demo

import (
	"fmt"
	"strings"
)

// part is a chain, map or set that the demo shows, with an explanation.
type part struct {
	header string // as in the output of nft
	says   string // the explanation
	only   string // if set, only elements that end in this are shown
}

// path lists the parts that a packet to the Service passes, in their order, for a Service with the given number of
// endpoints.
func path(endpoints int) []part {
	class := fmt.Sprintf("random-%d", endpoints)
	return []part{
		{header: "chain services", says: "The first packet of every connection comes here."},
		{header: "map services", says: "This map leads from cluster IP, protocol and port to the number of a pool."},
		{header: "map nodeports", says: "This map does the same for node ports."},
		{header: "chain balance", says: "The number of the pool leads to its class and on to the chain of the class:"},
		{header: "map pools", says: "The value has two parts: the class (how to pick an endpoint) and the pool."},
		{header: "map dispatch", says: "Each class has a chain. All Services with the same number of endpoints share it.", only: class},
		{header: "chain " + class, says: "Pick a slot at random and translate the destination. The last rule is for a slot that was removed at this moment."},
		{header: "map endpoints", says: "The slots of the pool with their endpoints."},
	}
}

// excerpt returns the parts of a table of the ruleset as text.
func excerpt(ruleset, table string, parts []part) (string, error) {
	_, rest, found := strings.Cut(ruleset, "table "+table+" {") // nft adds the owner of the table as a comment
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

// indent replaces a tab by four columns. A line with more tabs holds a further element, and is aligned with the first
// one.
func indent(line string) string {
	text := strings.TrimLeft(line, "\t ")
	switch tabs := strings.Count(line[:len(line)-len(text)], "\t"); tabs {
	case 0, 1:
		return strings.Repeat("    ", tabs) + text
	}
	return strings.Repeat(" ", len("    elements = { ")) + text
}

// lines returns the lines of the part, without the first tab.
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

// withElement keeps only the elements that end in a word. A line may hold several elements.
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
