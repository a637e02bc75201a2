//go:build !nokernel

package nft

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// bytecode is the content of the kernel in nft's raw form: the elements of each set, and the expressions of the rules
// of each chain. Two rulesets with equal listings can still be different here.
func (n *namespace) bytecode(t testing.TB) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, f := range program.Families() {
		text := n.nft(t, "--debug=netlink", "list", "table", f.String(), program.TableName)
		where := ""
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "table ") {
				break // the ordinary listing begins here
			}
			switch words := strings.Fields(line); {
			case strings.HasPrefix(line, f.String()+" "+program.TableName):
				where = strings.Join(words[:3], " ") // without handles
			case len(words) > 3 && words[0] == "userdata" && strings.HasPrefix(words[3], `@\x08`): // the digest of a rule
			case len(words) > 0 && !nullRange.MatchString(line) && !noByteOrder.MatchString(line):
				for old, plain := range normalForm {
					line = old.ReplaceAllString(line, plain)
				}
				out[where] = append(out[where], strings.Join(strings.Fields(line), " "))
			}
		}
	}
	for where, lines := range out {
		if strings.Contains(where, " @") {
			slices.Sort(lines)
		}
	}
	return out
}

// compareShapes compares what neither the listing nor the raw form shows: the types, flags and user data of sets, and
// the hooks of chains.
func compareShapes(t testing.TB, got, want *namespace) {
	t.Helper()
	var shapes [2][2]kernel.Existing
	for i, n := range []*namespace{want, got} {
		e := n.engine(t)
		for j, tb := range e.tables {
			var err error
			if shapes[i][j], err = e.conn.Survey(tb.Family); err != nil {
				t.Fatal(err)
			}
			shapes[i][j].Counts = nil // nft writes adjacent ranges in another way
			for chain, rules := range shapes[i][j].Rules {
				shapes[i][j].Rules[chain] = rule.RulesShape{Count: rules.Count} // nft writes no digests
			}
		}
	}
	if diff := cmp.Diff(shapes[0], shapes[1], cmp.AllowUnexported(kernel.Existing{}, program.SetShape{}, program.Tuning{}, program.ChainShape{}, rule.RulesShape{})); diff != "" {
		t.Fatalf("the engine makes other sets and chains than nft does from the golden text (- wanted, + got):\n%s", diff)
	}
}

// Lines that nft 1.0.6 writes and the engine does not, without any effect.
var (
	// nullRange means that no range begins at 0. The kernel assumes it anyway.
	nullRange = regexp.MustCompile(`element( 00000000)+  : 1 \[end\]`)
	// noByteOrder swaps pairs of bytes in a field of one byte.
	noByteOrder = regexp.MustCompile(`byteorder reg (\d+) = hton\(reg (\d+), 2, 1\)`)
)

var normalForm = map[*regexp.Regexp]string{
	regexp.MustCompile(`__set\d+`): "__set",
	// nft notes in user data that a range includes the last address.
	regexp.MustCompile(`  userdata = \{ \\x01\\x04\\x01\\x00\\x00\\x00 \}`): "",
}

func compareBytecode(t testing.TB, what string, got, want *namespace) {
	t.Helper()
	if diff := cmp.Diff(want.bytecode(t), got.bytecode(t)); diff != "" {
		t.Fatalf("%s (- wanted, + got):\n%s", what, diff)
	}
}
