package nft

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// TestGoldenBytecode compares what the text of the program does not show with a golden file: the expressions of each
// statement, the types and flags of sets, and the hooks of chains. TestGolden shows that nft makes the same from the text.
func TestGoldenBytecode(t *testing.T) {
	lines := map[string]string{}
	for _, x := range append(examples(), fastPathExample()) {
		x.bytecode(t, lines)
	}
	for _, f := range program.Families() {
		for _, x := range program.Features() {
			noteRules(lines, f, x.Rules(program.Program{Family: f}))
		}
		flow := program.Flow{Src: addr("10.9.0.1"), Dst: addr("10.96.0.10"), Protocol: tcp, SrcPort: 40000, DstPort: 80}
		if f == program.IPv6 {
			flow.Src, flow.Dst = addr("fd00:9::1"), addr("fd00:96::a")
		}
		for _, c := range program.TraceChains(flow) {
			noteRules(lines, f, c.Rules)
			note(lines, "chain of a trace "+c.Name, withoutZeros(reflect.ValueOf(c.Shape())))
		}
	}
	text := ""
	for _, what := range slices.Sorted(maps.Keys(lines)) {
		text += lines[what] + "\n"
	}
	const file = "testdata/bytecode.txt"
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Errorf("other expressions or shapes than in %s (- wanted, + got); if TestGolden passes, run this test with -update:\n%s", file, diff)
	}
}

// digits are what statements of the same form differ in.
var digits = regexp.MustCompile(`\b[0-9][0-9a-f:.]*`)

// bytecode adds the statements, declarations of sets, and base chains of an example, without zeros. Of those of one form, it adds
// the first one.
func (x example) bytecode(t *testing.T, lines map[string]string) {
	t.Helper()
	e := newEngine(nil, Options{})
	e.SetGlobals(x.globals)
	mustSet(t, e, x.ports...)
	tx := &program.Transaction{}
	for _, tb := range e.tables {
		tb.Build(tx.For(tb.Family), kernel.Existing{})
	}
	for _, o := range slices.Concat(tx.Before, tx.After) {
		switch o.Kind {
		case program.AddRule:
			noteRules(lines, o.Family, []rule.Rule{o.Rule})
		case program.AddSet:
			declared := strings.Join(o.Set.Declaration(), ", ")
			note(lines, familyIn(declared, o.Family)+"set "+declared, withoutZeros(reflect.ValueOf(o.Set.Shape())))
		case program.AddChain:
			if o.Chain.Base != nil {
				note(lines, "chain "+o.Name, withoutZeros(reflect.ValueOf(o.Chain.Shape())))
			}
		}
	}
}

// note adds a line, unless there is one of the same form.
func note(lines map[string]string, what, text string) {
	if form := digits.ReplaceAllString(what, "#"); lines[form] == "" {
		lines[form] = what + ": " + text
	}
}

func noteRules(lines map[string]string, f program.Family, rules []rule.Rule) {
	for _, r := range rules {
		for _, s := range r {
			text := ""
			for _, each := range s.Exprs {
				text += " " + withoutZeros(reflect.ValueOf(each).Elem())
			}
			if (rule.Rule{s}).UsesProtocols() {
				text += " with the set of protocols"
			}
			note(lines, familyIn(s.Text, f)+"rule "+s.Text, text[1:])
		}
	}
}

// familyIn returns the family for a statement that does not name it, and may differ.
func familyIn(text string, f program.Family) string {
	if strings.Contains(text, "map @") || strings.HasPrefix(text, "typeof") || text == "reject" {
		return f.String() + " "
	}
	return ""
}

// withoutZeros prints a struct without the fields that are zero.
func withoutZeros(v reflect.Value) string {
	var fields []string
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			format := "%s:%v"
			if f.Kind() == reflect.String {
				format = "%s:%+q"
			}
			fields = append(fields, fmt.Sprintf(format, v.Type().Field(i).Name, f))
		}
	}
	return v.Type().Name() + "{" + strings.Join(fields, " ") + "}"
}
