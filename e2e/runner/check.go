package runner

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// tracked compares the endpoints to which the node tracks flows with the expected ones.
func (c *clients) tracked(do *scenario.Tracked) error {
	to, err := c.address(do.To)
	if err != nil {
		return err
	}
	list, err := c.world.Node.Flows(c.options.Family)
	if err != nil {
		return err
	}
	var got []string
	for _, f := range list {
		if f.Protocol == do.Protocol && f.To == portless(do.Protocol, to) {
			got = append(got, c.endpointName(f.Server))
		}
	}
	slices.Sort(got)
	want := slices.Sorted(slices.Values(do.Backends))
	if got = slices.Compact(got); !slices.Equal(got, want) {
		return fmt.Errorf("there are flows to %v", got)
	}
	return nil
}

// portless is the target as the list of flows shows it: for SCTP without ports.
func portless(p lab.Protocol, to netip.AddrPort) netip.AddrPort {
	if p == lab.SCTP {
		return netip.AddrPortFrom(to.Addr(), 0)
	}
	return to
}

// endpointName is the name of an endpoint in scenarios.
func (c *clients) endpointName(at netip.AddrPort) string {
	port := at.Port()
	if port == 0 {
		port = lab.Ports()[0] // an SCTP flow, see portless
	}
	for _, pod := range lab.Pods() {
		if lab.PodAddress(c.options.Family, pod) == at.Addr() {
			return lab.Answer{Pod: pod, Port: port}.Name()
		}
	}
	return at.String()
}

// http makes one request and compares its answer.
func (c *clients) http(do *scenario.HTTP) error {
	to, err := c.address(do.To)
	if err != nil {
		return err
	}
	place, err := c.world.Place(do.From)
	if err != nil {
		return err
	}
	code, headers, body, err := get(place, to, do.Path)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) && do.Code == 0:
		return nil
	case err != nil:
		return fmt.Errorf("make the request: %w", err)
	case code != do.Code:
		return fmt.Errorf("got code %d, body %s", code, body)
	}
	for name, want := range do.Headers {
		if got := headers.Get(name); got != want {
			return fmt.Errorf("got header %s: %s", name, got)
		}
	}
	for _, want := range do.Body {
		if !strings.Contains(body, want) {
			return fmt.Errorf("got body %s", body)
		}
	}
	return nil
}

// get makes an HTTP request from a namespace.
func get(from *lab.Namespace, to netip.AddrPort, path string) (code int, headers http.Header, body string, err error) {
	client := &http.Client{Timeout: answerPatience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       from.DialContext,
	}}
	answer, err := client.Get("http://" + to.String() + path)
	if err != nil {
		return 0, nil, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header, string(text), err
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
	if do.Late && err == nil && good < do.N {
		return nil
	}
	if do.Late && err == nil {
		return fmt.Errorf("all %d were refused in time", good)
	}
	if err == nil && good < do.N {
		err = fmt.Errorf("only %d of %d; one was %s", good, do.N, firstBad)
	}
	return err
}

// event fails unless the API server has the Event.
func (w *objects) event(do *scenario.Event) error {
	s, ok := w.source.(*apiServer)
	if !ok {
		return errNoEvents
	}
	has, err := s.hasEvent(do.Kind, do.Name, do.Reason)
	if err == nil && !has {
		err = errors.New("the API server has no such Event")
	}
	return err
}
