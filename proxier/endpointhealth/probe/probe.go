// Package probe has what this node asks an endpoint, and what the endpoint answers. Package prober asks; package checks
// decides who is asked, and what the answers mean.
package probe

import (
	"net/netip"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Target is an address and port that is asked.
type Target struct {
	Protocol state.Protocol
	At       netip.AddrPort
}

// Question asks an endpoint whether it serves. If the kind of the check is state.CheckOff, it is the question of this node
// after packets of clients raised a suspicion: does the endpoint accept a TCP connection, and if not, does its host answer?
type Question struct {
	Target
	Check state.HealthCheck
	// OnlyThis: after a suspicion, HostPort of the host must not be asked.
	OnlyThis bool
}

// HostPort is a port at which nobody listens (tcpmux). A reset from there shows that the host lives.
const HostPort = 1

// Fault is why an answer is bad.
type Fault uint8

// The faults.
const (
	NoFault     Fault = iota // the answer is good
	OtherFault               // the question could not be asked
	NoAnswer                 // within the timeout
	Refused                  // the connection, by a reset or an ICMP error "port unreachable"
	Reset                    // after the connection was established
	NoRoute                  // an ICMP error, or this node has no route
	Closed                   // without an answer
	WrongAnswer              // one that the check does not accept
	HostAnswers              // no answer, but another port of the host answers
)

func (f Fault) String() string {
	return [...]string{
		"good", "other", "no answer", "refused", "reset", "no route", "closed", "wrong answer", "host answers",
	}[f]
}

// Definite reports whether the endpoint or its host said that it does not serve. Silence may have its cause on the way.
func (f Fault) Definite() bool { return f == Refused || f.Connected() }

// Connected reports whether the endpoint accepted the connection before.
func (f Fault) Connected() bool { return f == Reset || f == Closed || f == WrongAnswer }

// Answer is the end of a question.
type Answer struct {
	Fault Fault
	// Connected reports whether the endpoint accepted a connection, or answered a datagram: this node can reach it.
	Connected bool
	Why       string // the fault in words, for root only; it has no text of the endpoint
}

// Good reports whether the endpoint serves.
func (a Answer) Good() bool { return a.Fault == NoFault }
