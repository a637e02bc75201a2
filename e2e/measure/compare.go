package measure

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime/debug"
)

const (
	// Rounds is the number of rounds of Compare.
	Rounds    = 900
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

func (l *lane) figures() Figures {
	return Figures{
		"p50-ns": float64(l.sum.Handshakes.Median()), "p99-ns": float64(l.sum.Handshakes.Quantile(0.99)),
		"connections/sec": MedianOf(l.rates),
	}
}

// Compare opens connections to a frontend over the proxy's path, through one rule on a second path, and without rules
// on a third. It opens a few at a time on each, so that other work on the machine disturbs all three alike. It adds a
// line for each path to out; their names end with suffix.
func Compare(proxy *Path, frontend netip.AddrPort, out *Lines, suffix string) (err error) {
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
	for i := range Rounds {
		for j := range lanes {
			if err := lanes[(i+j)%len(lanes)].dial(); err != nil {
				return fmt.Errorf("path %d of proxy, one rule, no rule: %w", (i+j)%len(lanes), err)
			}
		}
	}
	figures := lanes[0].figures()
	figures["to-one-rule"] = medianRatio(lanes[0].rates, lanes[1].rates)
	figures["to-no-rule"] = medianRatio(lanes[0].rates, lanes[2].rates)
	out.Add("Connections/path=proxy"+suffix, Rounds, figures)
	out.Add("Connections/path=one-rule"+suffix, Rounds, lanes[1].figures())
	out.Add("Connections/path=no-rule"+suffix, Rounds, lanes[2].figures())
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

// ComparisonRows names the rows of ComparisonCells.
func ComparisonRows() []string {
	return []string{
		"SYN sent to connected, p50 / p99, µs", "- through one DNAT rule", "- without a rule",
		"connections per second: proxy / one rule / no rule", "- proxy to one rule, to no rule",
	}
}

// ComparisonCells returns a column of a table that shows the lines of Compare.
func ComparisonCells(l *Lines, suffix string) []string {
	proxy, byHand, none := "Connections/path=proxy"+suffix, "Connections/path=one-rule"+suffix, "Connections/path=no-rule"+suffix
	const microsecond = 1000
	latency := func(name string) string {
		return Short(l.Median(name, "p50-ns")/microsecond) + " / " + Short(l.Median(name, "p99-ns")/microsecond)
	}
	rate := func(name string) string { return Short(l.Median(name, "connections/sec")) }
	return []string{
		latency(proxy), latency(byHand), latency(none),
		rate(proxy) + " / " + rate(byHand) + " / " + rate(none),
		fmt.Sprintf("%.3f, %.3f", l.Median(proxy, "to-one-rule"), l.Median(proxy, "to-no-rule")),
	}
}
