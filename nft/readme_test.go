package nft

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/program"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readmeTable is the table of README.md with this head: the cells of each row, without the head.
func readmeTable(t *testing.T, head ...string) (rows [][]string) {
	t.Helper()
	_, rest, found := strings.Cut(readme(t), "| "+strings.Join(head, " | ")+" |\n")
	if !found {
		t.Fatalf("README.md has no table with the head %q", head)
	}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "`", "")
		}
		rows = append(rows, cells)
	}
	return rows[1:] // the first row is the line below the head
}

// TestReadmeSets: README.md describes exactly the sets and maps of the program, in their order.
func TestReadmeSets(t *testing.T) {
	var want, got []string
	for _, d := range (program.Program{Family: program.IPv4}).Sets() {
		want = append(want, fmt.Sprintf("%s, map: %t", d.Name, d.IsMap()))
	}
	for _, row := range readmeTable(t, "name", "key", "data", "what it is for") {
		got = append(got, fmt.Sprintf("%s, map: %t", row[0], row[2] != ""))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(- program, + README.md):\n%s", diff)
	}
}

// TestReadmeChains: README.md describes exactly the fixed chains, which chains lead to each, and the hooks.
func TestReadmeChains(t *testing.T) {
	want, hooks := map[string]string{}, map[string]string{}
	for _, c := range (program.Program{Family: program.IPv4, Loopback: true, IPVS: true, Unanswered: true, Refusing: true, Fleet: true, FastPath: 1}).Chains() {
		switch {
		case strings.HasPrefix(c.Name, program.SourceRangesChain+"-"):
			continue // one for each group of lengths; README.md describes them below the table
		case c.Base != nil:
			want[c.Name] = "hook"
			hooks[c.Name] = fmt.Sprintf("%s %s %d", c.Base.Kind, c.Base.HookName, c.Base.Priority)
		case strings.HasPrefix(c.Name, "recall"):
			want[c.Name] = "classes with affinity"
		}
		for _, target := range jumpTargets(c) {
			if !strings.HasPrefix(target, program.SourceRangesChain+"-") {
				want[target] = strings.TrimPrefix(want[target]+", "+c.Name, ", ")
			}
		}
	}
	got, gotHooks := map[string]string{}, map[string]string{}
	for _, row := range readmeTable(t, "name", "reached from", "what it does") {
		got[row[0]] = row[1]
	}
	for _, row := range readmeTable(t, "chain", "type", "hook", "priority") {
		gotHooks[row[0]] = strings.Join(row[1:], " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("chains (- program, + README.md):\n%s", diff)
	}
	if diff := cmp.Diff(hooks, gotHooks); diff != "" {
		t.Errorf("hooks (- program, + README.md):\n%s", diff)
	}
}

// jumpTargets are the chains that a chain jumps to, each once.
func jumpTargets(c program.Chain) (names []string) {
	for _, r := range c.Rules {
		_, chains := r.References()
		names = append(names, chains...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestReadmeNumbers: the limits that README.md names are those of the program.
func TestReadmeNumbers(t *testing.T) {
	text := strings.Join(strings.Fields(readme(t)), " ")
	for _, want := range []string{
		fmt.Sprintf("at most %s in each family", thousands(program.MaxPorts-1)),
		fmt.Sprintf("the number of the pool's class; at most %s", thousands(program.MaxClasses-1)),
		fmt.Sprintf("at most %s endpoints in a service port with affinity", thousands(program.MaxOrdinals)),
		fmt.Sprintf("For up to %d slots", program.ExactDraws),
		fmt.Sprintf("the next rule draws again, %d times", len(program.Program{Family: program.IPv4}.ClassChain(program.NewClass(program.Random, program.ExactDraws+1, 0, false)).Rules)-2),
		fmt.Sprintf("A name of more than %d bytes", len(program.Label(strings.Repeat("x", 1000)))),
		fmt.Sprintf("`%s`", program.LayoutComment),
		fmt.Sprintf("There are %s client numbers", thousands(program.DefaultAffinityShare)),
		fmt.Sprintf("the map has room for %s entries", thousands(program.DefaultAffinitySize)),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("README.md does not say %q", want)
		}
	}
}

func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// TestReadmeGlossary: the glossary is sorted, and has each word once.
func TestReadmeGlossary(t *testing.T) {
	var words []string
	for _, row := range readmeTable(t, "word", "meaning") {
		words = append(words, strings.ToLower(row[0]))
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(words)))
	if diff := cmp.Diff(sorted, words); diff != "" {
		t.Errorf("words (- in order, + README.md):\n%s", diff)
	}
}
