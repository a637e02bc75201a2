package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// change reads steps that change objects.
func (a *arguments) change(word string) (any, error) {
	switch word {
	case "apply":
		s := &Apply{YAML: a.text()}
		return s, checkObjects(s.YAML)
	case "patch":
		s := &Patch{Kind: a.next("a kind"), Name: a.next("a name"), YAML: strings.Join(a.words, " ")}
		a.words = nil
		_, err := parseDocument(lab.IPv4, s.YAML)
		return s, err
	case "delete":
		return &Delete{Kind: a.next("a kind"), Name: a.next("a name")}, nil
	}
	s := &Endpoints{Other: word == "other-endpoints"}
	s.Service, s.Slice, _ = strings.Cut(a.next("a Service"), "/")
	if s.Slice == "" {
		s.Slice = "1"
	}
	for len(a.words) > 0 {
		e, err := parseEndpoint(a.next("an endpoint"))
		if err != nil {
			return nil, err
		}
		s.List = append(s.List, e)
	}
	return s, nil
}

// parseEndpoint reads a, a:8081, b(terminating), c(zones=z1+z2,nodes=node-1), many*3000.
func parseEndpoint(word string) (Endpoint, error) {
	yes, no := true, false
	e := Endpoint{Ready: &yes, Serving: &yes, Terminating: &no}
	name, rest, has := strings.Cut(word, "(")
	if has {
		for _, m := range strings.Split(strings.TrimSuffix(rest, ")"), ",") {
			if err := e.modify(m); err != nil {
				return e, fmt.Errorf("endpoint %s: %w", word, err)
			}
		}
	}
	name, count, isMany := strings.Cut(name, "*")
	name, port, hasPort := strings.Cut(name, ":")
	e.Pod = name
	var err error
	if hasPort {
		if e.Port, err = strconv.Atoi(port); err != nil {
			return e, fmt.Errorf("endpoint %s: %q is no port", word, port)
		}
	}
	if isMany {
		if e.Count, err = strconv.Atoi(count); err != nil {
			return e, fmt.Errorf("endpoint %s: %q is no number", word, count)
		}
	}
	if isMany != (name == "many") || !isMany && name != "host" && !slices.Contains(lab.Pods(), name) {
		return e, fmt.Errorf("endpoint %s: there is no such pod", word)
	}
	return e, nil
}

// modify applies what stands in parentheses behind an endpoint.
func (e *Endpoint) modify(word string) error {
	yes, no := true, false
	key, value, _ := strings.Cut(word, "=")
	switch key {
	case "unready":
		e.Ready, e.Serving = &no, &no
	case "terminating": // but still serving
		e.Ready, e.Terminating = &no, &yes
	case "stopping": // terminating, and not serving any more
		e.Ready, e.Serving, e.Terminating = &no, &no, &yes
	case "published": // ready in name only, because its Service publishes addresses that are not
		e.Serving = &no
	case "bare": // no conditions
		e.Ready, e.Serving, e.Terminating = nil, nil, nil
	case "silent": // terminating, with nothing said about serving
		e.Ready, e.Serving, e.Terminating = &no, nil, &yes
	case "zones":
		e.Zones = strings.Split(value, "+")
	case "nodes":
		e.Nodes = strings.Split(value, "+")
	default:
		return fmt.Errorf("%q is not understood", word)
	}
	return nil
}

// node reads steps that change the node and its proxy.
func (a *arguments) node(word string) (any, error) {
	switch word {
	case "restart", "kill":
		return &Restart{Kill: word == "kill"}, nil
	case "stop":
		return &Stop{}, nil
	case "start":
		return &Start{}, nil
	case "sysctl":
		return &Sysctl{Setting: a.next("a setting")}, nil
	case "pause":
		return &Pause{For: a.duration(a.next("a duration"))}, nil
	}
	s := &Address{}
	switch action := a.next("add or remove"); action {
	case "add":
	case "remove":
		s.Remove = true
	default:
		a.fail("address %s: not add or remove", action)
	}
	s.Name, s.Link = strings.TrimPrefix(a.next("an address"), "$"), a.after("on")
	if _, err := lab.Lookup(lab.IPv4, s.Name); err != nil {
		a.fail("%v", err)
	}
	return s, nil
}

// connections reads steps that make connections.
func (a *arguments) connections(word string) (any, error) {
	switch word {
	case "probe":
		return a.probe(), nil
	case "open":
		return &Open{Flow: a.next("a name"), Call: a.call(), Expect: a.expect()}, nil
	case "send":
		return &Send{Flow: a.next("a name"), Expect: a.expect()}, nil
	case "burst":
		return a.burst(), nil
	case "spread":
		return &Spread{N: a.number(), Call: a.call(), Backends: a.backends()}, nil
	case "many":
		return a.many(), nil
	case "crowd":
		return a.crowd(), nil
	case "loop":
		return &Loop{Name: a.next("a name"), Call: a.call()}, nil
	}
	return a.endLoop()
}

func (a *arguments) probe() *Probe {
	s := &Probe{Call: a.call(), Expect: a.expect()}
	if len(a.words) > 0 {
		s.Within = a.duration(a.option("within"))
	}
	return s
}

func (a *arguments) endLoop() (*EndLoop, error) {
	s := &EndLoop{Name: a.next("a name")}
	switch strings.Join(a.expected, " ") {
	case "no failure":
	case "failures":
		s.Failures = true
	default:
		return nil, errors.New(`end expects "no failure"`)
	}
	a.expected = nil
	return s, nil
}

// burst expects an outcome, or "late": some connections do not end as refused in time.
func (a *arguments) burst() *Burst {
	s := &Burst{N: a.number(), Within: a.duration(a.option("within")), Call: a.call()}
	if slices.Equal(a.expected, []string{"late"}) {
		s.Late, a.expected = true, []string{string(lab.Refused)}
	}
	s.Expect = a.expect()
	return s
}

func (a *arguments) many() *Many {
	s := &Many{N: a.number(), Call: a.call()}
	if len(a.expected) == 3 && a.expected[0] == "at" && a.expected[1] == "least" {
		n, err := strconv.Atoi(a.expected[2])
		if err == nil {
			s.AtLeast, a.expected = n, nil
			return s
		}
	}
	a.fail(`many expects "at least N"`)
	return s
}

func (a *arguments) crowd() *Crowd {
	s := &Crowd{Name: a.next("a name"), N: a.number(), Protocol: a.protocol(), To: a.target()}
	if len(a.expected) == 1 && a.expected[0] == "changed" {
		s.Changed, a.expected = true, nil
		return s
	}
	if len(a.expected) == 0 || a.expected[0] != "same" {
		s.Backends = a.backends()
		return s
	}
	s.Same = true
	if len(a.expected) == 3 && a.expected[1] == "except" {
		s.Except = a.expected[2]
	} else if len(a.expected) > 1 {
		a.fail(`crowd expects "same" or "same except ENDPOINT"`)
	}
	a.expected = nil
	return s
}

// look reads steps that look at something else than connections through Services.
func (a *arguments) look(word string) (any, error) {
	switch word {
	case "tracked":
		s := &Tracked{Protocol: a.protocol(), To: a.target()}
		if len(a.expected) == 1 && a.expected[0] == "none" {
			a.expected = nil
			return s, nil
		}
		s.Backends = a.backends()
		return s, nil
	case "event":
		return &Event{Kind: a.next("a kind"), Name: a.next("a name"), Reason: a.next("a reason")}, nil
	}
	return a.http()
}

// http reads a request, and what its answer must have, one line each.
func (a *arguments) http() (any, error) {
	s := &HTTP{From: a.from(), Headers: map[string]string{}}
	for i, w := range a.words {
		if at := strings.Index(w, "/"); at > 0 {
			a.words[i], s.Path = w[:at], w[at:]
		}
	}
	s.To = a.target()
	code := strings.Join(a.expected, " ")
	if code != string(lab.Refused) {
		n, err := strconv.Atoi(code)
		if err != nil {
			return nil, fmt.Errorf("http expects a code or refused, not %q", code)
		}
		s.Code = n
	}
	a.expected = nil
	for _, l := range a.body {
		key, value, _ := strings.Cut(strings.TrimSpace(l), " ")
		switch key {
		case "header":
			name, want, _ := strings.Cut(value, ":")
			s.Headers[name] = strings.TrimSpace(want)
		case "body":
			s.Body = append(s.Body, value)
		default:
			return nil, fmt.Errorf("%q below http: not header or body", key)
		}
	}
	a.body = nil
	return s, nil
}
