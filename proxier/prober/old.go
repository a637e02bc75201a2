package prober

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/activecheck"
	"github.com/verdict-proxy/verdict/proxier/outlier"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// This file goes once package endpointhealth asks.

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

// Check asks an endpoint as an active check does.
func Check(ctx context.Context, t activecheck.Target, c *state.HealthCheck) activecheck.Result {
	if err := check(ctx, t, c); err != nil {
		fault, why := faultOf(err, c)
		return activecheck.Result{Fault: fault, Why: why}
	}
	return activecheck.Result{Good: true}
}

func check(ctx context.Context, t activecheck.Target, c *state.HealthCheck) error {
	deadline := time.Now().Add(c.Timeout)
	switch c.Kind {
	case state.CheckHTTPS, state.CheckDNS:
		return checkByDialer(ctx, t, c, deadline)
	}
	conn, err := connect(t.At, deadline)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the answer is known
	if c.Kind == state.CheckTCP {
		return reset(conn)
	}
	if err := askWeb(conn, t.At, c); err != nil {
		return err
	}
	return reset(conn) // the server has ended the connection, or sends more than anyone reads
}

func checkByDialer(ctx context.Context, t activecheck.Target, c *state.HealthCheck, deadline time.Time) error {
	d := net.Dialer{Deadline: deadline, KeepAlive: -1}
	conn, err := d.DialContext(ctx, t.Protocol.String(), t.At.String())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the answer is known
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if c.Kind == state.CheckHTTPS {
		return askTLS(ctx, conn, t.At, c)
	}
	return askDNS(conn, t.Protocol == state.TCP, c)
}

// faultOf says in a few words why a check failed. They have no text of the endpoint, which may be anything.
func faultOf(err error, c *state.HealthCheck) (fault activecheck.Fault, why string) {
	var bad answerError
	switch {
	case errors.As(err, &bad):
		return activecheck.WrongAnswer, string(bad)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		return activecheck.NoAnswer, "no answer within " + c.Timeout.String()
	case errors.Is(err, unix.ECONNREFUSED):
		return activecheck.Refused, "connection refused"
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return activecheck.Reset, "connection reset"
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.ENETDOWN):
		return activecheck.NoRoute, "no route to it"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return activecheck.Closed, "it closed the connection without an answer"
	}
	return activecheck.OtherFault, state.Clip(err.Error(), 120)
}

// Most of the work of a check by HTTPS is the handshake. A check sends no secret, so its key exchange need not withstand a
// quantum computer, and the curves are the cheap ones. An endpoint that was asked before resumes its session, without its
// certificate.
var (
	sessions = tls.NewLRUClientSessionCache(maxSessions)
)

// sessionOf is the session with one endpoint and server name. By itself, crypto/tls has one for each server name.
type sessionOf string

func (s sessionOf) Get(string) (*tls.ClientSessionState, bool)    { return sessions.Get(string(s)) }
func (s sessionOf) Put(_ string, session *tls.ClientSessionState) { sessions.Put(string(s), session) }

// askTLS asks by HTTPS. As a kubelet does, it does not verify the certificate: it asks whether the endpoint serves, and
// sends no secret.
func askTLS(ctx context.Context, conn net.Conn, at netip.AddrPort, c *state.HealthCheck) error {
	secure := tls.Client(conn, &tls.Config{
		ServerName: c.Host, InsecureSkipVerify: true, CurvePreferences: curves, ClientSessionCache: sessionOf(at.String() + c.Host),
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		var alert tls.AlertError
		var record tls.RecordHeaderError
		if errors.As(err, &alert) || errors.As(err, &record) {
			return answerError("the TLS handshake failed")
		}
		return err
	}
	return askWeb(secure, at, c)
}
