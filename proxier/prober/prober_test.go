package prober

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// enough is how long a check of these tests waits, unless it says otherwise.
const enough = 30 * time.Second

// asker does not forget flows: nobody tracks connections here.
var asker = New(func(conntrack.Query) {})

// ask checks an address of this test.
func ask(t *testing.T, network, at, check string) probe.Answer {
	t.Helper()
	q := questionOf(t, network, at, check)
	return asker.Ask(t.Context(), &q)
}

func questionOf(t testing.TB, network, at, check string) probe.Question {
	t.Helper()
	c, err := state.ParseHealthCheck(check)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(check, "timeout=") {
		c.Timeout = enough // so that only the answer counts, however slow the machine is
	}
	protocol := state.TCP
	if network == "udp" {
		protocol = state.UDP
	}
	return probe.Question{Target: probe.Target{Protocol: protocol, At: netip.MustParseAddrPort(at)}, Check: c}
}

// server answers each connection with a text, after it has read something.
func server(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				defer conn.Close()
				if n, _ := conn.Read(make([]byte, 4096)); n == 0 {
					return
				}
				_, _ = io.WriteString(conn, answer) // the check shows what it got
				if answer == "" {
					_, _ = io.Copy(io.Discard, conn) // says nothing until the client gives up
				}
			}()
		}
	}()
	return l.Addr().String()
}

// closed is an address at which nobody listens: a socket that does not listen has its TCP port until the test ends, and
// nothing else uses this address.
func closed(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) // the process ends soon
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 77, 2}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	own := at.(*unix.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(own.Addr), uint16(own.Port)).String()
}

// answerWith is the answer with these words; "": a good one.
func answerWith(why string) probe.Answer {
	a := probe.Answer{Connected: true, Why: why}
	switch {
	case why == "":
	case why == "connection refused":
		a.Fault, a.Connected = probe.Refused, false
	case strings.HasPrefix(why, "no answer within "):
		a.Fault = probe.NoAnswer
	case strings.HasPrefix(why, "it closed the connection"):
		a.Fault = probe.Closed
	default:
		a.Fault = probe.WrongAnswer
	}
	return a
}

func TestCheck(t *testing.T) {
	web := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "other.example" || r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 100_000)) // more than a check reads
	})
	plain, secure := httptest.NewServer(web), httptest.NewTLSServer(web)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	plainAt, secureAt := plain.Listener.Addr().String(), secure.Listener.Addr().String()
	for _, tt := range []struct{ check, at, why string }{
		{"tcp", plainAt, ""},
		{"tcp", closed(t), "connection refused"},
		{"http path=/healthz", plainAt, ""},
		{"http path=/healthz status=503", plainAt, "HTTP status 200"},
		{"http", plainAt, "HTTP status 503"},
		{"http path=/healthz server-name=other.example", plainAt, "HTTP status 503"},
		{"http status=503", plainAt, ""},
		{"http", closed(t), "connection refused"},
		{"http timeout=200ms", server(t, ""), "no answer within 200ms"},
		{"http", server(t, "SSH-2.0-x\r\n"), "the answer is not HTTP"},
		{"http", server(t, "HTTP/1.1 2000 OK\r\n"), "the answer is not HTTP"},
		{"http", server(t, strings.Repeat("x", 5000)), "the answer is not HTTP"},
		{"http", server(t, "HTTP/1.1 200"), "it closed the connection without an answer"},
		{"http", server(t, "HTTP/1.0 204 No Content\n"), ""},
		{"https path=/healthz server-name=any.example", secureAt, ""},
		{"https", secureAt, "HTTP status 503"},
		{"https", server(t, "HTTP/1.1 200 OK\r\n"), "the TLS handshake failed"},
		{"https timeout=200ms", server(t, ""), "no answer within 200ms"},
	} {
		if r := ask(t, "tcp", tt.at, tt.check); r != answerWith(tt.why) {
			t.Errorf("%s: %+v, want %+v", tt.check, r, answerWith(tt.why))
		}
	}
}

// TestSessionsAreResumed: the second check of an endpoint resumes the session of the first one, and no other endpoint's.
func TestSessionsAreResumed(t *testing.T) {
	resumed := make(chan bool, 1)
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { resumed <- r.TLS.DidResume })
	at := func() string {
		s := httptest.NewTLSServer(h)
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	a, b := at(), at()
	for i, to := range []string{a, b, a, b} {
		if r := ask(t, "tcp", to, "https server-name=any.example"); !r.Good() {
			t.Fatalf("%+v", r)
		}
		if got, want := <-resumed, i >= 2; got != want {
			t.Errorf("check %d resumed the session: %t, want %t", i+1, got, want)
		}
	}
}

// nameServer knows one name, over UDP and TCP at the same port. It refuses questions about the root.
func nameServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); packets.Close() })
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := packets.ReadFrom(buf)
			if err != nil {
				return // closed
			}
			stale := answerDNS(buf[:n])
			stale[1]++
			_, _ = packets.WriteTo(stale, from) // the answer to another question comes first
			_, _ = packets.WriteTo(answerDNS(buf[:n]), from)
		}
	}()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			buf := make([]byte, 512)
			n, _ := conn.Read(buf)
			answer := answerDNS(buf[2:n])
			_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)) // a client that misses it reports it
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

func answerDNS(query []byte) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		panic(err) // the check writes nonsense
	}
	m.Response = true
	switch m.Questions[0].Name.String() {
	case "known.example.":
	case ".":
		m.RCode = dnsmessage.RCodeRefused
	default:
		m.RCode = dnsmessage.RCodeNameError
	}
	answer, err := m.Pack()
	if err != nil {
		panic(err) // as above
	}
	return answer
}

func TestCheckDNS(t *testing.T) {
	at := nameServer(t)
	for _, network := range []string{"udp", "tcp"} {
		for _, tt := range []struct{ check, at, why string }{
			{"dns name=known.example", at, ""},
			{"dns name=known.example.", at, ""},
			{"dns name=unknown.example", at, "DNS answer NameError"},
			{"dns", at, ""}, // any answer
			{"dns", closed(t), "connection refused"},
		} {
			if r := ask(t, network, tt.at, tt.check); r != answerWith(tt.why) {
				t.Errorf("%s over %s: %+v, want %+v", tt.check, network, r, answerWith(tt.why))
			}
		}
	}
	if r := ask(t, "tcp", server(t, "\x00\x04what"), "dns"); r.Why != "the answer is not DNS" {
		t.Errorf("%+v", r)
	}
}

// FuzzStatus reads any first line of an answer.
func FuzzStatus(f *testing.F) {
	for _, line := range []string{"HTTP/1.1 200 OK", "HTTP/1.0 99 ", "HTTP/2 200", "", " ", "HTTP/1.1"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if status, err := statusOf(line); err == nil && !strings.Contains(line, fmt.Sprintf(" %03d", status)) {
			t.Fatalf("%q has the status %d", line, status)
		}
	})
}

// dripping is a connection on which a text comes byte by byte.
func dripping(t *testing.T, text string) *conn {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	own, other := os.NewFile(uintptr(ends[0]), ""), os.NewFile(uintptr(ends[1]), "")
	t.Cleanup(func() { own.Close(); other.Close() })
	go func() {
		for i := range text {
			if _, err := other.WriteString(text[i : i+1]); err != nil {
				return // closed
			}
		}
	}()
	return &conn{File: own}
}

// TestPieces: an answer in many pieces costs no more than one in a few.
func TestPieces(t *testing.T) {
	for _, tt := range []struct {
		text string
		good bool
	}{
		{"HTTP/1.1 200 OK\r\n" + strings.Repeat("x", 100_000), true},
		{"HTTP/1.1 200 " + strings.Repeat("x", 100_000), false},
	} {
		q, c := questionOf(t, "tcp", "10.0.0.1:80", "http"), dripping(t, tt.text)
		if err := askWeb(c, q.At, &q.Check); (err == nil) != tt.good || c.read > maxPieces {
			t.Errorf("%.20s: %d reads, %v", tt.text, c.read, err)
		}
	}
}
