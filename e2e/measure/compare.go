package measure

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime/debug"
	"time"
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

// Comparison has the connections over three paths: through a proxy's rules, through one rule written by hand, without
// rules.
type Comparison struct {
	Proxy   PathResult `json:"proxy"`
	OneRule PathResult `json:"one_dnat_rule"`
	NoRule  PathResult `json:"no_rule"`
	// ToRule and ToNone are the rate through the proxy's rules divided by the other two rates: medians over all rounds.
	ToRule float64 `json:"rate_to_one_dnat_rule"`
	ToNone float64 `json:"rate_to_no_rule"`
}

// PathResult has the connections over one path. Times are in microseconds.
type PathResult struct {
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
	Rate float64 `json:"per_second"` // the median of all rounds
}

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

func (l *lane) result() PathResult {
	return PathResult{
		P50:  float64(l.sum.Handshakes.Median()) / float64(time.Microsecond),
		P99:  float64(l.sum.Handshakes.Quantile(0.99)) / float64(time.Microsecond),
		Rate: MedianOf(l.rates),
	}
}

// Compare opens connections to a frontend over the proxy's path, through one rule on a second path, and without rules
// on a third. It opens a few at a time on each, so that other work on the machine disturbs all three alike.
func Compare(proxy *Path, frontend netip.AddrPort, step func(done int)) (out Comparison, err error) {
	byHand, none, err := referencePaths(frontend)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, byHand.Close(), none.Close()) }()
	lanes := []*lane{{to: frontend}, {to: frontend}, {to: netip.AddrPortFrom(Server(0), ServerPort)}}
	for i, path := range []*Path{proxy, byHand, none} {
		if lanes[i].dialer, err = path.NewDialer(); err != nil {
			return out, err
		}
		defer func() { err = errors.Join(err, lanes[i].dialer.Close()) }()
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // no collection in the middle of a batch
	for i := range Rounds {
		for j := range lanes {
			if err := lanes[(i+j)%len(lanes)].dial(); err != nil {
				return out, fmt.Errorf("path %d of proxy, one rule, no rule: %w", (i+j)%len(lanes), err)
			}
		}
		step(i)
	}
	return Comparison{
		Proxy: lanes[0].result(), OneRule: lanes[1].result(), NoRule: lanes[2].result(),
		ToRule: medianRatio(lanes[0].rates, lanes[1].rates), ToNone: medianRatio(lanes[0].rates, lanes[2].rates),
	}, nil
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

// Cells are a column of a table. Its rows are ComparisonRows.
func (c *Comparison) Cells() []string {
	latency := func(p *PathResult) string { return Short(p.P50) + " / " + Short(p.P99) }
	return []string{
		latency(&c.Proxy), latency(&c.OneRule), latency(&c.NoRule),
		Short(c.Proxy.Rate) + " / " + Short(c.OneRule.Rate) + " / " + Short(c.NoRule.Rate),
		fmt.Sprintf("%.3f, %.3f", c.ToRule, c.ToNone),
	}
}

// ComparisonRows are the names of the rows of Cells.
func ComparisonRows() []string {
	return []string{
		"SYN sent to connected, p50 / p99, µs", "- through one DNAT rule", "- without a rule",
		"connections per second: proxy / one rule / no rule", "- proxy to one rule, to no rule",
	}
}
