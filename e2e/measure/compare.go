package measure

import (
	"fmt"
	"net/netip"
	"runtime/debug"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

const (
	rounds    = 900
	dialBatch = 10 // connections of a path in one round
)

// oneRule is the smallest ruleset for a Service, as a person would write it by hand.
const oneRule = `table ip by-hand {
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr %s tcp dport %d dnat to %s:%d
	}
}
`

// lane is a path with a destination on it.
type lane struct {
	path       *Path
	to         netip.AddrPort
	handshakes Sample
	rates      []float64
}

func (l *lane) dial() error {
	c, err := l.path.Dial(l.to, dialBatch)
	if err != nil {
		return err
	}
	l.handshakes, l.rates = append(l.handshakes, c.Handshakes...), append(l.rates, c.Rate())
	return nil
}

// Compare returns what opens connections to a frontend over the proxy's path, through one rule on a second path, and without
// rules on a third. It opens a few at a time on each, so that other work on the machine disturbs all three alike.
func Compare(tb testing.TB, proxy *Path, frontend netip.AddrPort) (run func(Figures)) {
	tb.Helper()
	byHand, none := NewPath(tb), NewPath(tb)
	lab.Must(tb, byHand.Node.Load(fmt.Sprintf(oneRule, frontend.Addr(), frontend.Port(), Server(0), ServerPort)))
	return func(f Figures) {
		tb.Helper()
		lanes := []*lane{
			{path: proxy, to: frontend}, {path: byHand, to: frontend}, {path: none, to: netip.AddrPortFrom(Server(0), ServerPort)},
		}
		defer debug.SetGCPercent(debug.SetGCPercent(-1)) // no collection in the middle of a batch
		for i := range rounds {
			for j := range lanes {
				lab.Must(tb, lanes[(i+j)%len(lanes)].dial())
			}
		}
		for i, path := range []string{"proxy-", "one-rule-", "no-rule-"} {
			lanes[i].handshakes.Report(f, path)
			f[path+"connections/sec"] = MedianOf(lanes[i].rates)
		}
		f["proxy-to-one-rule"] = MedianRatio(lanes[0].rates, lanes[1].rates)
		f["proxy-to-no-rule"] = MedianRatio(lanes[0].rates, lanes[2].rates)
	}
}

// MedianRatio is the median of the ratios of all rounds.
func MedianRatio(a, b []float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return MedianOf(ratios)
}
