package scenario

import (
	"slices"
	"strconv"
	"strings"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// observingVerbs look at something other than connections through Services.
func observingVerbs() []Verb {
	return []Verb{{
		Name: "tracked", Kind: Check, Arguments: "PROTOCOL to $NAME:PORT => ENDPOINT ... | none",
		Examples: []string{"tracked udp to $VIP1:53 => b c", "tracked udp to $VIP1:53 => none"},
		Help:     "the node's connection tracking has flows from this target to these endpoints, and to no others",
		read:     readTracked,
	}, {
		Name: "http", Kind: Check, Arguments: "from PLACE to $NAME:PORT/PATH => CODE | refused",
		Examples: []string{
			"http from x to $NODE:32000/ => 200\n  header Content-Type: application/json\n  body \"localEndpoints\": 2",
			"http from x to $NODE:32000/ => refused",
		},
		Help: "make one HTTP request; lines below, `header NAME: VALUE` and `body PART`, say what the answer must contain",
		read: readHTTP,
	}, {
		Name: "event", Kind: Check, Arguments: "KIND NAME REASON",
		Examples: []string{"event Service web FailedToStartServiceHealthcheck"},
		Help:     "the API server has an Event with this reason about an object",
		read: func(a *arguments) any {
			return &Event{Kind: a.next("a kind"), Name: a.next("a name"), Reason: a.next("a reason")}
		},
	}}
}

type (
	// Tracked looks at the node's connection tracking: which endpoints have flows to a target.
	Tracked struct {
		Protocol lab.Protocol
		To       Target
		Backends []string // empty: none
	}
	// HTTP makes one request.
	HTTP struct {
		From    string
		To      Target
		Path    string
		Code    int // 0: the connection is refused
		Headers map[string]string
		Body    []string // texts that the body must contain
	}
	// Event waits for an Event about an object.
	Event struct{ Kind, Name, Reason string }
)

func readTracked(a *arguments) any {
	s := &Tracked{Protocol: a.protocol(), To: a.target()}
	if words := a.takeExpected(); !slices.Equal(words, []string{"none"}) {
		s.Backends = a.backends(words)
	}
	return s
}

func readHTTP(a *arguments) any {
	s := &HTTP{From: a.from(), Headers: map[string]string{}}
	for i, w := range a.words {
		if at := strings.Index(w, "/"); at > 0 {
			a.words[i], s.Path = w[:at], w[at:]
		}
	}
	s.To = a.target()
	if code := strings.Join(a.takeExpected(), " "); code != string(lab.Refused) {
		n, err := strconv.Atoi(code)
		if err != nil {
			a.fail("http expects a code or refused, not %q", code)
		}
		s.Code = n
	}
	s.readAnswer(a)
	return s
}

// readAnswer reads the lines below the request: what its answer must contain.
func (s *HTTP) readAnswer(a *arguments) {
	for _, l := range a.body {
		key, value, _ := strings.Cut(strings.TrimSpace(l), " ")
		switch key {
		case "header":
			name, want, _ := strings.Cut(value, ":")
			s.Headers[name] = strings.TrimSpace(want)
		case "body":
			s.Body = append(s.Body, value)
		default:
			a.fail("%q below http: not header or body", key)
		}
	}
	a.body = nil
}
