package prober

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/activecheck"
	"github.com/verdict-proxy/verdict/proxier/state"
)

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

// answerError is an answer that is wrong.
type answerError string

func (e answerError) Error() string { return string(e) }

// maxHead is how many bytes the first line of an answer may have. maxBody is how many are read after it, so that the
// server can end the connection: then no TIME_WAIT is left on this node.
const (
	maxHead = 4096
	maxBody = 16384
)

var buffers = sync.Pool{New: func() any { return new([maxHead]byte) }}

// askWeb asks by HTTP. It looks at the status only, so it needs no client that understands the rest.
func askWeb(conn io.ReadWriter, at netip.AddrPort, c *state.HealthCheck) error {
	host := c.Host
	if host == "" {
		host = at.String()
	}
	_, err := io.WriteString(conn, "GET "+c.Path+" HTTP/1.1\r\nHost: "+host+"\r\nUser-Agent: verdict-health-check\r\nAccept: */*\r\n"+
		"Connection: close\r\n\r\n")
	if err != nil {
		return err
	}
	buf := buffers.Get().(*[maxHead]byte)
	defer buffers.Put(buf)
	line, err := firstLine(conn, buf[:])
	if err != nil {
		return err
	}
	status, err := statusOf(line)
	if err != nil {
		return err
	}
	if status < c.MinStatus || status > c.MaxStatus {
		return answerError(fmt.Sprintf("HTTP status %d", status))
	}
	for read := 0; read < maxBody && err == nil; { // what follows does not matter
		var n int
		n, err = conn.Read(buf[:])
		read += n
	}
	return nil
}

// firstLine reads until the end of a line.
func firstLine(conn io.Reader, buf []byte) (string, error) {
	for n := 0; n < len(buf); {
		more, err := conn.Read(buf[n:])
		if end := bytes.IndexByte(buf[n:n+more], '\n'); end >= 0 {
			return string(buf[:n+end]), nil
		}
		if err != nil {
			return "", err
		}
		n += more
	}
	return "", answerError("the answer is not HTTP")
}

// statusOf parses the first line of an answer, such as "HTTP/1.1 200 OK".
func statusOf(line string) (uint16, error) {
	version, rest, _ := strings.Cut(strings.TrimSuffix(line, "\r"), " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.ParseUint(code, 10, 16)
	if err != nil || len(code) != 3 || !strings.HasPrefix(version, "HTTP/1.") {
		return 0, answerError("the answer is not HTTP")
	}
	return uint16(status), nil
}

// Most of the work of a check by HTTPS is the handshake. A check sends no secret, so its key exchange need not withstand a
// quantum computer, and the curves are the cheap ones. An endpoint that was asked before resumes its session, without its
// certificate.
var (
	curves   = []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}
	sessions = tls.NewLRUClientSessionCache(maxSessions)
)

// maxSessions is how many sessions are kept. Those of further endpoints begin anew each time.
const maxSessions = 8192

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

// askDNS asks for a name, which must have an answer without an error. Without a name, any answer shows that the server
// works.
func askDNS(conn net.Conn, overTCP bool, c *state.HealthCheck) error {
	query, id, err := dnsQuery(c.Host)
	if err != nil {
		return err
	}
	buf := make([]byte, 1232)
	if overTCP {
		query = append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)
	}
	if _, err := conn.Write(query); err != nil {
		return err
	}
	for {
		n, err := readDNS(conn, buf, overTCP)
		if err != nil {
			return err
		}
		var p dnsmessage.Parser
		h, err := p.Start(buf[:n])
		switch {
		case err != nil || !h.Response:
			return answerError("the answer is not DNS")
		case h.ID != id:
			continue // to an earlier question
		case h.RCode == dnsmessage.RCodeSuccess || c.Host == "":
			return nil
		}
		return answerError("DNS answer " + strings.TrimPrefix(h.RCode.String(), "RCode"))
	}
}

// dnsQuery asks for the name, or for the name servers of the root.
func dnsQuery(name string) (query []byte, id uint16, err error) {
	var random [2]byte
	_, _ = rand.Read(random[:]) // never fails
	id = binary.BigEndian.Uint16(random[:])
	q := dnsmessage.Question{Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	if name == "" {
		q.Type = dnsmessage.TypeNS
	}
	if q.Name, err = dnsmessage.NewName(strings.TrimSuffix(name, ".") + "."); err != nil {
		return nil, 0, fmt.Errorf("write the question for %s: %w", name, err)
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: id, RecursionDesired: name != ""}, Questions: []dnsmessage.Question{q}}
	query, err = m.Pack()
	return query, id, err
}

func readDNS(conn net.Conn, buf []byte, overTCP bool) (int, error) {
	if !overTCP {
		return conn.Read(buf)
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return 0, err
	}
	return io.ReadFull(conn, buf[:min(len(buf), int(binary.BigEndian.Uint16(size[:])))])
}
