package report

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/dataplane"
)

// TestInterferenceLog: the first change of a minute has a line, and the others have one line with their number.
func TestInterferenceLog(t *testing.T) {
	var text strings.Builder
	l, said := interferenceLog{log: slog.New(slog.NewTextHandler(&text, nil))}, time.Now()
	lines := func(part string) int { return strings.Count(text.String(), part) }
	for range 200 {
		l.changed(&dataplane.Interference{Process: "nft", PID: 7, Structure: true}, "", said)
		l.repaired(&Repair{})
	}
	for _, after := range []time.Duration{0, sayAgain - 1, sayAgain, sayAgain + 1, 3 * sayAgain} {
		l.write(said.Add(after))
		want := 0
		if after >= sayAgain {
			want = 1
		}
		if n := lines("again and again"); n != want {
			t.Errorf("%s later: %d lines with a count, want %d:\n%s", after, n, want, &text)
		}
	}
	if sum := "changes=199 repairs=199 latest=nft pid=7"; lines(sum) != 1 {
		t.Errorf("no %q in\n%s", sum, &text)
	}
	l.changed(&dataplane.Interference{Process: "iptables"}, "", said.Add(2*sayAgain))
	if lines("process=iptables") != 1 {
		t.Errorf("a change after a quiet minute was not logged:\n%s", &text)
	}
}
