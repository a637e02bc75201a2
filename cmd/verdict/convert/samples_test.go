//go:build !nokernel

package convert

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/samples"
)

// TestSamples: each virtual server of keepalived's samples and of the shapes becomes a balancer or is named, and nothing is
// dropped in silence.
func TestSamples(t *testing.T) {
	for _, file := range append(samples.Keepalived(t), samples.Shapes(t)...) {
		t.Run(strings.TrimPrefix(filepath.Base(file), "keepalived.conf."), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.TrimPrefix(string(data), "\ufeff")
			balancers, notes := converted(t, string(data))
			for _, s := range (keepalived{new(conversion)}).parse(text).block {
				named := strings.Contains("\n"+notes, fmt.Sprintf("\n%d: ", s.line))
				if s.word(0) == "virtual_server" && !named && !strings.Contains(balancers, s.String()+"\n") {
					t.Errorf("line %d: %q is no balancer\n%s", s.line, s.words, balancers)
				}
				expectNoSilence(t, text, s, balancers, notes)
			}
		})
	}
}

// defaults may go without a trace: without the line, the same holds.
var defaults = regexp.MustCompile(`^(weight 1|protocol UDP|lb_kind NAT|(lb_algo|lvs_sched) wlc|flag-1|[ms]h-fallback|persistence_timeout 0|connect_port \d+|delay_loop 60)$`)

// expectNoSilence removes a statement from a file, and so do its inner statements. What is written or what is named must
// differ then. A note says what becomes of a whole block.
func expectNoSilence(t *testing.T, file string, s *statement, balancers, notes string) {
	t.Helper()
	lines := strings.Split(file, "\n")
	for _, note := range strings.Split(notes, "\n") {
		if at, _, _ := strings.Cut(note, ":"); at == strconv.Itoa(s.line) && len(s.block) > 0 &&
			(strings.Contains(note, "left out") || strings.Contains(note, "no counterpart")) {
			return
		}
	}
	for _, inner := range s.block {
		expectNoSilence(t, file, inner, balancers, notes)
	}
	if s.word(0) == "delay_loop" && strings.Contains(notes, "has no such check") {
		return // it is the interval of that check
	}
	if len(s.block) > 0 || defaults.MatchString(strings.Join(s.words, " ")) {
		return
	}
	other := slices.Clone(lines)
	other[s.line-1] = ""
	if b, n := converted(t, strings.Join(other, "\n")); b == balancers && n == notes {
		t.Errorf("line %d: nothing is said about %q", s.line, s.words)
	}
}
