package nft

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/program"
)

// listing is the output of "nft list" in comparable form: the lines of each object, such as "ip map services". The
// rules of a chain keep their order. The elements of a set are sorted, because the kernel lists them in the order of
// its hash table.
type listing map[string]object

type object struct {
	Lines    []string
	Elements []string
}

// volatile matches the parts of a listing that change with packets and time.
var volatile = regexp.MustCompile(` counter packets \d+ bytes \d+| expires [0-9a-z]+`)

func parseListing(t testing.TB, text string) listing {
	t.Helper()
	l := listing{}
	family, name := "", ""
	lines := strings.Split(volatile.ReplaceAllString(text, ""), "\n")
	for i := 0; i < len(lines); i++ {
		words := strings.Fields(lines[i])
		switch {
		case len(words) == 0:
		case words[0] == "table":
			family, name = words[1], words[1]+" table"
			l[name] = object{}
		case words[0] == "}":
			name = family + " table"
		case len(words) == 3 && words[2] == "{":
			name = family + " " + words[0] + " " + words[1]
			l[name] = object{}
		case words[0] == "elements":
			o := l[name]
			for o.Elements, i = nil, i-1; !strings.HasSuffix(lines[i], " }"); {
				i++
				o.Elements = append(o.Elements, splitElements(lines[i])...)
			}
			slices.Sort(o.Elements)
			// The kernel lists elements twice while it resizes the hash table of a set.
			o.Elements = slices.Compact(o.Elements)
			if words := strings.Fields(name); words[len(words)-1] == program.Generation.Name() {
				o.Elements = nil // every engine has another stamp
			}
			l[name] = o
		default:
			o := l[name]
			o.Lines = append(o.Lines, strings.Join(words, " "))
			l[name] = o
		}
	}
	if len(l) == 0 {
		t.Fatalf("no table in listing %q", text)
	}
	return l
}

// splitElements splits one line of a list of elements. The comments in the tests have no comma and no brace.
func splitElements(line string) []string {
	line = strings.TrimPrefix(strings.TrimSpace(line), "elements = { ")
	line = strings.TrimSuffix(strings.TrimSuffix(line, " }"), ",")
	return strings.Split(line, ", ")
}

func compareListings(t testing.TB, what, got, want string) {
	t.Helper()
	if diff := cmp.Diff(parseListing(t, want), parseListing(t, got)); diff != "" {
		t.Fatalf("%s (- wanted, + got):\n%s", what, diff)
	}
}
