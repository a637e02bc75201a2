package convert

import "strings"

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

// all returns the statements of a block that begin with one of the words.
func (s *statement) all(words ...string) (found []*statement) {
	if s == nil {
		return nil
	}
	for _, inner := range s.block {
		for _, w := range words {
			if inner.word(0) == w {
				found = append(found, inner)
			}
		}
	}
	return found
}

// value returns the word after the first of the words, from the first block that has it, or "".
func value(word string, blocks ...*statement) string {
	for _, b := range blocks {
		for _, s := range b.all(word) {
			return s.word(1)
		}
	}
	return ""
}

// token is a word, a brace or the end of a line.
type token struct {
	line   int
	text   string
	quoted bool
}

const endOfLine = "\n"

func (t token) is(text string) bool { return t.text == text && !t.quoted }

// tokens splits a file. A comment begins with ! or # and ends with the line.
func tokens(text string) (list []token) {
	for i, line := range strings.Split(text, "\n") {
		rest := line
		for {
			rest = strings.TrimLeft(rest, " \t\r")
			if rest == "" || rest[0] == '!' || rest[0] == '#' {
				break
			}
			var t token
			switch rest[0] {
			case '{', '}':
				t.text, rest = rest[:1], rest[1:]
			case '"', '\'':
				t.quoted = true
				t.text, rest, _ = strings.Cut(rest[1:], rest[:1])
			default:
				end := strings.IndexAny(rest, " \t\r{}!#\"")
				if end <= 0 {
					end = len(rest)
				}
				t.text, rest = rest[:end], rest[end:]
			}
			t.line = i + 1
			list = append(list, t)
		}
		list = append(list, token{line: i + 1, text: endOfLine})
	}
	return list
}

// parse reads statements and their blocks. It notes braces without a partner.
func (c *conversion) parse(text string) []*statement {
	root := &statement{}
	open := []*statement{root}
	var current *statement
	for _, t := range tokens(text) {
		block := open[len(open)-1]
		switch {
		case t.is(endOfLine):
			current = nil
		case t.is("{"):
			if current == nil && len(block.block) > 0 {
				current = block.block[len(block.block)-1] // the brace has a line of its own
			}
			if current == nil {
				current = &statement{line: t.line}
			}
			open, current = append(open, current), nil
		case t.is("}"):
			if current = nil; len(open) == 1 {
				c.note(t.line, "}: no block is open")
				continue
			}
			open = open[:len(open)-1]
		case current == nil:
			current = &statement{line: t.line, words: []string{t.text}}
			block.block = append(block.block, current)
		default:
			current.words = append(current.words, t.text)
		}
	}
	for _, s := range open[1:] {
		c.note(s.line, "%s: its block has no end", strings.Join(s.words, " "))
	}
	return c.unconditional(root.block)
}

// unconditional leaves out what depends on a condition of keepalived, which only its command line knows.
func (c *conversion) unconditional(list []*statement) (rest []*statement) {
	for _, s := range list {
		if strings.HasPrefix(s.word(0), "@") {
			c.note(s.line, "%s: depends on how keepalived is started; it is left out", strings.Join(s.words, " "))
			continue
		}
		s.block = c.unconditional(s.block)
		rest = append(rest, s)
	}
	return rest
}
