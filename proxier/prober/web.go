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
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// maxHead is how many bytes the first line of an answer may have. maxBody is how many are read after it, so that the
// server can end the connection: then no TIME_WAIT is left on this node.
const (
	maxHead = 4096
	maxBody = 16384
)

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, maxHead) }}

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
	r := readers.Get().(*bufio.Reader)
	r.Reset(conn)
	defer func() {
		r.Reset(nil)
		readers.Put(r)
	}()
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) || errors.Is(err, errTooLong) {
		return errNoHTTP
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
	_, _ = io.CopyN(io.Discard, r, maxBody) // what follows does not matter
	return nil
}

// errNoHTTP is about an answer in another language.
const errNoHTTP = answerError("the answer is not HTTP")

// statusOf parses the first line of an answer, such as "HTTP/1.1 200 OK".
func statusOf(line string) (uint16, error) {
	version, rest, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.ParseUint(code, 10, 16)
	if err != nil || len(code) != 3 || !strings.HasPrefix(version, "HTTP/1.") {
		return 0, errNoHTTP
	}
	return uint16(status), nil
}

// curves are for the handshake, which is most of the work of a question by HTTPS. It sends no secret, so its key exchange need
// not withstand a quantum computer, and the curves are the cheap ones.
var curves = []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}

// An endpoint that was asked before resumes its session, without its certificate. A session keeps what the endpoint sent, so
// these limits bound the memory that endpoints can fill. Without a session, each question begins anew.
const (
	maxSessions = 2048
	maxSession  = 10 << 10
)

// session is the session with one endpoint and server name. By itself, crypto/tls has one for each server name.
type session struct {
	tls.ClientSessionCache
	key  string
	conn *conn
}

func (s *session) Get(string) (*tls.ClientSessionState, bool) { return s.ClientSessionCache.Get(s.key) }

func (s *session) Put(_ string, is *tls.ClientSessionState) {
	if is == nil || s.conn.read <= maxSession {
		s.ClientSessionCache.Put(s.key, is)
	}
}

// askTLS asks by HTTPS. As a kubelet does, it does not verify the certificate: it asks whether the endpoint serves, and
// sends no secret.
func (a *Asker) askTLS(ctx context.Context, c *conn, at netip.AddrPort, check *state.HealthCheck) error {
	secure := tls.Client(c, &tls.Config{
		ServerName: check.Host, InsecureSkipVerify: true, CurvePreferences: curves,
		ClientSessionCache: &session{a.sessions, at.String() + " " + check.Host, c},
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		_, alert := errors.AsType[tls.AlertError](err)
		if _, record := errors.AsType[tls.RecordHeaderError](err); alert || record {
			return answerError("the TLS handshake failed")
		}
		return err
	}
	return askWeb(secure, at, check)
}

// maxStale is how many answers to other questions are read.
const maxStale = 16

// askDNS asks for a name, which must have an answer without an error. Without a name, any answer shows that the server
// works.
func askDNS(conn io.ReadWriter, overTCP bool, c *state.HealthCheck) error {
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
	for range maxStale {
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
	return answerError("the answers are to other questions")
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

func readDNS(conn io.ReadWriter, buf []byte, overTCP bool) (int, error) {
	if !overTCP {
		return conn.Read(buf)
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return 0, err
	}
	return io.ReadFull(conn, buf[:min(len(buf), int(binary.BigEndian.Uint16(size[:])))])
}
