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

// Target is a name of the address book and a port.
type Target struct {
	Name string // without $
	Port uint16
}

// Call says which client connects to which target.
type Call struct {
	Protocol lab.Protocol
	From     string
	To       Target
}

// Expect is what a probe expects.
type Expect struct {
	// Outcome is how every connection ends. With Answered, Backends or Ref says which endpoints answer.
	Outcome lab.Outcome
	// Backends are exactly the endpoints that answer.
	Backends []string
	// OneOf means that one of Backends answers, always the same one. As is the name under which the runner remembers
	// it.
	OneOf bool
	As    string
	// Ref is the name of a remembered endpoint, which answers.
	Ref string
	// Source says which source address the endpoint sees: "client", "node" (any address of the node) or $NAME; "" is
	// any.
	Source string
}

// Sequential reports whether the probe remembers an endpoint or refers to one, so that it cannot run beside other
// probes.
func (e *Expect) Sequential() bool { return e.As != "" || e.Ref != "" }

// arguments are the parts of a step that still have to be read. The first error stays.
type arguments struct {
	words    []string // between the verb and =>
	expected []string // after =>
	body     []string // the indented lines below
	err      error
}

func (a *arguments) fail(format string, args ...any) { a.failWith(fmt.Errorf(format, args...)) }

// failWith records an error, unless it is nil or an earlier one is recorded.
func (a *arguments) failWith(err error) {
	if a.err == nil {
		a.err = err
	}
}

// leftover returns the first error. Without one, it reports parts that the verb did not read.
func (a *arguments) leftover() error {
	switch {
	case a.err != nil:
		return a.err
	case len(a.words) > 0:
		return fmt.Errorf("%q: not understood", a.words[0])
	case len(a.expected) > 0:
		return fmt.Errorf("%q after =>: not understood", a.expected[0])
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

// after takes a keyword and the word that follows it, and returns that word.
func (a *arguments) after(keyword string) string {
	i := slices.Index(a.words, keyword)
	if i < 0 || i+1 >= len(a.words) {
		a.fail("%q and the word after it are missing", keyword)
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

// number takes n=NUMBER.
func (a *arguments) number() int {
	text := a.option("n")
	n, err := strconv.Atoi(text)
	if err != nil {
		a.fail("n=%s is not a number", text)
	}
	return n
}

func (a *arguments) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		a.fail("%q is not a duration", text)
	}
	return d
}

func (a *arguments) protocol() lab.Protocol {
	p, err := lab.ParseProtocol(a.next("the protocol"))
	a.failWith(err)
	return p
}

// target takes "to $NAME:PORT".
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
	_, err = lab.Lookup(lab.IPv4, t.Name)
	a.failWith(err)
	return t
}

// from takes "from PLACE".
func (a *arguments) from() string {
	from := a.after("from")
	if places := append(lab.Pods(), lab.Node, lab.Remote, "x", "y"); !slices.Contains(places, from) {
		a.fail("no client is at %q: clients are at %s", from, strings.Join(places, ", "))
	}
	return from
}

func (a *arguments) call() Call {
	return Call{Protocol: a.protocol(), From: a.from(), To: a.target()}
}

// takeExpected takes all words after =>.
func (a *arguments) takeExpected() []string {
	words := a.expected
	a.expected = nil
	return words
}

// expect takes all words after => as what a connection expects.
func (a *arguments) expect() (e Expect) {
	words := a.takeExpected()
	if len(words) == 0 {
		a.fail("nothing is expected")
		return e
	}
	switch o := lab.Outcome(words[0]); o {
	case lab.Refused, lab.Dropped, lab.Unreachable, lab.Broken:
		if len(words) > 1 {
			a.fail("%q after %s: not understood", words[1], o)
		}
		return Expect{Outcome: o}
	}
	e.Outcome = lab.Answered
	words, e.Source = a.cut(words, "source", `"client", "node" or $NAME`)
	if name, isName := strings.CutPrefix(e.Source, "$"); isName {
		_, err := lab.Lookup(lab.IPv4, name)
		a.failWith(err)
	} else if !slices.Contains([]string{"", "client", "node"}, e.Source) {
		a.fail(`"source" needs "client", "node" or $NAME after it, not %q`, e.Source)
	}
	words, e.As = a.cut(words, "as", "one name")
	if len(words) > 2 && words[0] == "one" && words[1] == "of" {
		e.OneOf, words = true, words[2:]
	}
	if len(words) == 1 && strings.HasPrefix(words[0], "@") {
		e.Ref = words[0][1:]
		return e
	}
	if e.As != "" && !e.OneOf {
		a.fail(`"as" needs "one of"`)
	}
	e.Backends = a.backends(words)
	return e
}

// cut cuts off a keyword and the word after it, which are the last two.
func (a *arguments) cut(words []string, keyword, what string) (rest []string, word string) {
	i := slices.Index(words, keyword)
	if i < 0 {
		return words, ""
	}
	if i != len(words)-2 {
		a.fail("%q needs %s after it, at the end", keyword, what)
		return words[:i], ""
	}
	return words[:i], words[i+1]
}

// backends checks a list of endpoints such as a and b:8081.
func (a *arguments) backends(words []string) []string {
	if len(words) == 0 {
		a.fail("no endpoint is expected: name at least one, or an outcome")
	}
	for _, w := range words {
		name, _, _ := strings.Cut(w, ":")
		if name != "host" && !slices.Contains(lab.Pods(), name) {
			a.fail("%q is not an endpoint", w)
		}
	}
	return words
}
