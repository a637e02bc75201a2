package prober

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/outlier"
)

// One question opens several connections, because a packet may get lost on the way there or back: with 2 % of loss, all
// of them fail once in 16,000 questions. The first answer counts. The patience is more than twice the round trip of a
// slow path (300 ms).
const (
	attempts = 3
	stagger  = 50 * time.Millisecond
	patience = 650 * time.Millisecond
)

// hostPort is a port at which nobody listens (tcpmux). A reset from there shows that the host lives.
const hostPort = 1

// Ask asks an endpoint.
func Ask(ctx context.Context, at netip.AddrPort) outlier.Answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers := make(chan outlier.Answer, attempts)
	host := make(chan bool, 1)
	for i := range attempts {
		go func() { answers <- connectAfter(ctx, time.Duration(i)*stagger, at) }()
	}
	go func() {
		a := connectAfter(ctx, attempts*stagger, netip.AddrPortFrom(at.Addr(), hostPort))
		host <- a == outlier.Good || a == outlier.Refused
	}()
	worst := outlier.Silent
	for range attempts {
		switch a := <-answers; a {
		case outlier.Good, outlier.Refused:
			return a
		case outlier.NoRoute:
			worst = a
		}
	}
	if <-host {
		return outlier.HostAnswers
	}
	return worst
}

// connectAfter makes one connection, and closes it.
func connectAfter(ctx context.Context, wait time.Duration, to netip.AddrPort) outlier.Answer {
	select {
	case <-ctx.Done():
		return outlier.Silent
	case <-time.After(wait):
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", to.String())
	switch {
	case err == nil:
		_ = conn.Close() // nothing was sent
		return outlier.Good
	case errors.Is(err, unix.ECONNREFUSED):
		return outlier.Refused
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.ENETDOWN):
		return outlier.NoRoute
	}
	return outlier.Silent
}
