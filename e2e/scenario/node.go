package scenario

import (
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// nodeVerbs change the node and its proxy.
func nodeVerbs() []Verb {
	return []Verb{{
		Name: "restart", Kind: Settled, Examples: []string{"restart"}, Help: "stop the proxy with SIGTERM and start it again",
		read: func(*arguments) any { return &Restart{} },
	}, {
		Name: "kill", Kind: Settled, Examples: []string{"kill"}, Help: "kill the proxy with SIGKILL and start it again",
		read: func(*arguments) any { return &Restart{Kill: true} },
	}, {
		Name: "stop", Kind: Settled, Examples: []string{"stop"}, Help: "stop the proxy with SIGTERM",
		read: func(*arguments) any { return &Stop{} },
	}, {
		Name: "start", Examples: []string{"start"}, Help: "start the proxy after `stop`, with the same arguments",
		read: func(*arguments) any { return &Start{} },
	}, {
		Name: "address", Arguments: "add | remove $NAME on LINK",
		Examples: []string{"address add $SPARE on outside", "address remove $SPARE on outside"},
		Help:     "add an address to a link of the node, or remove it",
		read:     readAddress,
	}, {
		Name: "sysctl", Arguments: "NAME=VALUE", Examples: []string{"sysctl net.ipv4.ip_forward=1"},
		Help: "change a setting of the node until the scenario ends",
		read: func(a *arguments) any { return &Sysctl{Setting: a.next("a setting")} },
	}, {
		Name: "pause", Arguments: "DURATION", Examples: []string{"pause 1500ms"},
		Help: "wait for a timeout of the Service API; the runner itself waits for the proxy",
		read: func(a *arguments) any { return &Pause{For: a.duration(a.next("a duration"))} },
	}}
}

type (
	// Restart stops the proxy and starts it again. Kill stops it with SIGKILL.
	Restart struct{ Kill bool }
	// Stop stops the proxy.
	Stop struct{}
	// Start starts the proxy after Stop.
	Start struct{}
	// Address adds an address to a link of the node, or removes it.
	Address struct {
		Remove bool
		Name   string
		Link   string
	}
	// Sysctl changes a setting of the node until the scenario ends.
	Sysctl struct{ Setting string }
	// Pause waits for a timeout of the Service API. The proxy needs no pause: the runner waits for it.
	Pause struct{ For time.Duration }
)

func readAddress(a *arguments) any {
	s := &Address{}
	switch action := a.next("add or remove"); action {
	case "add":
	case "remove":
		s.Remove = true
	default:
		a.fail("address %s: not add or remove", action)
	}
	s.Name, s.Link = strings.TrimPrefix(a.next("an address"), "$"), a.after("on")
	_, err := lab.Lookup(lab.IPv4, s.Name)
	a.failWith(err)
	return s
}
