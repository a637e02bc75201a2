package prober

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// maxHead is how many bytes the first line of an answer may have. maxBody is how many are read after it, so that the
// server can end the connection: then no TIME_WAIT is left on this node.
const (
	maxHead = 4096
	maxBody = 16384
	// maxReads is how many pieces are read of each: an answer that comes byte by byte costs a hundred times its share.
	maxReads = 32
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
	for read, times := 0, 0; read < maxBody && times < maxReads && err == nil; times++ { // what follows does not matter
		var n int
		n, err = conn.Read(buf[:])
		read += n
	}
	return nil
}

// firstLine reads until the end of a line.
func firstLine(conn io.Reader, buf []byte) (string, error) {
	for n, times := 0, 0; n < len(buf) && times < maxReads; times++ {
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

// curves are for the handshake, which is most of the work of a question by HTTPS. It sends no secret, so its key exchange need
// not withstand a quantum computer, and the curves are the cheap ones.
var curves = []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}

// An endpoint that was asked before resumes its session, without its certificate. A session keeps the certificates and the
// ticket of an endpoint, so these limits bound the memory that endpoints can fill. Without a session, each question begins
// anew.
const (
	maxSessions = 2048
	maxCerts    = 6 << 10
	maxTicket   = 4 << 10
)

// session is the session with one endpoint and server name. By itself, crypto/tls has one for each server name.
type session struct {
	tls.ClientSessionCache
	key   string
	large bool
}

func (s *session) Get(string) (*tls.ClientSessionState, bool) { return s.ClientSessionCache.Get(s.key) }

func (s *session) Put(_ string, is *tls.ClientSessionState) {
	if is != nil {
		ticket, _, err := is.ResumptionState()
		if s.large || err != nil || len(ticket) > maxTicket {
			return
		}
	}
	s.ClientSessionCache.Put(s.key, is)
}

// note notes the size of the certificates.
func (s *session) note(certs [][]byte) {
	size := 0
	for _, c := range certs {
		size += len(c)
	}
	s.large = size > maxCerts
}

// askTLS asks by HTTPS. As a kubelet does, it does not verify the certificate: it asks whether the endpoint serves, and
// sends no secret.
func (a *Asker) askTLS(ctx context.Context, c *conn, at netip.AddrPort, check *state.HealthCheck) error {
	s := &session{ClientSessionCache: a.sessions, key: at.String() + check.Host}
	secure := tls.Client(c, &tls.Config{
		ServerName: check.Host, InsecureSkipVerify: true, CurvePreferences: curves, ClientSessionCache: s,
		VerifyPeerCertificate: func(certs [][]byte, _ [][]*x509.Certificate) error { s.note(certs); return nil },
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		var alert tls.AlertError
		var record tls.RecordHeaderError
		if errors.As(err, &alert) || errors.As(err, &record) {
			return answerError("the TLS handshake failed")
		}
		return err
	}
	return askWeb(secure, at, check)
}
