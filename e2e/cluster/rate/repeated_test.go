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

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

// TestRepeatedSYN: a SYN that was lost counts. One does not that the server took for a packet of an old connection.
func TestRepeatedSYN(t *testing.T) {
	const patience = 30 * time.Second // for an answer that is to come
	to := netip.MustParseAddrPort("192.0.2.2:80")
	for name, old := range map[string]bool{"lost": false, "taken for an old connection's": true} {
		w := newSYNWire(t, to, old)
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

// synWire is a wire between a client and a server, on which the first SYN of each connection does not arrive.
type synWire struct {
	client             *lab.Namespace
	toClient, toServer *os.File
	old                bool // the client gets the answer of a server that took the SYN for a packet of an old connection

	mu   sync.Mutex
	syns map[uint16]int // by the client's port
}

func newSYNWire(t *testing.T, to netip.AddrPort, old bool) *synWire {
	t.Helper()
	end := func(address netip.Addr) (*lab.Namespace, *os.File) {
		n := &lab.Namespace{Namespace: netns.New(t)}
		tun, err := n.TUN("wire")
		lab.Must(t, err)
		t.Cleanup(func() { _ = tun.Close() })
		lab.Must(t, errors.Join(n.SetUp("wire"), n.AddAddress("wire", netip.PrefixFrom(address, 24))))
		return n, tun
	}
	w := &synWire{old: old, syns: map[uint16]int{}}
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
	go w.carry(w.toServer, func(p []byte) { _, _ = w.toClient.Write(p) })
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
	if p[flags] == syn && w.count(p) == 1 {
		if w.old {
			_, _ = w.toClient.Write(oldACK(p))
		}
		return
	}
	_, _ = w.toServer.Write(p)
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
