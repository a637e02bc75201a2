//go:build !nokernel

package deadnode

import (
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// outcome of a load around the moment of a death.
type outcome struct {
	failed int // of all connections
	late   int // took more than 1.5 s
	worst  time.Duration
	// lastLate is when the last late connection began, after the death.
	lastLate time.Duration
}

func judge(list []attempt, death time.Duration) (o outcome) {
	for _, a := range list {
		if a.err != nil {
			o.failed++
		}
		if a.took > 1500*time.Millisecond {
			o.late++
			o.lastLate = a.began - death
		}
		o.worst = max(o.worst, a.took)
	}
	return o
}

// vanish cuts the remote node off, as behind a switch: nothing comes back from it, not even ARP, and the link of this node
// stays up.
func (b *bed) vanish() {
	b.At(b.t, lab.Remote).Must(b.t, `table netdev gone {
	chain in { type filter hook ingress device "eth0" priority 0; policy drop; }
}
`, "nft", "-f", "-")
}

// TestNodeVanishes cuts a node off, with 3 of the 10 endpoints of a Service. No connection fails, and only
// those of the first two seconds are late. Without ejection, the same load fails: so the test can fail.
func TestNodeVanishes(t *testing.T) {
	for _, f := range lab.Families() {
		for _, mode := range []string{"eject", "observe"} {
			t.Run(f.String()+"/"+mode, func(t *testing.T) {
				b := newBed(t, `verdict-proxy.github.io/outlier-detection: "`+mode+`"`, tenEndpoints())
				l := b.load(lab.Outside, vip(f), 200)
				time.Sleep(2 * time.Second)
				b.vanish()
				death := time.Since(l.began)
				time.Sleep(6 * time.Second)
				list := l.end()
				o := judge(list, death)
				t.Logf("%d connections: %d failed, %d late, the last late one began %s after the death, the slowest took %s",
					len(list), o.failed, o.late, o.lastLate.Round(time.Millisecond), o.worst.Round(time.Millisecond))
				logErrors(t, list, death)
				switch {
				case mode == "observe" && o.failed < 100:
					t.Error("only few connections fail without ejection: the test does not show anything")
				case mode == "eject" && (o.failed > 0 || o.lastLate > 2*time.Second || o.worst > 4500*time.Millisecond):
					t.Error("connections fail, or are late after the first two seconds")
				}
			})
		}
	}
}

// logErrors shows the errors of connections, each with the first and the last connection that had it.
func logErrors(t *testing.T, list []attempt, death time.Duration) {
	t.Helper()
	type seen struct {
		n           int
		first, last attempt
	}
	by := map[string]*seen{}
	for _, a := range list {
		if a.err == nil {
			continue
		}
		s := by[a.err.Error()]
		if s == nil {
			s = &seen{first: a}
			by[a.err.Error()] = s
		}
		s.n, s.last = s.n+1, a
	}
	for text, s := range by {
		t.Logf("%d connections: %s; from %s after the death (took %s) to %s (took %s)",
			s.n, text, s.first.began-death, s.first.took, s.last.began-death, s.last.took)
	}
}
