package runner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// tracked compares the endpoints to which the node tracks flows with the expected ones.
func (c *clients) tracked(do *scenario.Tracked) error {
	to := c.address(do.To)
	if do.Protocol == lab.SCTP { // the list of flows shows no ports
		to = netip.AddrPortFrom(to.Addr(), 0)
	}
	list, err := c.world.Node.Flows(c.family)
	if err != nil {
		return err
	}
	var got []string
	for _, f := range list {
		if f.Protocol == do.Protocol && f.To == to {
			got = append(got, endpointName(f.Server))
		}
	}
	slices.Sort(got)
	want := slices.Sorted(slices.Values(do.Backends))
	if got = slices.Compact(got); !slices.Equal(got, want) {
		return fmt.Errorf("there are flows to %v", got)
	}
	return nil
}

// endpointName is the name of an endpoint in scenarios.
func endpointName(at netip.AddrPort) string {
	port := at.Port()
	if port == 0 {
		port = lab.Ports()[0] // an SCTP flow, see tracked
	}
	for _, pod := range append(lab.Pods(), "host") {
		if lab.PodAddress(lab.FamilyOf(at.Addr()), pod) == at.Addr() {
			return lab.Answer{Pod: pod, Port: port}.Name()
		}
	}
	return at.String()
}

// http makes one request and compares its answer.
func (c *clients) http(do *scenario.HTTP) error {
	place, err := c.world.Place(do.From)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerPatience)
	defer cancel()
	got, err := place.Get(ctx, "http://"+c.address(do.To).String()+do.Path)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) && do.Code == 0:
		return nil
	case err != nil:
		return fmt.Errorf("make the request: %w", err)
	case got.Code != do.Code:
		return fmt.Errorf("got code %d, body %s", got.Code, got.Body)
	}
	for name, want := range do.Headers {
		if is := got.Header.Get(name); is != want {
			return fmt.Errorf("got header %s: %s", name, is)
		}
	}
	for _, want := range do.Body {
		if !strings.Contains(got.Body, want) {
			return fmt.Errorf("got body %s", got.Body)
		}
	}
	return nil
}

// burst makes connections one after the other without a pause. Each must end as expected, in time.
func (c *clients) burst(do *scenario.Burst) error {
	q, place, err := c.question(do.Call)
	if err != nil {
		return err
	}
	good := 0
	var firstBad string
	err = place.Do(func() error {
		for range do.N {
			r := lab.Ask(q)
			if r.Outcome == do.Outcome && r.Took <= do.Within {
				good++
			} else if firstBad == "" {
				firstBad = fmt.Sprintf("%s after %s", r, r.Took)
			}
		}
		return nil
	})
	switch {
	case err == nil && do.Late && good == do.N:
		return fmt.Errorf("all %d were refused in time", good)
	case err == nil && !do.Late && good < do.N:
		return fmt.Errorf("only %d of %d; one was %s", good, do.N, firstBad)
	}
	return err
}
