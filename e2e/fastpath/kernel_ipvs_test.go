//go:build ipvs

package fastpath

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

// isLinux reports whether the kernel has this version or a later one.
func isLinux(t testing.TB, major, minor int) bool {
	t.Helper()
	_, reached := netns.IsLinux(t, major, minor)
	return reached
}

// flawed is what the log says about kernels on which the fast path stays off; "": this is none.
func flawed(t testing.TB) string {
	t.Helper()
	switch {
	case isLinux(t, 6, 19) && !isLinux(t, 7, 0):
		return "breaks TCP connections with NAT"
	case isLinux(t, 6, 14) && !isLinux(t, 7, 1):
		return "ends connections that are long on it"
	}
	return ""
}

// TestFlawedKernel: on a kernel with a flaw, one line of the log says that the fast path stays off and why, and connections stay on the
// rules. On another kernel, there is no such line.
func TestFlawedKernel(t *testing.T) {
	flaw := flawed(t)
	b := &bed{World: lab.New(t), t: t, dir: t.TempDir()}
	b.web("", "c")
	b.start("--fast-path=services", fmt.Sprintf("--fast-path-after=%d", after))
	const line = "--fast-path=services has no effect; all connections stay on the rules"
	var lines []string
	for text := range strings.Lines(b.Log(1000)) {
		if strings.Contains(text, line) {
			lines = append(lines, text)
		}
	}
	if flaw == "" {
		if len(lines) > 0 {
			t.Errorf("the log says %q", lines)
		}
		return
	}
	if len(lines) != 1 || !strings.Contains(lines[0], flaw) {
		t.Errorf("the log says %q, want one line with %q", lines, flaw)
	}
	for _, w := range ways() {
		b.stays(t, w, "a flaw of the kernel")
	}
	if text := b.World.Node.Must(t, "", "nft", "list", "ruleset"); strings.Contains(text, "flowtable") {
		t.Errorf("the ruleset is\n%s", text)
	}
}

// TestCleanup: "verdict cleanup" removes the flowtables of Verdict, and leaves those of others. Connections end as they would without it.
func TestCleanup(t *testing.T) {
	b := newBed(t, "")
	b.World.Node.Must(t, "table inet other { flowtable fast-path { hook ingress priority 5; devices = { "+lab.OutsideLink+" }; }; }", "nft", "-f", "-")
	b.holdAll(t, ways()[:1])
	lab.Must(t, b.Stop())
	b.World.Node.Must(t, "", binary, "cleanup")
	text := b.World.Node.Must(t, "", "nft", "list", "flowtables")
	if strings.Contains(text, "verdict") || !strings.Contains(text, "table inet other {") || !strings.Contains(text, lab.OutsideLink) {
		t.Errorf("after verdict cleanup, the flowtables are\n%s", text)
	}
}

// TestRefusals: the first refusal of an endpoint is held back, and its clients reach another one, although connections may take the fast
// path as soon as the kernel takes them. It is as without the fast path.
func TestRefusals(t *testing.T) {
	for _, flags := range [][]string{{"--fast-path=off"}, {"--fast-path=services", "--fast-path-after=1"}} {
		t.Run(flags[0], func(t *testing.T) {
			b := newBed(t, `verdict-proxy.github.io/outlier-detection: "eject,refusals"`, flags...)
			b.web(`verdict-proxy.github.io/outlier-detection: "eject,refusals"`, "c", "d")
			answered := map[string]bool{}
			ask := func() {
				for _, f := range lab.Families() {
					r := b.At(t, "a").Ask(lab.Question{Protocol: lab.TCP, To: lab.AddressPort(f, "VIP1", servicePort), Patience: 30 * time.Second})
					if r.Outcome != lab.Answered {
						t.Fatalf("a connection ends with %s\n%s", r, b.Log(20))
					}
					answered[r.Answer.Pod] = true
				}
			}
			for len(answered) < 2 {
				ask()
			}
			b.At(t, "c").Must(t, "table inet closed { chain i { type filter hook input priority 0; tcp dport 8080 reject with tcp reset; }; }", "nft", "-f", "-")
			for range 10 {
				ask()
			}
			lab.Eventually(t, "the endpoint that refuses gets no new connections", func() error {
				ask()
				if text := b.Log(1000); !strings.Contains(text, "they get no new connections") {
					return fmt.Errorf("the log is\n%s", text)
				}
				return nil
			})
		})
	}
}
