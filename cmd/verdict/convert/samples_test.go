//go:build !nokernel

package convert

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/samples"
)

// TestSamples: each virtual server of keepalived's samples with an address becomes a balancer, and nothing is dropped in
// silence.
func TestSamples(t *testing.T) {
	for _, file := range samples.Keepalived(t) {
		t.Run(strings.TrimPrefix(filepath.Base(file), "keepalived.conf."), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			balancers, notes := converted(t, string(data))
			for _, s := range new(conversion).parse(string(data)) {
				if s.word(0) == "virtual_server" && s.word(1) != "fwmark" && !strings.Contains(balancers, strings.Join(s.words, " ")+"\n") {
					t.Errorf("line %d: %q is no balancer\n%s", s.line, s.words, balancers)
				}
				expectNoSilence(t, string(data), s, balancers, notes)
			}
		})
	}
}

// defaults may go without a trace: without the line, the same holds.
var defaults = regexp.MustCompile(`^(weight 1|protocol TCP|lb_kind NAT|retry 3|connect_port \d+|delay_loop 60)$`)

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
