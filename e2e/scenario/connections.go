package scenario

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// callGrammar is how Arguments shows a Call.
const callGrammar = "PROTOCOL from PLACE to $NAME:PORT"

// connectionVerbs make connections.
func connectionVerbs() []Verb {
	return []Verb{{
		Name: "probe", Kind: Check, Arguments: callGrammar + " [within=DURATION] => EXPECTATION",
		Examples: []string{"probe tcp from x to $NODE:30080 => a b", "probe tcp from x to $VIP1:80 within=1s => dropped"},
		Help:     "connect until every expected endpoint has answered; no other one may answer; `verdict explain` must agree",
		read:     readProbe,
	}, {
		Name: "open", Kind: Check, Arguments: "FLOW " + callGrammar + " => EXPECTATION",
		Examples: []string{"open flow udp from x to $VIP1:53 => b"},
		Help:     "open a flow that stays open",
		read:     func(a *arguments) any { return &Open{Flow: a.next("a name"), Call: a.call(), Expect: a.expect()} },
	}, {
		Name: "send", Kind: Check, Arguments: "FLOW => EXPECTATION", Examples: []string{"send flow => b"},
		Help: "send another request over an open flow",
		read: func(a *arguments) any { return &Send{Flow: a.next("a name"), Expect: a.expect()} },
	}, {
		Name: "burst", Kind: Check, Arguments: "n=NUMBER within=DURATION " + callGrammar + " => EXPECTATION | late",
		Examples: []string{
			"burst n=20 within=50ms tcp from x to $VIP1:80 => refused", "burst n=20 within=50ms tcp from x to $VIP1:80 => late",
		},
		Help: "make connections one after the other; each must end as expected, in time. `late`: at least one is not " +
			"refused in time",
		read: readBurst,
	}, {
		Name: "spread", Kind: Check, Arguments: "n=NUMBER " + callGrammar + " => ENDPOINT ... | at least NUMBER",
		Examples: []string{"spread n=2000 tcp from x to $VIP1:80 => a b c", "spread n=1000 tcp from x to $VIP1:80 => at least 750"},
		Help: "make connections; a chi-square test decides whether the endpoints got equal shares. `at least`: that many addresses " +
			"are reached",
		read: readSpread,
	}, {
		Name: "crowd", Kind: Check,
		Arguments: "CROWD n=NUMBER PROTOCOL to $NAME:PORT => ENDPOINT ... | same [except ENDPOINT] | changed",
		Examples: []string{
			"crowd c n=60 tcp to $VIP1:80 => a b", "crowd c n=60 tcp to $VIP1:80 => same",
			"crowd c n=60 tcp to $VIP1:80 => same except b", "crowd c n=60 tcp to $VIP1:80 => changed",
		},
		Help: "connect once from each of many client addresses. The first crowd of a name remembers which client got " +
			"which endpoint; later ones compare. `except`: clients of this endpoint must get another one. `changed`: at " +
			"least one client got another endpoint",
		read: readCrowd,
	}, {
		Name: "loop", Kind: Settled, Arguments: "LOOP " + callGrammar,
		Examples: []string{"loop clients tcp from x to $VIP1:80"},
		Help:     "connect again and again, while the next steps run, until `end`",
		read:     func(a *arguments) any { return &Loop{Name: a.next("a name"), Call: a.call()} },
	}, {
		Name: "end", Kind: Check, Arguments: "LOOP => no failure | failures",
		Examples: []string{"end clients => no failure", "end clients => failures"},
		Help:     "end a loop; none of its connections may have failed, or at least one must have",
		read:     readEndLoop,
	}}
}

type (
	// Probe makes connections until all expected endpoints have answered. No other endpoint may answer.
	Probe struct {
		Call
		Expect
		Within time.Duration // how long the proxy may take; 0: the runner's default
	}
	// Open opens a flow that stays open. It also keeps a socket whose first packet had another outcome than an answer.
	Open struct {
		Flow string
		Call
		Expect
	}
	// Send sends another request over a flow.
	Send struct {
		Flow string
		Expect
	}
	// Burst makes connections one after the other without a pause. Each must end in time.
	Burst struct {
		Call
		Expect
		N      int
		Within time.Duration
		Late   bool // at least one must not end in time
	}
	// Spread makes connections and expects that the endpoints get equal shares, or that many different addresses are reached.
	Spread struct {
		Call
		Backends   []string
		N, AtLeast int
	}
	// Crowd makes one connection for each of N clients. The first Crowd of a name remembers which client got which
	// endpoint. Later ones expect the same, except for clients of one endpoint.
	Crowd struct {
		Name     string
		Protocol lab.Protocol
		To       Target
		N        int
		Backends []string
		Same     bool
		Except   string
		Changed  bool // at least one client got another endpoint
	}
	// Loop connects again and again until EndLoop.
	Loop struct {
		Name string
		Call
	}
	// EndLoop ends a Loop and expects that no connection failed; with Failures, that at least one did.
	EndLoop struct {
		Name     string
		Failures bool
	}
)

func readProbe(a *arguments) any {
	s := &Probe{Call: a.call(), Expect: a.expect()}
	if len(a.words) > 0 {
		s.Within = a.duration(a.option("within"))
	}
	return s
}

func readBurst(a *arguments) any {
	s := &Burst{N: a.number(), Within: a.duration(a.option("within")), Call: a.call()}
	if slices.Equal(a.expected, []string{"late"}) {
		s.Late, a.expected = true, []string{string(lab.Refused)}
	}
	s.Expect = a.expect()
	return s
}

func readSpread(a *arguments) any {
	s := &Spread{N: a.number(), Call: a.call()}
	words := a.takeExpected()
	if len(words) != 3 || words[0] != "at" {
		s.Backends = a.backends(words)
		return s
	}
	var err error
	if s.AtLeast, err = strconv.Atoi(words[2]); err != nil {
		a.fail(`spread expects endpoints or "at least N"`)
	}
	return s
}

func readCrowd(a *arguments) any {
	s := &Crowd{Name: a.next("a name"), N: a.number(), Protocol: a.protocol(), To: a.target()}
	words := a.takeExpected()
	s.Changed, s.Same = slices.Equal(words, []string{"changed"}), len(words) > 0 && words[0] == "same"
	switch {
	case s.Same && len(words) == 3 && words[1] == "except":
		s.Except = words[2]
	case s.Same && len(words) > 1:
		a.fail(`crowd expects "same" or "same except ENDPOINT"`)
	case !s.Same && !s.Changed:
		s.Backends = a.backends(words)
	}
	return s
}

func readEndLoop(a *arguments) any {
	s := &EndLoop{Name: a.next("a name")}
	switch strings.Join(a.takeExpected(), " ") {
	case "no failure":
	case "failures":
		s.Failures = true
	default:
		a.fail(`end expects "no failure" or "failures"`)
	}
	return s
}
