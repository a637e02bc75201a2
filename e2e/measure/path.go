package measure

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

// Path is a client, a node that forwards, and a server, each in a namespace of its own. The cost of the node's rules is
// the difference to a path without rules.
//
//	client 10.250.0.2 -- 10.250.0.1 node 10.251.0.1 -- 10.251.0.2 server, 10.251.1.0/24
type Path struct {
	Node            *lab.Namespace
	Client, Servers *lab.Namespace
	listener        int // of a TCP socket on the server's port
}

// ClientRange holds the clients of paths.
const ClientRange = "10.250.0.0/24"

// NodeAddress is the node's address on the side of the client.
const NodeAddress = "10.250.0.1"

// ServerPort is the port at which the server of a path listens, on all its addresses.
const ServerPort = 8080

// Server is one of 250 addresses of the server.
func Server(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 251, 1, byte(1 + i%250)}) }

// NewPath builds a path, which ends with the benchmark; its node has no rules yet.
func NewPath(tb testing.TB) *Path {
	tb.Helper()
	p := &Path{}
	for _, n := range []**lab.Namespace{&p.Client, &p.Node, &p.Servers} {
		*n = &lab.Namespace{Namespace: netns.New(tb)}
	}
	lab.Must(tb, p.connect(), p.Servers.Do(func() (err error) {
		p.listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return err
	}))
	tb.Cleanup(func() { lab.Must(tb, unix.Close(p.listener)) })
	lab.Must(tb, unix.Bind(p.listener, &unix.SockaddrInet4{Port: ServerPort}), unix.Listen(p.listener, 128))
	return p
}

// Accept accepts and closes connections until EndAccept. Dial accepts its own.
func (p *Path) Accept() {
	for {
		fd, _, err := unix.Accept4(p.listener, unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
			_ = unix.Close(fd)
		case !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNABORTED):
			return
		}
	}
}

// EndAccept ends Accept, and closes the server's port.
func (p *Path) EndAccept() error { return unix.Shutdown(p.listener, unix.SHUT_RD) }

func (p *Path) connect() error {
	return errors.Join(
		Link(p.Client, p.Node, "to-client", "10.250.0.2/24", NodeAddress+"/24"),
		Link(p.Servers, p.Node, "to-server", "10.251.0.2/24", "10.251.0.1/24"),
		p.Node.Sysctl("net.ipv4.ip_forward=1"),
		p.Client.Sysctl("net.ipv4.ip_local_port_range=1024 65535"),
		Route(p.Client, "0.0.0.0/0", NodeAddress),
		Route(p.Servers, "0.0.0.0/0", "10.251.0.1"),
		Route(p.Node, "10.251.1.0/24", "10.251.0.2"),
		p.Servers.Own(netip.MustParsePrefix("10.251.1.0/24")),
	)
}

// Link connects two namespaces by a pair of links of the same name, with an address at each end.
func Link(a, b *lab.Namespace, name, addrA, addrB string) error {
	return errors.Join(
		netns.Connect(a.Namespace, name, b.Namespace, name),
		a.AddAddress(name, netip.MustParsePrefix(addrA)),
		b.AddAddress(name, netip.MustParsePrefix(addrB)),
	)
}

// Route sends a range through a gateway.
func Route(n *lab.Namespace, to, gateway string) error {
	return n.AddRoute(netns.Route{To: netip.MustParsePrefix(to), Gateway: netip.MustParseAddr(gateway)})
}

// Connections is a run of connections: the duration of each handshake and of the whole run.
type Connections struct {
	Handshakes Sample
	Elapsed    time.Duration
}

// Rate is in connections per second.
func (c *Connections) Rate() float64 { return float64(len(c.Handshakes)) / c.Elapsed.Seconds() }

// Dial opens and closes n TCP connections to an address, one after the other. Client and server are one thread. With virtual
// links the whole handshake happens inside the system calls of that thread, on one core. It never waits for the
// scheduler; on a small machine that wait is several times as long as the handshake.
func (p *Path) Dial(to netip.AddrPort, n int) (Connections, error) {
	c := Connections{Handshakes: make(Sample, 0, n)}
	err := p.Client.Do(func() error {
		start := time.Now()
		for range n {
			took, err := p.dialOnce(to)
			if err != nil {
				return fmt.Errorf("connect to %s: %w", to, err)
			}
			c.Handshakes = append(c.Handshakes, took)
		}
		c.Elapsed = time.Since(start)
		return nil
	})
	return c, err
}

func (p *Path) dialOnce(to netip.AddrPort) (took time.Duration, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	took = time.Since(start)
	peer, _, err := unix.Accept4(p.listener, unix.SOCK_CLOEXEC)
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	// A reset instead of an orderly end: no connection stays in TIME_WAIT, and the ports do not run out.
	err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	return took, errors.Join(err, unix.Close(fd), unix.Close(peer))
}
