package runner

import (
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// spread makes connections and tests by chi-square whether they are spread evenly.
func (b *Bed) spread(do *scenario.Spread) error {
	q, place, err := b.question(do.Call)
	if err != nil {
		return err
	}
	counts := map[string]int{}
	err = place.Do(func() error {
		for range do.N {
			r := lab.Ask(q)
			if err := b.good(r, do.Backends, ""); err != nil {
				return err
			}
			counts[r.Answer.Name()]++
		}
		return nil
	})
	if err != nil {
		return err
	}
	if x, limit := chiSquare(counts, do.Backends, do.N), chiSquareLimit(len(do.Backends)-1); x > limit {
		return fmt.Errorf("got %v: chi-square %.1f, at most %.1f is even", counts, x, limit)
	}
	return nil
}

func chiSquare(counts map[string]int, backends []string, n int) (x float64) {
	want := float64(n) / float64(len(backends))
	for _, name := range backends {
		d := float64(counts[name]) - want
		x += d * d / want
	}
	return x
}

// chiSquareLimit is exceeded by an even spread once in 10,000 times (approximation of Wilson and Hilferty).
func chiSquareLimit(degrees int) float64 {
	const z = 3.719 // of the normal distribution, for 0.0001
	k := float64(degrees)
	return k * math.Pow(1-2/(9*k)+z*math.Sqrt(2/(9*k)), 3)
}

// many counts the addresses that connections reach.
func (b *Bed) many(do *scenario.Many) error {
	q, place, err := b.question(do.Call)
	if err != nil {
		return err
	}
	reached := map[netip.Addr]bool{}
	err = place.Do(func() error {
		for i := range do.N {
			r := lab.Ask(q)
			if r.Outcome != lab.Answered {
				return fmt.Errorf("connection %d was %s", i+1, r)
			}
			reached[r.Answer.Local] = true
		}
		return nil
	})
	if err == nil && len(reached) < do.AtLeast {
		err = fmt.Errorf("%d connections reached only %d addresses", do.N, len(reached))
	}
	return err
}

// crowd is which endpoint each client of a crowd got.
type crowd map[netip.Addr]string

func (b *Bed) crowd(do *scenario.Crowd) error {
	if !do.Same && !do.Changed {
		return until(func() error {
			got, err := b.askAll(do)
			if err == nil {
				err = got.covers(do.Backends)
			}
			b.crowds[do.Name] = got
			return err
		})
	}
	before, ok := b.crowds[do.Name]
	if !ok {
		return fmt.Errorf("nobody has asked for crowd %s before", do.Name)
	}
	return until(func() error {
		got, err := b.askAll(do)
		if err != nil {
			return err
		}
		different := before.same(got, do.Except)
		if !do.Changed {
			return different
		}
		if different == nil {
			return errors.New("everybody got the same endpoint as before")
		}
		return nil
	})
}

// askAll has every client of the crowd connect once.
func (b *Bed) askAll(do *scenario.Crowd) (crowd, error) {
	q, place, err := b.question(scenario.Call{Protocol: do.Protocol, From: lab.Outside, To: do.To})
	if err != nil {
		return nil, err
	}
	within, err := lab.Text(b.options.Family, "CROWD")
	if err != nil {
		return nil, err
	}
	got := crowd{}
	return got, place.Do(func() (err error) {
		for i := range do.N {
			if q.From, err = lab.Nth(within, i+1); err != nil {
				return err
			}
			r := lab.Ask(q)
			if r.Outcome != lab.Answered {
				return fmt.Errorf("client %s was %s", q.From, r)
			}
			got[q.From] = r.Answer.Name()
		}
		return nil
	})
}

// covers tells whether the crowd has reached exactly these endpoints.
func (c crowd) covers(backends []string) error {
	left := map[string]bool{}
	for _, name := range backends {
		left[name] = true
	}
	for client, name := range c {
		if _, ok := left[name]; !ok {
			return fmt.Errorf("client %s got %s", client, name)
		}
		left[name] = false
	}
	for name, missed := range left {
		if missed {
			return fmt.Errorf("nobody got %s", name)
		}
	}
	return nil
}

// same tells whether clients got what they got before, except for those of one endpoint, which is gone.
func (c crowd) same(now crowd, except string) error {
	for client, was := range c {
		switch is := now[client]; {
		case was == except && is == except:
			return fmt.Errorf("client %s still gets %s", client, is)
		case was != except && is != was:
			return fmt.Errorf("client %s got %s before and gets %s now", client, was, is)
		}
	}
	return nil
}
