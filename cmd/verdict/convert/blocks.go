package convert

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// statement is a line of a configuration of keepalived, with its block if it has one.
type statement struct {
	line  int
	words []string
	block []*statement
}

// word returns a word of a statement, or "".
func (s *statement) word(i int) string {
	if i < len(s.words) {
		return s.words[i]
	}
	return ""
}

// name returns the first word. Of two names of keepalived for one thing, it is one.
func (s *statement) name() string {
	switch name := s.word(0); name {
	case "lvs_sched":
		return "lb_algo"
	case "lvs_method":
		return "lb_kind"
	case "nb_get_retry":
		return "retry"
	default:
		return name
	}
}

// String returns the statement without its block.
func (s *statement) String() string { return cmp.Or(strings.Join(s.words, " "), "{}") }

// all returns the statements of a block with a name.
func (s *statement) all(name string) (found []*statement) {
	for _, inner := range s.block {
		if inner.name() == name {
			found = append(found, inner)
		}
	}
	return found
}

// find returns the statement with a name from the first of the blocks that has it, or one without words. keepalived takes
// the last one of a block.
func find(name string, blocks ...*statement) *statement {
	for _, b := range blocks {
		if list := b.all(name); len(list) > 0 {
			return list[len(list)-1]
		}
	}
	return &statement{}
}

// value returns the word after a name, or "".
func value(name string, blocks ...*statement) string { return find(name, blocks...).word(1) }

// begin returns the statement that a word begins. A brace with a line of its own belongs to the statement before it.
func (s *statement) begin(line int, text string) *statement {
	if n := len(s.block); n > 0 && text == "{" {
		return s.block[n-1]
	}
	begun := &statement{line: line}
	s.block = append(s.block, begun)
	return begun
}

// expand writes the value of a definition, such as $VIP=192.0.2.1, where $VIP or ${VIP} follows. A value goes on in the next
// line after a backslash; its lines are then separated by \v, so that the lines of the file keep their numbers. What has no
// definition is left as it is, so that the statement around it is named.
func expand(text string) string {
	definition, comment := regexp.MustCompile(`(?m)^[ \t]*\$(\w+)=((?:.*\\\n)*.*)`), regexp.MustCompile(`[ \t]*[!#].*`)
	use, values := regexp.MustCompile(`\$\{[^}]*\}|\$\w+`), map[string]string{}
	expanded := func(text string) string {
		return use.ReplaceAllStringFunc(text, func(of string) string {
			of = strings.Trim(of, "${}")
			if value, found := values[of]; found {
				return value
			}
			return "$" + of
		})
	}
	var out strings.Builder
	text = strings.ReplaceAll(text, "\r\n", "\n")
	for m := definition.FindStringSubmatchIndex(text); m != nil; m = definition.FindStringSubmatchIndex(text) {
		out.WriteString(expanded(text[:m[0]]))
		value := text[m[4]:m[5]]
		out.WriteString(strings.Repeat("\n", strings.Count(value, "\n")))
		values[text[m[2]:m[3]]] = strings.ReplaceAll(expanded(comment.ReplaceAllString(value, "")), "\\\n", "\v")
		text = text[m[1]:]
	}
	return out.String() + expanded(text)
}

// parse reads statements and their blocks. It names braces without a partner. A comment begins with ! or # and ends with the
// line.
func (c keepalived) parse(text string) *statement {
	words := regexp.MustCompile(`"[^"]*"?|'[^']*'?|[{}\v]|[!#].*|[^\s\v{}!#"]+`)
	root := &statement{}
	open := []*statement{root}
	for i, line := range strings.Split(expand(text), "\n") {
		var current *statement
		for _, text := range words.FindAllString(line, -1) {
			if current == nil && !strings.ContainsAny(text[:1], "}\v!#") {
				current = open[len(open)-1].begin(i+1, text)
			}
			switch text[0] {
			case '!', '#':
			case '\v':
				current = nil
			case '{':
				current.block = append([]*statement{}, current.block...) // not nil
				open, current = append(open, current), nil
			case '}':
				if current = nil; len(open) == 1 {
					c.note(i+1, "}: no block is open")
					continue
				}
				open = open[:len(open)-1]
			case '"', '\'':
				current.words = append(current.words, strings.TrimSuffix(text[1:], text[:1]))
			default:
				current.words = append(current.words, text)
			}
		}
	}
	for _, s := range open[1:] {
		c.note(s.line, "%s: its block has no end", s)
	}
	return root
}

// known leaves in a block what is converted, or named by what reads it, and names all else: a statement that is in no way
// looked at cannot go in silence.
func (c keepalived) known(block string, of *statement) {
	if len(of.block) == 0 {
		return
	}
	last := map[string]*statement{}
	for _, s := range of.block {
		last[s.name()] = s
	}
	of.block = slices.DeleteFunc(of.block, func(s *statement) bool {
		why := c.why(block, s, last[s.name()])
		if why == "" {
			c.known(s.word(0), s)
			return false
		}
		what := s.String()
		if len(of.words) > 0 {
			what += " of " + of.String()
		}
		c.note(s.line, "%s: %s", what, why)
		for _, list := range append(s.all("virtual_ipaddress"), s.all("virtual_ipaddress_excluded")...) {
			for _, a := range list.block {
				c.note(a.line, "%s of %s: it is left out; verdict run --manage-addresses=DEVICE gives a device the addresses of balancers", a, s)
			}
		}
		return true
	})
}

// why returns what is said of a statement that is left out of a block, or "". The last one is that with the same name.
func (c keepalived) why(block string, s, last *statement) string {
	word := s.word(0)
	fate, found := c.fates[place{block, word}]
	conditional := strings.HasPrefix(word, "@")
	c.recognized = c.recognized || found || conditional && len(s.words) > 1
	switch {
	case conditional:
		return "it depends on how keepalived is started; it is left out"
	case word == "virtual_server" && s.word(1) == "fwmark":
		return noMarks
	case !found && block != "virtual_server_group":
		return unknown
	case fate == "" && found && last != s && block != "file" && s.block == nil && word != "status_code":
		return fmt.Sprintf("line %d has it again, and the last one holds", last.line)
	}
	return fate
}
