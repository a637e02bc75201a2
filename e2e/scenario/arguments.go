package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// arguments are the parts of a line that have not been used yet. The first error sticks.
type arguments struct {
	words    []string
	expected []string // behind =>
	body     []string
	err      error
}

func (a *arguments) fail(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf(format, args...)
	}
}

// leftover complains about what nobody has used.
func (a *arguments) leftover() error {
	switch {
	case a.err != nil:
		return a.err
	case len(a.words) > 0:
		return fmt.Errorf("%q: not understood", a.words[0])
	case len(a.expected) > 0:
		return fmt.Errorf("%q behind =>: not understood", a.expected[0])
	case len(a.body) > 0:
		return errors.New("indented lines below: not understood")
	}
	return nil
}

// next takes the next word.
func (a *arguments) next(what string) string {
	if len(a.words) == 0 {
		a.fail("%s is missing", what)
		return ""
	}
	w := a.words[0]
	a.words = a.words[1:]
	return w
}

// after takes the word behind a keyword.
func (a *arguments) after(keyword string) string {
	i := slices.Index(a.words, keyword)
	if i < 0 || i+1 >= len(a.words) {
		a.fail("%q and what follows it are missing", keyword)
		return ""
	}
	w := a.words[i+1]
	a.words = slices.Delete(slices.Clone(a.words), i, i+2)
	return w
}

// option takes KEY=VALUE.
func (a *arguments) option(key string) string {
	for i, w := range a.words {
		if value, ok := strings.CutPrefix(w, key+"="); ok {
			a.words = slices.Delete(slices.Clone(a.words), i, i+1)
			return value
		}
	}
	a.fail("%s=... is missing", key)
	return ""
}

// number is the value of n=NUMBER.
func (a *arguments) number() int {
	text := a.option("n")
	n, err := strconv.Atoi(text)
	if err != nil && a.err == nil {
		a.fail("n=%s is no number", text)
	}
	return n
}

func (a *arguments) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		a.fail("%q is no duration", text)
	}
	return d
}

func (a *arguments) protocol() lab.Protocol {
	word := a.next("the protocol")
	p, err := lab.ParseProtocol(word)
	if err != nil {
		a.fail("%v", err)
	}
	return p
}

// target reads $NAME:PORT.
func (a *arguments) target() Target {
	word := a.after("to")
	name, port, _ := strings.Cut(word, ":")
	t := Target{Name: strings.TrimPrefix(name, "$")}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || !strings.HasPrefix(name, "$") {
		a.fail("%q is not of the form $NAME:PORT", word)
		return t
	}
	t.Port = uint16(n)
	if _, err := lab.Lookup(lab.IPv4, t.Name); err != nil {
		a.fail("%v", err)
	}
	return t
}

func (a *arguments) from() string {
	from := a.after("from")
	if !slices.Contains(append(lab.Pods(), lab.Node, lab.Remote, "x", "y"), from) {
		a.fail("%q is no place to ask from", from)
	}
	return from
}

func (a *arguments) call() Call {
	return Call{Protocol: a.protocol(), From: a.from(), To: a.target()}
}

func (a *arguments) expect() Expect {
	e, err := parseExpect(a.expected)
	if err != nil {
		a.fail("%v", err)
	}
	a.expected = nil
	return e
}

// backends takes all that is expected as a list of endpoints.
func (a *arguments) backends() []string {
	list, err := backends(a.expected)
	if err != nil {
		a.fail("%v", err)
	}
	a.expected = nil
	return list
}

// text takes the indented lines, without what they have in common at their beginning.
func (a *arguments) text() string {
	indent := -1
	for _, l := range a.body {
		if l != "" {
			n := len(l) - len(strings.TrimLeft(l, " "))
			if indent < 0 || n < indent {
				indent = n
			}
		}
	}
	var out strings.Builder
	for _, l := range a.body {
		out.WriteString(l[min(len(l), max(indent, 0)):] + "\n")
	}
	a.body = nil
	return out.String()
}
