//go:build !nokernel

package rate

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

// TestRepeatedSYN: a SYN that was lost counts. One does not that the server took for a packet of an old connection.
func TestRepeatedSYN(t *testing.T) {
	const patience = 30 * time.Second // for an answer that is to come
	to := netip.MustParseAddrPort("192.0.2.2:80")
	for name, old := range map[string]bool{"lost": false, "taken for an old connection's": true} {
		w := newSYNWire(t, to, map[bool]first{true: isOld, false: isLost}[old])
		for client, ask := range map[string]func() (answered bool, repeated int){
			"lab": func() (bool, int) {
				r := w.client.Ask(lab.Question{Protocol: lab.TCP, To: to, Patience: patience})
				return r.Outcome == lab.Answered, r.Repeated
			},
			"rate": func() (bool, int) {
				c := &Client{Patience: patience, KernelPorts: true, Do: w.client.Do, Answer: FirstLine}
				a := c.Connect(To(to))
				return a.Outcome == Answered, a.Repeated
			},
		} {
			t.Run(name+"/"+client, func(t *testing.T) {
				lab.Eventually(t, "a connection of a machine that does not stand still", func() error {
					sent, began := w.sent(), time.Now()
					answered, repeated := ask()
					switch {
					case old && time.Since(began) >= lab.FirstTimeout:
						return errors.New("it took as long as if a packet was lost")
					case !answered || w.sent() < sent+2 || old && repeated != 0 || !old && repeated != w.sent()-sent-1:
						t.Errorf("answered: %t; %d SYNs, of which %d because one was lost", answered, w.sent()-sent, repeated)
					}
					return nil
				})
			})
		}
	}
}

// TestErrorAfterTheHandshake: an ICMP error for a packet of a connection that is established ends nothing, whatever Go's dialer returns.
func TestErrorAfterTheHandshake(t *testing.T) {
	const patience = 30 * time.Second // for an answer that is to come
	to := netip.MustParseAddrPort("192.0.2.2:80")
	w := newSYNWire(t, to, isRefused)
	lab.Eventually(t, "Go's dialer returns the error", func() error {
		if r := w.client.Ask(lab.Question{Protocol: lab.TCP, To: to, Patience: patience}); r.Outcome != lab.Answered {
			t.Errorf("a connection of lab is %s", r)
		}
		c := &Client{Patience: patience, KernelPorts: true, Do: w.client.Do, Answer: FirstLine}
		if a := c.Connect(To(to)); a.Outcome != Answered {
			t.Errorf("a connection of rate is %+v", a)
		}
		conn, err := w.client.DialContext(t.Context(), "tcp", to.String())
		if err == nil {
			return errors.Join(errors.New("it was faster than the error"), conn.Close())
		}
		if !errors.Is(err, unix.EHOSTUNREACH) {
			t.Error(err)
		}
		return nil
	})
}

// synWire is a wire between a client and a server, on which something happens to the first packets of each connection.
type synWire struct {
	client             *lab.Namespace
	toClient, toServer *os.File
	first              first

	mu   sync.Mutex
	syns map[uint16]int // by the client's port
}

// first is what becomes of the first packets of each connection.
type first int

const (
	isLost    first = iota // the SYN does not arrive
	isOld                  // the server answers the SYN as if it was a packet of an old connection
	isRefused              // an ICMP error answers the end of the handshake
)

func newSYNWire(t *testing.T, to netip.AddrPort, becomes first) *synWire {
	t.Helper()
	end := func(address netip.Addr) (*lab.Namespace, *os.File) {
		n := &lab.Namespace{Namespace: netns.New(t)}
		tun, err := n.TUN("wire")
		lab.Must(t, err)
		t.Cleanup(func() { _ = tun.Close() })
		lab.Must(t, errors.Join(n.SetUp("wire"), n.AddAddress("wire", netip.PrefixFrom(address, 24))))
		return n, tun
	}
	w := &synWire{first: becomes, syns: map[uint16]int{}}
	var server *lab.Namespace
	w.client, w.toClient = end(to.Addr().Prev())
	server, w.toServer = end(to.Addr())
	server.MustDo(t, func() error {
		l, err := net.Listen("tcp", to.String())
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
			go lab.Accept(l, "server", to.Port())
		}
		return err
	})
	go w.carry(w.toClient, w.fromClient)
	go w.carry(w.toServer, w.fromServer)
	return w
}

// carry hands over the packets that come from an end.
func (w *synWire) carry(from *os.File, handOver func([]byte)) {
	for buf := make([]byte, 1<<16); ; {
		n, err := from.Read(buf)
		if err != nil {
			return // closed
		}
		if p := buf[:n]; len(p) >= 40 && p[0] == 0x45 && p[9] == byte(lab.TCP) {
			handOver(p)
		}
	}
}

const flags, syn, ack = 33, 2, 16 // where an IPv4 packet without options has the flags of TCP

func (w *synWire) fromClient(p []byte) {
	if p[flags] == syn && w.count(p) == 1 && w.first != isRefused {
		if w.first == isOld {
			_, _ = w.toClient.Write(oldACK(p))
		}
		return
	}
	_, _ = w.toServer.Write(p)
}

func (w *synWire) fromServer(p []byte) {
	_, _ = w.toClient.Write(p)
	if p[flags] == syn|ack && w.first == isRefused {
		_, _ = w.toClient.Write(unreachable(p))
	}
}

func (w *synWire) count(p []byte) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	port := binary.BigEndian.Uint16(p[20:])
	w.syns[port]++
	return w.syns[port]
}

// sent is how many SYNs the client has sent.
func (w *synWire) sent() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, of := range w.syns {
		n += of
	}
	return n
}

// oldACK returns the answer to a SYN of a server that took it for a packet of an old connection. Its checksums are those of the SYN.
func oldACK(p []byte) []byte {
	a := slices.Concat(p[:12], p[16:20], p[12:16], p[22:24], p[20:22], p[24:])
	a[flags] = ack
	const window = flags + 1
	binary.BigEndian.PutUint16(a[window:], binary.BigEndian.Uint16(a[window:])-(ack-syn))
	return a
}

// unreachable returns the answer to the client's packet after a SYN-ACK: the host is unreachable.
func unreachable(p []byte) []byte {
	const header, quoted, reason = 20, 28, 1
	e := make([]byte, header+8+quoted)
	inner := e[header+8:]
	for i, h := range [][]byte{e, inner} {
		h[0], h[8], h[9] = 0x45, 64, [2]byte{unix.IPPROTO_ICMP, byte(lab.TCP)}[i]
		binary.BigEndian.PutUint16(h[2:], uint16([2]int{len(e), 2 * header}[i]))
	}
	copy(e[12:], p[12:20])
	copy(inner[12:], slices.Concat(p[16:20], p[12:16], p[22:24], p[20:22], p[28:32]))
	e[header], e[header+1] = 3, reason
	binary.BigEndian.PutUint16(e[header+2:], checksum(e[header:]))
	binary.BigEndian.PutUint16(e[10:], checksum(e[:header]))
	return e
}

func checksum(b []byte) uint16 {
	sum := 0
	for ; len(b) > 0; b = b[2:] {
		sum += int(binary.BigEndian.Uint16(b))
	}
	return ^uint16(sum % 0xffff)
}
