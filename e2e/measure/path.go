package measure

import (
	"errors"
	"fmt"
	"net/netip"
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
	Node           *lab.Namespace
	client, server *lab.Namespace
}

// ClientRange holds the clients of paths.
const ClientRange = "10.250.0.0/24"

// NodeAddress is the node's address on the side of the client.
const NodeAddress = "10.250.0.1"

// ServerPort is the port at which the server of a path listens, on all its addresses.
const ServerPort = 8080

// Server is one of 250 addresses of the server.
func Server(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 251, 1, byte(1 + i%250)}) }

// NewPath builds a path; its node has no rules yet.
func NewPath(name string) (*Path, error) {
	p := &Path{}
	for what, n := range map[string]**lab.Namespace{"client": &p.client, "node": &p.Node, "server": &p.server} {
		made, err := lab.NewNamespace(name + "-" + what)
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		*n = made
	}
	if err := p.connect(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Path) connect() error {
	return errors.Join(
		Link(p.client, p.Node, "to-client", "10.250.0.2/24", NodeAddress+"/24"),
		Link(p.server, p.Node, "to-server", "10.251.0.2/24", "10.251.0.1/24"),
		p.Node.Sysctl("net.ipv4.ip_forward=1"),
		p.client.Sysctl("net.ipv4.ip_local_port_range=1024 65535"),
		Route(p.client, "0.0.0.0/0", NodeAddress),
		Route(p.server, "0.0.0.0/0", "10.251.0.1"),
		Route(p.Node, "10.251.1.0/24", "10.251.0.2"),
		p.server.Own(netip.MustParsePrefix("10.251.1.0/24")),
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

// Close removes the path.
func (p *Path) Close() error {
	var errs []error
	for _, n := range []*lab.Namespace{p.client, p.Node, p.server} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}

// Dialer opens TCP connections over a path and closes them at once. Client and server are one thread. With virtual
// links the whole handshake happens inside the system calls of that thread, on one core. It never waits for the
// scheduler; on a small machine that wait is several times as long as the handshake.
type Dialer struct {
	listener int
	clients  *lab.Namespace
}

// NewDialer starts listening.
func (p *Path) NewDialer() (*Dialer, error) {
	d := &Dialer{clients: p.client}
	err := p.server.Do(func() (err error) {
		d.listener, err = listen()
		return err
	})
	return d, err
}

func listen() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open the server's socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: ServerPort}); err != nil {
		return 0, errors.Join(fmt.Errorf("bind the server's socket: %w", err), unix.Close(fd))
	}
	if err := unix.Listen(fd, 128); err != nil {
		return 0, errors.Join(fmt.Errorf("listen: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// Close stops listening.
func (d *Dialer) Close() error { return unix.Close(d.listener) }

// Connections is a run of connections: the duration of each handshake and of the whole run.
type Connections struct {
	Handshakes Sample
	Elapsed    time.Duration
}

// Rate is in connections per second.
func (c *Connections) Rate() float64 {
	if c.Elapsed == 0 {
		return 0
	}
	return float64(len(c.Handshakes)) / c.Elapsed.Seconds()
}

// Add joins two runs.
func (c *Connections) Add(o Connections) {
	c.Handshakes, c.Elapsed = append(c.Handshakes, o.Handshakes...), c.Elapsed+o.Elapsed
}

// Dial opens and closes n connections to an address, one after the other.
func (d *Dialer) Dial(to netip.AddrPort, n int) (Connections, error) {
	c := Connections{Handshakes: make(Sample, 0, n)}
	err := d.clients.Do(func() error {
		start := time.Now()
		for range n {
			took, err := d.dialOnce(to)
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

func (d *Dialer) dialOnce(to netip.AddrPort) (took time.Duration, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	took = time.Since(start)
	peer, _, err := unix.Accept4(d.listener, unix.SOCK_CLOEXEC)
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	// A reset instead of an orderly end: no connection stays in TIME_WAIT, and the ports do not run out.
	err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	return took, errors.Join(err, unix.Close(fd), unix.Close(peer))
}
