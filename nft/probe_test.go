package nft

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The ports at which every pod answers; each counts as an endpoint.
const (
	firstPodPort = 8080
	podPorts     = 32
)

// answer is what a pod says: who it is, at which port it was reached, and which source it saw.
type answer struct {
	pod    string
	port   uint16
	source netip.Addr
}

func (a answer) encode() []byte { return fmt.Appendf(nil, "%s %d %s", a.pod, a.port, a.source) }

func decodeAnswer(b []byte) (answer, error) {
	var a answer
	var source string
	if _, err := fmt.Sscan(string(b), &a.pod, &a.port, &source); err != nil {
		return a, fmt.Errorf("answer %q: %w", b, err)
	}
	var err error
	a.source, err = netip.ParseAddr(source)
	return a, err
}

// serve answers on all pod ports in all protocols and both families.
func (n *namespace) serve(t testing.TB, name string) {
	t.Helper()
	for port := uint16(firstPodPort); port < firstPodPort+podPorts; port++ {
		n.serveTCP(t, name, port)
		n.serveUDP(t, name, port)
	}
	for _, f := range Families() {
		n.serveSCTP(t, name, f)
	}
}

func (n *namespace) serveTCP(t testing.TB, name string, port uint16) {
	t.Helper()
	var l net.Listener
	n.Do(t, func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
		return err
	})
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			source := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
			_, _ = c.Write(answer{name, port, source}.encode()) // a client that does not get it complains
			c.Close()
		}
	}()
}

func (n *namespace) serveUDP(t testing.TB, name string, port uint16) {
	t.Helper()
	var c *net.UDPConn
	n.Do(t, func() (err error) {
		c, err = net.ListenUDP("udp", &net.UDPAddr{Port: int(port)})
		return err
	})
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteToUDPAddrPort(answer{name, port, from.Addr().Unmap()}.encode(), from)
		}
	}()
}

// What can become of a connection, other than an answer.
var (
	errRefused = errors.New("refused")
	errDenied  = errors.New("denied by the own kernel")
	errSilence = errors.New("no answer")
)

// patience is how long a probe waits: long for what has to come, short to see that nothing comes.
const (
	patient   = 5 * time.Second
	impatient = 250 * time.Millisecond
)

// ask makes a connection from an address of the namespace (the zero Addr: the kernel chooses) and returns the answer.
func (n *namespace) ask(protocol uint8, from netip.Addr, to netip.AddrPort, patience time.Duration) (a answer, err error) {
	err = n.Run(func() (err error) {
		a, err = ask(protocol, from, to, patience)
		return err
	})
	return a, err
}

// ask is for use inside a namespace.
func ask(protocol uint8, from netip.Addr, to netip.AddrPort, patience time.Duration) (answer, error) {
	var b []byte
	var err error
	switch protocol {
	case tcp:
		b, err = askTCP(from, to, patience)
	case udp:
		b, err = askUDP(from, to, patience)
	case sctp:
		b, err = askSCTP(from, to, patience)
	}
	var timeout net.Error
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return answer{}, errRefused
	case errors.Is(err, unix.EPERM):
		return answer{}, errDenied
	case errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, unix.EAGAIN):
		return answer{}, errSilence
	case err != nil:
		return answer{}, err
	}
	return decodeAnswer(b)
}

func askTCP(from netip.Addr, to netip.AddrPort, patience time.Duration) ([]byte, error) {
	d := net.Dialer{Timeout: patience}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	c, err := d.DialContext(context.Background(), "tcp", to.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	return io.ReadAll(c)
}

func askUDP(from netip.Addr, to netip.AddrPort, patience time.Duration) ([]byte, error) {
	var local *net.UDPAddr
	if from.IsValid() {
		local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	c, err := net.DialUDP("udp", local, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := c.Write([]byte("who are you?")); err != nil {
		return nil, err
	}
	buf := make([]byte, 100)
	size, err := c.Read(buf)
	return buf[:size], err
}

func protocolName(p uint8) string { return strings.ToUpper(printProto([]byte{p})) }
