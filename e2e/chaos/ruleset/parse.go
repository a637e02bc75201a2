package ruleset

import (
	"regexp"
	"slices"
	"strings"
)

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
	if kind == "flowtable" { // it has the name of a set; devices come and go without a plan
		name = kind + " " + name
		body = slices.DeleteFunc(body, func(line string) bool { return strings.HasPrefix(line, "devices = ") })
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
