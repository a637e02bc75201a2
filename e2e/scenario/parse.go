package scenario

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Load reads all files that end in .txt, ordered by name.
func Load(fsys fs.FS) ([]*Scenario, error) {
	names, err := fs.Glob(fsys, "*.txt")
	if err != nil {
		return nil, fmt.Errorf("list scenarios: %w", err)
	}
	var out []*Scenario
	var errs []error
	for _, name := range names {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("read scenarios: %w", err)
		}
		list, err := Parse(name, string(text))
		out, errs = append(out, list...), append(errs, err)
	}
	return out, errors.Join(errs...)
}

// Parse reads one file. It reports all mistakes in it at once, each with its line.
func Parse(file, text string) ([]*Scenario, error) {
	p := parser{file: file}
	for _, b := range blocks(text) {
		p.block(b)
	}
	for _, s := range p.scenarios {
		if len(s.Steps) == 0 {
			p.fail(s.Line, "scenario %q has no steps", s.Name)
		}
		s.File = strings.TrimSuffix(path.Base(file), ".txt")
	}
	return p.scenarios, errors.Join(p.errs...)
}

// block is a line that begins in the first column, with the indented lines below it.
type block struct {
	line int
	text string
	body []string
}

// blocks cuts a file into blocks. Lines that begin with # in the first column are comments. Empty lines mean nothing.
func blocks(text string) (out []block) {
	for i, l := range strings.Split(text, "\n") {
		l = strings.TrimRight(l, " \t\r")
		switch {
		case l == "", l[0] == '#':
		case l[0] == ' ', l[0] == '\t':
			if len(out) > 0 {
				b := &out[len(out)-1]
				b.body = append(b.body, l)
			}
		default:
			out = append(out, block{line: i + 1, text: l})
		}
	}
	return out
}

type parser struct {
	file      string
	scenarios []*Scenario
	errs      []error
}

func (p *parser) fail(line int, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s:%d: %s", p.file, line, fmt.Sprintf(format, args...)))
}

func (p *parser) block(b block) {
	if name, ok := strings.CutPrefix(b.text, "== "); ok {
		name = strings.TrimSpace(name)
		if slices.ContainsFunc(p.scenarios, func(s *Scenario) bool { return s.Name == name }) {
			p.fail(b.line, "a second scenario is called %q", name)
		}
		p.scenarios = append(p.scenarios, &Scenario{Name: name, Line: b.line, Families: lab.Families()})
		return
	}
	if len(p.scenarios) == 0 {
		p.fail(b.line, "this line stands before the first scenario, which a line \"== NAME\" begins")
		return
	}
	s := p.scenarios[len(p.scenarios)-1]
	if header, err := s.header(b); header || err != nil {
		if err != nil {
			p.fail(b.line, "%v", err)
		}
		return
	}
	step, err := parseStep(b)
	if err != nil {
		p.fail(b.line, "%v", err)
		return
	}
	s.Steps = append(s.Steps, step)
}

// header reads one of the lines that say when and how a scenario runs. It reports whether the line is one of them.
func (s *Scenario) header(b block) (is bool, err error) {
	word, rest, _ := strings.Cut(b.text, " ")
	rest = strings.TrimSpace(rest)
	switch word {
	case "flags":
		s.Flags = strings.Fields(rest)
		for _, f := range lab.Families() {
			if _, err := s.Arguments(f); err != nil {
				return true, err
			}
		}
	case "families":
		s.Families = nil
		for _, f := range lab.Families() {
			if strings.Contains(rest, f.String()) {
				s.Families = append(s.Families, f)
			}
		}
		if len(s.Families) == 0 {
			return true, fmt.Errorf("families: %q names none of IPv4, IPv6", rest)
		}
	default:
		why := map[string]*string{
			"only-apiserver": &s.OnlyAPIServer, "only-manifests": &s.OnlyManifests, "not-upstream": &s.NotUpstream, "not-ipvs": &s.NotIPVS,
		}[word]
		if why == nil {
			return false, nil
		}
		*why = rest
	}
	if rest == "" {
		return true, fmt.Errorf("%s: nothing follows it", word)
	}
	return true, nil
}

// These words begin a line below a step that says what another proxy does instead.
const (
	upstreamDiffers = "kube-proxy" // upstream's proxy
	ipvsDiffers     = "ipvs"       // Verdict when IPVS serves the Services
)

func parseStep(b block) (Step, error) {
	step := Step{Line: b.line, Text: b.text}
	var body []string
	for _, l := range b.body {
		who, text, _ := strings.Cut(strings.TrimSpace(l), " => ")
		if who != upstreamDiffers && who != ipvsDiffers {
			body = append(body, l)
			continue
		}
		v, err := parseVariant(b.text, who, text)
		switch {
		case err != nil:
			return step, err
		case who == ipvsDiffers:
			step.IPVS = v
		default:
			step.Upstream = v
		}
	}
	var err error
	step.Do, err = parseVerb(b.text, body)
	return step, err
}

// parseVariant reads what another proxy does instead.
func parseVariant(step, who, text string) (*Variant, error) {
	expected, because, found := strings.Cut(text, " because ")
	call, usual, hasExpectation := strings.Cut(step, " => ")
	if !found || !hasExpectation {
		return nil, fmt.Errorf(`a difference reads "%s => EXPECTATION because REASON"`, who)
	}
	v := &Variant{Instead: squeeze(expected), Because: because}
	if v.Instead == squeeze(usual) {
		return nil, fmt.Errorf("%s is expected to do the same as Verdict usually does: that is not a difference", who)
	}
	var err error
	v.Do, err = parseVerb(call+" => "+v.Instead, nil)
	return v, err
}

// parseVerb reads one step.
func parseVerb(text string, body []string) (any, error) {
	call, expected, _ := strings.Cut(text, " => ")
	words := strings.Fields(call)
	verb, err := findVerb(words[0])
	if err != nil {
		return nil, err
	}
	a := &arguments{words: words[1:], expected: strings.Fields(expected), body: body}
	do := verb.read(a)
	return do, a.leftover()
}
