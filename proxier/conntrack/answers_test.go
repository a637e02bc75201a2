package conntrack

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// recorded are answers of a kernel, each with what it answers. TestRecorded writes them.
func recorded(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/answers.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// answersTo are the datagrams that the kernel sent as answers to a request.
func answersTo(t testing.TB, what string) (out [][]byte) {
	t.Helper()
	for _, line := range recorded(t) {
		if datagram, ok := strings.CutPrefix(line, what+" "); ok {
			b, err := hex.DecodeString(datagram)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b)
		}
	}
	if len(out) == 0 {
		t.Fatalf("no answers to %q", what)
	}
	return out
}

// read is what the lines of recorded say. The order of flows in the table is the kernel's secret.
func read(lines []string) (out []string) {
	for _, line := range lines {
		what, datagram, _ := strings.Cut(line, " ")
		b, _ := hex.DecodeString(datagram)
		for m := nlmsg.NewMessages(b); m.Next(); {
			var e entry
			if ack, is := m.Ack(); is {
				out = append(out, fmt.Sprintf("%s: %v", what, ack.Errno))
			} else if e.parse(m.Attributes()) {
				e.timeout = 0 // it runs down
				out = append(out, fmt.Sprintf("%s: %+v %t", what, e.found(), e.active()))
			}
		}
	}
	slices.Sort(out)
	return out
}

// peer is the kernel's end of a socket, for answers from a recording and for faults. The client's end is a real socket.
type peer struct {
	t testing.TB
	// answer returns the datagrams that answer a datagram. Nil: nothing is answered.
	answer func(request []netlink.Message) [][]byte
	refuse error // of the next connection

	mu       sync.Mutex // held while it answers
	client   *socket.Conn
	end      *socket.Conn
	requests []string // all so far, decoded
	gone     chan struct{}
}

func newPeer(t testing.TB, answer func(request []netlink.Message) [][]byte) *peer {
	p := &peer{t: t, answer: answer, gone: make(chan struct{}, 10)}
	t.Cleanup(func() {
		if p.end != nil {
			p.end.Close()
		}
	})
	return p
}

// saying is a peer whose answers to the first request, the second one and so on are these.
func saying(t testing.TB, answers ...[][]byte) *peer {
	return newPeer(t, func(request []netlink.Message) (out [][]byte) {
		if len(answers) == 0 {
			t.Errorf("unexpected request %s", decode(t, request))
			return [][]byte{ack(request[0], unix.EIO)}
		}
		for _, a := range answers[0] {
			out = append(out, renumber(a, request[0].Header.Sequence))
		}
		answers = answers[1:]
		return out
	})
}

func (p *peer) options() Options { return Options{NetNS: 7, connect: p.connect} }

func (p *peer) connect(netns int) (*nlmsg.Conn, error) {
	if p.refuse != nil || netns != 7 {
		return nil, p.refuse
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if p.client, err = socket.New(pair[0], "conntrack"); err != nil {
		return nil, err
	}
	if p.end, err = socket.New(pair[1], "peer"); err != nil {
		return nil, err
	}
	go p.serve(p.end)
	return nlmsg.NewConn("conntrack", p.client), nil
}

func (p *peer) serve(end *socket.Conn) {
	in := make([]byte, 1<<16)
	for {
		n, _, err := end.Recvfrom(context.Background(), in, 0)
		if err != nil || n == 0 {
			p.gone <- struct{}{}
			return
		}
		request := messages(p.t, in[:n])
		p.mu.Lock()
		for _, m := range request {
			p.requests = append(p.requests, decode(p.t, []netlink.Message{m}))
		}
		var answers [][]byte
		if p.answer != nil {
			answers = p.answer(request)
		}
		p.mu.Unlock()
		for _, a := range answers {
			if err := end.Sendto(context.Background(), a, 0, nil); err != nil {
				return // the client has gone
			}
		}
	}
}

// do has a test read or change what answers depend on, between two of them.
func (p *peer) do(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// taken are the requests since the last call.
func (p *peer) taken() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.requests
	p.requests = nil
	return list
}

// messages reads a datagram with another decoder than the product's.
func messages(t testing.TB, b []byte) (list []netlink.Message) {
	t.Helper()
	for len(b) > 0 {
		size := binary.NativeEndian.Uint32(b)
		var m netlink.Message
		if err := m.UnmarshalBinary(slices.Clone(b[:size])); err != nil {
			t.Errorf("%x: %v", b, err)
			return list
		}
		list, b = append(list, m), b[size:]
	}
	return list
}

// decode prints requests: kind, flags, family, and attributes as "number=value" or "number{attributes}".
func decode(t testing.TB, list []netlink.Message) string {
	t.Helper()
	var out []string
	for _, m := range list {
		out = append(out, fmt.Sprintf("%x %v %d%s", uint16(m.Header.Type), m.Header.Flags, m.Data[0], decodeAttributes(t, m.Data[4:])))
	}
	return strings.Join(out, "\n")
}

func decodeAttributes(t testing.TB, b []byte) string {
	t.Helper()
	list, err := netlink.UnmarshalAttributes(b)
	if err != nil {
		t.Errorf("%x: %v", b, err)
	}
	var out strings.Builder
	for _, a := range list {
		if a.Type&netlink.Nested != 0 {
			fmt.Fprintf(&out, " %d{%s }", a.Type&^netlink.Nested, decodeAttributes(t, a.Data))
		} else {
			fmt.Fprintf(&out, " %d=%x", a.Type, a.Data)
		}
	}
	return out.String()
}

// renumber returns a datagram as an answer to the request with another number.
func renumber(datagram []byte, seq uint32) []byte {
	out := slices.Clone(datagram)
	for at := 0; at < len(out); at += int(binary.NativeEndian.Uint32(out[at:])) {
		binary.NativeEndian.PutUint32(out[at+8:], seq)
	}
	return out
}

// ack answers one request, as the kernel does with NETLINK_CAP_ACK.
func ack(request netlink.Message, errno unix.Errno) []byte {
	b := binary.NativeEndian.AppendUint32(nil, 36)
	b = binary.NativeEndian.AppendUint16(b, unix.NLMSG_ERROR)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_CAPPED)
	b = binary.NativeEndian.AppendUint32(b, request.Header.Sequence)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint32(b, uint32(-int32(errno)))
	return append(b, make([]byte, 16)...)
}

// acks answers each request with an error.
func acks(errno unix.Errno) func([]netlink.Message) [][]byte {
	return func(list []netlink.Message) (out [][]byte) {
		for _, m := range list {
			out = append(out, ack(m, errno))
		}
		return out
	}
}
