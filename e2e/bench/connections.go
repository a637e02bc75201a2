package main

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime/debug"
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

const (
	dialRounds = 900
	dialBatch  = 10 // connections of a path in one round
)

// oneRule is the least that a Service needs: what a person would write by hand.
const oneRule = `table ip by-hand {
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr 10.96.0.1 tcp dport 80 dnat to %s:%d
	}
}
`

// lane is a path with a destination on it.
type lane struct {
	path   *measure.Path
	dialer *measure.Dialer
	to     netip.AddrPort
	sum    measure.Connections
	rates  []float64
}

func newLane(path *measure.Path, to netip.AddrPort) (*lane, error) {
	d, err := path.NewDialer()
	return &lane{path: path, dialer: d, to: to}, err
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

func (l *lane) result() pathResult {
	return pathResult{
		P50:  float64(l.sum.Handshakes.Median()) / float64(time.Microsecond),
		P99:  float64(l.sum.Handshakes.Quantile(0.99)) / float64(time.Microsecond),
		Rate: measure.MedianOf(l.rates),
	}
}

// comparePaths opens connections through the program on its path, through one rule on a second and through none on a
// third, a few at a time on each, so that whatever disturbs the machine disturbs all three.
func comparePaths(program *measure.Path, step func(done int)) (out pathsResult, err error) {
	byHand, none, err := referencePaths()
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, byHand.Close(), none.Close()) }()
	frontend := netip.AddrPortFrom(serviceIP(0), 80)
	lanes := make([]*lane, 3)
	for i, at := range []struct {
		path *measure.Path
		to   netip.AddrPort
	}{{program, frontend}, {byHand, frontend}, {none, netip.AddrPortFrom(measure.Server(0), measure.ServerPort)}} {
		if lanes[i], err = newLane(at.path, at.to); err != nil {
			return out, err
		}
		defer func() { err = errors.Join(err, lanes[i].dialer.Close()) }()
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // no collection in the middle of a batch
	for i := range dialRounds {
		for j := range lanes {
			if err := lanes[(i+j)%len(lanes)].dial(); err != nil {
				return out, fmt.Errorf("path %d of program, one rule, no rule: %w", (i+j)%len(lanes), err)
			}
		}
		step(i)
	}
	return pathsResult{
		Program: lanes[0].result(), Rule: lanes[1].result(), None: lanes[2].result(),
		ToRule: medianRatio(lanes[0].rates, lanes[1].rates), ToNone: medianRatio(lanes[0].rates, lanes[2].rates),
	}, nil
}

// medianRatio compares round by round.
func medianRatio(a, b []float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return measure.MedianOf(ratios)
}

func referencePaths() (byHand, none *measure.Path, err error) {
	if byHand, err = measure.NewPath("one-rule"); err != nil {
		return nil, nil, err
	}
	if none, err = measure.NewPath("no-rule"); err != nil {
		return nil, nil, errors.Join(err, byHand.Close())
	}
	script := fmt.Sprintf(oneRule, measure.Server(0), measure.ServerPort)
	if err := measure.Load(byHand.Node, script); err != nil {
		return nil, nil, errors.Join(err, byHand.Close(), none.Close())
	}
	return byHand, none, nil
}
