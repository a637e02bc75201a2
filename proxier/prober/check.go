package prober

import (
	"bufio"
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
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/activecheck"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Check asks an endpoint as an active check does.
func Check(ctx context.Context, t activecheck.Target, c *state.HealthCheck) activecheck.Result {
	if err := check(ctx, t, c); err != nil {
		return activecheck.Result{Why: whyOf(err, c)}
	}
	return activecheck.Result{Good: true}
}

func check(ctx context.Context, t activecheck.Target, c *state.HealthCheck) error {
	deadline := time.Now().Add(c.Timeout)
	d := net.Dialer{Deadline: deadline, KeepAlive: -1}
	network := "tcp"
	if t.Protocol == state.UDP {
		network = "udp"
	}
	conn, err := d.DialContext(ctx, network, t.At.String())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the answer is known
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	switch c.Kind {
	case state.CheckHTTP:
		return askWeb(conn, t.At, c)
	case state.CheckHTTPS:
		return askTLS(ctx, conn, t.At, c)
	case state.CheckDNS:
		return askDNS(conn, t.Protocol == state.TCP, c)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// A reset leaves no TIME_WAIT behind: 1,000 checks a second would make 60,000 of them.
		return tcp.SetLinger(0)
	}
	return nil
}

// whyOf says in a few words why a check failed. It has no text of the endpoint, which may be anything.
func whyOf(err error, c *state.HealthCheck) string {
	var bad answerError
	switch {
	case errors.As(err, &bad):
		return string(bad)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		return "no answer within " + c.Timeout.String()
	case errors.Is(err, unix.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return "connection reset"
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.ENETDOWN):
		return "no route to it"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it closed the connection without an answer"
	}
	return state.Clip(err.Error(), 120)
}

// answerError is an answer that is wrong.
type answerError string

func (e answerError) Error() string { return string(e) }

const (
	maxHead = 4096  // bytes of the first line of an answer
	maxBody = 16384 // bytes that are read after it, so that the server can end the connection
)

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
	r := bufio.NewReaderSize(io.LimitReader(conn, maxHead+maxBody), maxHead)
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return answerError("the answer is not HTTP")
	}
	if err != nil {
		return err
	}
	status, err := statusOf(string(line))
	if err != nil {
		return err
	}
	if status < c.MinStatus || status > c.MaxStatus {
		return answerError(fmt.Sprintf("HTTP status %d", status))
	}
	_, _ = io.Copy(io.Discard, r) // what follows does not matter
	return nil
}

// statusOf parses the first line of an answer, such as "HTTP/1.1 200 OK".
func statusOf(line string) (uint16, error) {
	version, rest, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.ParseUint(code, 10, 16)
	if err != nil || len(code) != 3 || !strings.HasPrefix(version, "HTTP/1.") {
		return 0, answerError("the answer is not HTTP")
	}
	return uint16(status), nil
}

// askTLS asks by HTTPS. As a kubelet does, it does not verify the certificate: it asks whether the endpoint serves, and
// sends no secret.
func askTLS(ctx context.Context, conn net.Conn, at netip.AddrPort, c *state.HealthCheck) error {
	secure := tls.Client(conn, &tls.Config{ServerName: c.Host, InsecureSkipVerify: true})
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
