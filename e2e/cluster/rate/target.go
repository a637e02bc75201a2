package rate

import (
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
)

// Target is what a client connects to.
type Target struct {
	Network string // as package net has it, such as tcp4
	Address string // HOST:PORT
	Once    bool   // the name of the host is resolved once, and not for each connection

	known   atomic.Pointer[string] // with Once, the address behind the name
	running atomic.Bool
}

// To is a target of TCP at an address.
func To(at netip.AddrPort) *Target { return &Target{Network: "tcp", Address: at.String()} }

// ParseTarget reads a target such as "10.96.0.1:80" or "udp4 web.default.svc.cluster.local.:80", with the word "once" behind it
// or not.
func ParseTarget(text string) (*Target, error) {
	words := strings.Fields(text)
	t := &Target{Network: "tcp"}
	if len(words) > 1 {
		t.Network, words = words[0], words[1:]
		t.Once = len(words) == 2 && words[1] == "once"
	}
	if len(words) == 0 || len(words) > 1 && !t.Once {
		return nil, fmt.Errorf("target %q: it must be [NETWORK] HOST:PORT [once]", text)
	}
	t.Address = words[0]
	return t, nil
}

func (t *Target) String() string { return t.Network + " " + t.Address }

// address is where the next connection goes.
func (t *Target) address() string {
	if known := t.known.Load(); known != nil {
		return *known
	}
	return t.Address
}
