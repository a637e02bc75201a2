package measure

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime/debug"
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
	dialer *Dialer
	to     netip.AddrPort
	sum    Connections
	rates  []float64
}

func (l *lane) dial() error {
	c, err := l.dialer.Dial(l.to, dialBatch)
	if err != nil {
		return err
	}
	l.sum.Add(c)
	l.rates = append(l.rates, c.Rate())
	return nil
}

// report adds figures of the lane, whose names begin with that of its path.
func (l *lane) report(f Figures, path string) {
	l.sum.Handshakes.Report(f, path)
	f[path+"connections/sec"] = MedianOf(l.rates)
}

// Compare opens connections to a frontend over the proxy's path, through one rule on a second path, and without rules
// on a third. It opens a few at a time on each, so that other work on the machine disturbs all three alike.
func Compare(proxy *Path, frontend netip.AddrPort, f Figures) (err error) {
	byHand, none, err := referencePaths(frontend)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, byHand.Close(), none.Close()) }()
	lanes := []*lane{{to: frontend}, {to: frontend}, {to: netip.AddrPortFrom(Server(0), ServerPort)}}
	for i, path := range []*Path{proxy, byHand, none} {
		if lanes[i].dialer, err = path.NewDialer(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lanes[i].dialer.Close()) }()
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // no collection in the middle of a batch
	for i := range rounds {
		for j := range lanes {
			if err := lanes[(i+j)%len(lanes)].dial(); err != nil {
				return fmt.Errorf("path %d of proxy, one rule, no rule: %w", (i+j)%len(lanes), err)
			}
		}
	}
	for i, path := range []string{"proxy-", "one-rule-", "no-rule-"} {
		lanes[i].report(f, path)
	}
	f["proxy-to-one-rule"] = medianRatio(lanes[0].rates, lanes[1].rates)
	f["proxy-to-no-rule"] = medianRatio(lanes[0].rates, lanes[2].rates)
	return nil
}

// medianRatio is the median of the ratios of all rounds.
func medianRatio(a, b []float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return MedianOf(ratios)
}

func referencePaths(frontend netip.AddrPort) (byHand, none *Path, err error) {
	if byHand, err = NewPath("one-rule"); err != nil {
		return nil, nil, err
	}
	if none, err = NewPath("no-rule"); err != nil {
		return nil, nil, errors.Join(err, byHand.Close())
	}
	script := fmt.Sprintf(oneRule, frontend.Addr(), frontend.Port(), Server(0), ServerPort)
	if err := byHand.Node.Load(script); err != nil {
		return nil, nil, errors.Join(err, byHand.Close(), none.Close())
	}
	return byHand, none, nil
}
