package nft

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/program"
)

// goldenObject is a table, set or chain in the text that Memory prints.
type goldenObject struct {
	name     string   // such as "ip map services"
	lines    []string // of a table, its comment
	elements []string // sorted
}

var errForm = errors.New("the text does not have the form that Memory prints")

// goldenObjects takes a text apart, and makes sure that nothing of it is lost.
func goldenObjects(text string) ([]goldenObject, error) {
	var list []goldenObject
	family := ""
	for line := range strings.Lines(text) {
		body := strings.TrimSpace(line)
		words := strings.Fields(body)
		if len(words) > 1 && words[0] == "table" {
			family = words[1]
		}
		switch {
		case strings.HasSuffix(body, "{"):
			list = append(list, goldenObject{name: family + " " + strings.Join(words[:min(2, len(words))], " ")})
		case body == "}" || body == "":
		case len(list) == 0:
			return nil, errForm
		case strings.HasPrefix(body, "elements = { ") || len(list[len(list)-1].elements) > 0:
			o := &list[len(list)-1]
			body = strings.TrimPrefix(body, "elements = { ")
			o.elements = append(o.elements, strings.TrimSuffix(strings.TrimSuffix(body, ","), " }"))
		default:
			o := &list[len(list)-1]
			o.lines = append(o.lines, body)
		}
	}
	unsorted := func(o goldenObject) bool { return !slices.IsSorted(o.elements) }
	if together(list) != text || slices.ContainsFunc(list, unsorted) {
		return nil, errForm
	}
	return list, nil
}

// together is the text of objects.
func together(list []goldenObject) string {
	var b strings.Builder
	for i, o := range list {
		family, head, _ := strings.Cut(o.name, " ")
		indent := "\t"
		if strings.HasPrefix(head, "table ") {
			indent, head = "", "table "+family+" "+program.TableName
			if i > 0 {
				b.WriteString("}\n")
			}
		}
		fmt.Fprintf(&b, "%s%s {\n", indent, head)
		for _, line := range o.lines {
			fmt.Fprintf(&b, "%s\t%s\n", indent, line)
		}
		if len(o.elements) > 0 {
			fmt.Fprintf(&b, "\t\telements = { %s }\n", strings.Join(o.elements, ",\n\t\t\t     "))
		}
		if indent != "" {
			b.WriteString("\t}\n\n")
		}
	}
	b.WriteString("}\n")
	return b.String()
}

// goldenDiff prints what is different in a text. Of a set it prints elements that come (+) and go (-). Of a chain it
// prints all rules, because their order matters, and marks those that come and go. A new set or chain is printed with
// the one that it follows. Different texts have different diffs.
func goldenDiff(base, text string) (string, error) {
	before, err := goldenObjects(base)
	if err != nil {
		return "", err
	}
	after, err := goldenObjects(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	rest := before
	for i, o := range after {
		at := slices.IndexFunc(rest, func(old goldenObject) bool { return old.name == o.name })
		if at < 0 {
			fmt.Fprintf(&b, "+ %s, after %s\n", o.name, after[max(0, i-1)].name)
			o.printChanges(&b, goldenObject{})
			continue
		}
		for _, gone := range rest[:at] {
			fmt.Fprintf(&b, "- %s\n", gone.name)
		}
		old := rest[at]
		rest = rest[at+1:]
		if !slices.Equal(old.lines, o.lines) || !slices.Equal(old.elements, o.elements) {
			fmt.Fprintf(&b, "  %s\n", o.name)
			o.printChanges(&b, old)
		}
	}
	for _, gone := range rest {
		fmt.Fprintf(&b, "- %s\n", gone.name)
	}
	return b.String(), nil
}

func (o *goldenObject) printChanges(b *strings.Builder, old goldenObject) {
	if !slices.Equal(old.lines, o.lines) {
		same := 0
		for same < min(len(old.lines), len(o.lines)) && old.lines[same] == o.lines[same] {
			same++
		}
		tail := 0
		for tail < min(len(old.lines), len(o.lines))-same && old.lines[len(old.lines)-1-tail] == o.lines[len(o.lines)-1-tail] {
			tail++
		}
		printMarked(b, " ", o.lines[:same])
		printMarked(b, "-", old.lines[same:len(old.lines)-tail])
		printMarked(b, "+", o.lines[same:len(o.lines)-tail])
		printMarked(b, " ", o.lines[len(o.lines)-tail:])
	}
	printMarked(b, "-", onlyIn(old.elements, o.elements))
	printMarked(b, "+", onlyIn(o.elements, old.elements))
}

func printMarked(b *strings.Builder, mark string, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(b, "    %s %s\n", mark, line)
	}
}

func onlyIn(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

// TestGoldenDiff changes a text line by line: no two texts have the same diff.
func TestGoldenDiff(t *testing.T) {
	program, kinds := emptyExample().memory(t), kindsExample().memory(t)
	if diff, err := goldenDiff(program, program); diff != "" || err != nil {
		t.Fatalf("from a text to itself: %q, %v", diff, err)
	}
	diff, err := goldenDiff(program, kinds)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{diff: "the text"}
	lines := strings.SplitAfter(kinds, "\n")
	check := func(what string, changed ...string) {
		text := strings.Join(changed, "")
		diff, err := goldenDiff(program, text)
		if errors.Is(err, errForm) || text == kinds {
			return
		}
		if other, known := seen[diff]; known && !strings.HasPrefix(other, what) {
			t.Errorf("%s has the same diff as %s", what, other)
		}
		seen[diff] = what
	}
	for i := range lines[:len(lines)-1] {
		what := fmt.Sprintf("line %d %q", i+1, lines[i])
		check(what+" left out", slices.Concat(lines[:i], lines[i+1:])...)
		check(what+" changed", slices.Concat(lines[:i], []string{strings.Replace(lines[i], "p", "q", 1)}, lines[i+1:])...)
		check(what+" and the next one in the other order", slices.Concat(lines[:i], []string{lines[i+1], lines[i]}, lines[i+2:])...)
	}
	t.Logf("%d different texts", len(seen))
	if len(seen) < len(lines) {
		t.Errorf("too few, made from %d lines", len(lines))
	}
}

var update = flag.Bool("update", false, "write the golden files again, from the texts that Memory prints")

// goldenProgram is the program without any Service. For each other example, a file has the differences from it.
const goldenProgram = "testdata/program.nft"

func (x example) compareGolden(t *testing.T, text string) {
	t.Helper()
	file := goldenProgram
	if x.name != emptyExample().name {
		file = filepath.Join("testdata", x.name+".diff")
		var err error
		if text, err = goldenDiff(emptyExample().memory(t), text); err != nil {
			t.Fatal(err)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; write it with: go test ./nft -run TestGolden -update", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Fatalf("Memory prints another text than %s (- wanted, + got); if that is right, run the test with -update:\n%s",
			file, diff)
	}
}

// TestGoldenText compares the texts that Memory prints with the golden files. TestGolden also loads them into the
// kernel.
func TestGoldenText(t *testing.T) {
	for _, x := range append(examples(), fastPathExample()) {
		if !x.large {
			t.Run(x.name, func(t *testing.T) { x.compareGolden(t, x.memory(t)) })
		}
	}
}
