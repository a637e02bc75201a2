package runner

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// spread makes connections. A chi-square test decides whether the endpoints got equal shares; or it counts the addresses.
func (c *clients) spread(do *scenario.Spread) error {
	q, place, err := c.question(do.Call)
	if err != nil {
		return err
	}
	counts, reached := map[string]int{}, map[netip.Addr]bool{}
	err = place.Do(func() error {
		for i := range do.N {
			r := lab.Ask(q)
			if do.AtLeast > 0 && r.Outcome != lab.Answered {
				return fmt.Errorf("connection %d was %s", i+1, r)
			}
			if err := c.good(r, do.Backends, ""); do.AtLeast == 0 && err != nil {
				return err
			}
			counts[r.Answer.Name()]++
			reached[r.Answer.Local] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	if do.AtLeast > 0 {
		if len(reached) < do.AtLeast {
			return fmt.Errorf("%d connections reached only %d addresses", do.N, len(reached))
		}
		return nil
	}
	if x, limit := chiSquare(counts, do.Backends, do.N), chiSquareLimit(len(do.Backends)-1); x > limit {
		return fmt.Errorf("got %v: chi-square is %.1f; up to %.1f counts as equal shares", counts, x, limit)
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

// chiSquareLimit is the value that equal shares exceed once in 10,000 times (approximation of Wilson and Hilferty).
func chiSquareLimit(degrees int) float64 {
	const z = 3.719 // quantile of the normal distribution for 0.0001
	k := float64(degrees)
	return k * math.Pow(1-2/(9*k)+z*math.Sqrt(2/(9*k)), 3)
}

// crowd connects once from each client. The first crowd of a name is remembered; later ones are compared with it.
func (c *clients) crowd(do *scenario.Crowd) error {
	if !do.Same && !do.Changed {
		return until(func() error {
			got, err := c.askAll(do)
			if err == nil {
				err = got.covers(do.Backends)
			}
			c.crowds[do.Name] = got
			return err
		})
	}
	before, ok := c.crowds[do.Name]
	if !ok {
		return fmt.Errorf("no earlier step has remembered a crowd %s", do.Name)
	}
	return until(func() error {
		got, err := c.askAll(do)
		if err != nil {
			return err
		}
		different := before.same(got, do.Except)
		if !do.Changed {
			return different
		}
		if different == nil {
			return errors.New("every client got the same endpoint as before")
		}
		return nil
	})
}

// askAll makes one connection for each client of the crowd.
func (c *clients) askAll(do *scenario.Crowd) (crowd, error) {
	q, place, err := c.question(scenario.Call{Protocol: do.Protocol, From: lab.Outside, To: do.To})
	if err != nil {
		return nil, err
	}
	got := crowd{}
	return got, place.Do(func() error {
		for i := range do.N {
			q.From = lab.Member(c.family, "CROWD", i+1)
			r := lab.Ask(q)
			if r.Outcome != lab.Answered {
				return fmt.Errorf("client %s was %s", q.From, r)
			}
			got[q.From] = r.Answer.Name()
		}
		return nil
	})
}

// covers fails unless the crowd has reached exactly these endpoints.
func (c crowd) covers(backends []string) error {
	got := slices.Compact(slices.Sorted(maps.Values(c)))
	if !slices.Equal(got, slices.Sorted(slices.Values(backends))) {
		return fmt.Errorf("the clients got %v", got)
	}
	return nil
}

// same fails unless each client got the same endpoint as before. Clients of the endpoint "except", which is gone, must
// get another one.
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
