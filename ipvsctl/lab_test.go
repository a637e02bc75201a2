//go:build ipvs

package ipvsctl

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lab is a node with IPVS between clients and pods, each in a network namespace. The node's namespace has an engine.
type lab struct {
	node, clients, pods *namespace
	options             Options
	engine              *Engine
	mu                  sync.Mutex
	next                int // of the frontends handed out
}

const (
	podCount    = 4
	clientCount = 40
	podPort     = 8080
)

func newLab(t testing.TB) *lab {
	t.Helper()
	l := &lab{node: newNamespace(t), clients: newNamespace(t), pods: newNamespace(t)}
	l.connect(t, l.clients, "client", "1", clientCount)
	l.connect(t, l.pods, "pod", "2", podCount)
	l.node.Must(t, "", "sh", "-c", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	l.options = Options{NetNS: l.node.Fd(), GracefulPeriod: period}
	l.open(t)
	l.node.Do(t, func() error { _, err := SetSysctls(ProcSys, Sysctls(false)); return err })
	for i := range podCount {
		for _, family := range []string{"v4", "v6"} {
			for _, p := range []Protocol{TCP, UDP, SCTP} {
				l.serve(t, i, family, p)
			}
		}
	}
	return l
}

// open starts an engine, as a restarted process would; the previous one, if any, is closed.
func (l *lab) open(t testing.TB) *Engine {
	t.Helper()
	if l.engine != nil {
		l.engine.Close()
	}
	e, err := Open(l.options)
	must(t, err)
	l.engine = e
	return e
}

// connect joins a namespace to the node. Duplicate address detection would delay the first connections.
func (l *lab) connect(t testing.TB, ns *namespace, name, net string, hosts int) {
	t.Helper()
	var batch strings.Builder // one process: starting one is what takes time in an emulated machine
	fmt.Fprintf(&batch, "link add %s type veth peer name eth0 netns /proc/%d/fd/%d\n", name, os.Getpid(), ns.Fd())
	fmt.Fprintf(&batch, "addr add 10.%s.0.1/16 dev %s\naddr add fd0%s::1/64 dev %s nodad\nlink set %s up\n", net, name, net, name, name)
	l.node.Must(t, batch.String(), "ip", "-batch", "-")
	batch.Reset()
	for i := range hosts {
		fmt.Fprintf(&batch, "addr add 10.%s.1.%d/16 dev eth0\naddr add fd0%s::1:%x/64 dev eth0 nodad\n", net, i, net, i)
	}
	fmt.Fprintf(&batch, "link set eth0 up\nroute add default via 10.%s.0.1\nroute add default via fd0%s::1\n", net, net)
	ns.Must(t, batch.String(), "ip", "-batch", "-")
}

func host(net int, family string, i int) netip.Addr {
	if family == "v6" {
		return netip.MustParseAddr(fmt.Sprintf("fd0%d::1:%x", net, i))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.%d.1.%d", net, i))
}

func client(family string, i int) netip.Addr { return host(1, family, i) }

// pod is the real server of pod i.
func pod(family string, i int, weight uint16) RealServer {
	return RealServer{Addr: netip.AddrPortFrom(host(2, family, i), podPort), Weight: weight}
}

// frontend is a virtual server that no test has used before: connections outlive virtual servers.
func (l *lab) frontend(family string, p Protocol, scheduler string, weights ...uint16) VirtualServer {
	l.mu.Lock()
	l.next++
	addr := netip.MustParseAddr(fmt.Sprintf("10.96.%d.1", l.next))
	if family == "v6" {
		addr = netip.MustParseAddr(fmt.Sprintf("fd96::%x", l.next))
	}
	l.mu.Unlock()
	v := VirtualServer{Key: Key{Addr: addr, Port: 80, Protocol: p}, Scheduler: scheduler, Local: true}
	for i, w := range weights {
		v.RealServers = append(v.RealServers, pod(family, i, w))
	}
	return v
}

// apply sets one service port and brings it to the kernel.
func (l *lab) apply(t testing.TB, servers ...VirtualServer) {
	t.Helper()
	mustSet(t, l.engine, servers[0].String(), servers...)
	pass(t, l.engine, start())
}

// clear removes everything that a test has made.
func (l *lab) clear(t testing.TB) {
	t.Helper()
	e, err := openEngine(Options{}, l.engine.kernel) // a restart, with nothing wanted and no time to drain
	must(t, err)
	pass(t, e, start())
	l.open(t)
	expect(t, "left in the kernel", picture(t, l.engine.kernel), "")
}

// serve answers each line with the pod's number, for as long as the client likes.
func (l *lab) serve(t testing.TB, i int, family string, p Protocol) {
	t.Helper()
	at := pod(family, i, 1).Addr
	l.pods.Do(t, func() error {
		switch p {
		case UDP:
			c, err := net.ListenPacket("udp", at.String())
			if err != nil {
				return err
			}
			t.Cleanup(func() { c.Close() })
			go echoPackets(c, i)
		default:
			accept, closer, err := listen(at, p)
			if err != nil {
				return fmt.Errorf("listen on %s/%s: %w", at, p, err)
			}
			t.Cleanup(func() { closer.Close() })
			go acceptAll(accept, i)
		}
		return nil
	})
}

func echoPackets(c net.PacketConn, i int) {
	buf := make([]byte, 100)
	for {
		_, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(fmt.Appendf(nil, "%d\n", i), from)
	}
}

func acceptAll(accept func() (io.ReadWriteCloser, error), i int) {
	for {
		c, err := accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for lines := bufio.NewScanner(c); lines.Scan(); {
				if _, err := fmt.Fprintln(c, i); err != nil {
					return
				}
			}
		}()
	}
}

func listen(at netip.AddrPort, p Protocol) (accept func() (io.ReadWriteCloser, error), closer io.Closer, err error) {
	if p == SCTP {
		return listenSCTP(at)
	}
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		return nil, nil, err
	}
	return func() (io.ReadWriteCloser, error) { return l.Accept() }, l, nil
}

// link is a connection of a client.
type link struct {
	conn interface {
		io.ReadWriteCloser
		SetReadDeadline(time.Time) error
	}
	lines *bufio.Reader
}

// ask says which pod answers.
func (l *link) ask() (int, error) {
	_ = l.conn.SetReadDeadline(time.Now().Add(3 * time.Second))
	if _, err := fmt.Fprintln(l.conn, "?"); err != nil {
		return 0, err
	}
	line, err := l.lines.ReadString('\n')
	if err != nil {
		return 0, err
	}
	var i int
	_, err = fmt.Sscan(line, &i)
	return i, err
}

// call connects from a namespace and a source address to a frontend, and asks which pod it got.
func call(ns *namespace, from netip.Addr, to Key) (c *link, got int, err error) {
	err = ns.Run(func() error {
		c, err = connect(from, to)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	got, err = c.ask()
	if err != nil {
		c.conn.Close()
	}
	return c, got, err
}

func connect(from netip.Addr, to Key) (*link, error) {
	at := netip.AddrPortFrom(to.Addr, to.Port)
	if to.Protocol == SCTP {
		f, err := dialSCTP(from, at)
		if err != nil {
			return nil, err
		}
		return &link{f, bufio.NewReader(f)}, nil
	}
	d := net.Dialer{Timeout: 3 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	if to.Protocol == UDP {
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	c, err := d.Dial(to.Protocol.String(), at.String())
	if err != nil {
		return nil, err
	}
	return &link{c.(interface {
		io.ReadWriteCloser
		SetReadDeadline(time.Time) error
	}), bufio.NewReader(c)}, nil
}

// once connects, asks and hangs up.
func (l *lab) once(t testing.TB, from netip.Addr, v *VirtualServer) int {
	t.Helper()
	c, got, err := call(l.clients, from, v.Key)
	if err != nil {
		t.Fatalf("connect from %s to %s: %v", from, v.Key, err)
	}
	c.conn.Close()
	return got
}

// held connects and asks; the connection stays until the test ends.
func (l *lab) held(t testing.TB, from netip.Addr, v *VirtualServer) (*link, int) {
	t.Helper()
	c, got, err := call(l.clients, from, v.Key)
	if err != nil {
		t.Fatalf("connect from %s to %s: %v", from, v.Key, err)
	}
	t.Cleanup(func() { c.conn.Close() })
	return c, got
}

// spread counts which pods answer n connections of one client.
func (l *lab) spread(t testing.TB, v *VirtualServer, n int) [podCount]int {
	t.Helper()
	var counts [podCount]int
	for range n {
		counts[l.once(t, client(familyOf(v), 0), v)]++
	}
	return counts
}

// byClient says which pod each client gets.
func (l *lab) byClient(t testing.TB, v *VirtualServer) [clientCount]int {
	t.Helper()
	var got [clientCount]int
	for i := range got {
		got[i] = l.once(t, client(familyOf(v), i), v)
	}
	return got
}

func familyOf(v *VirtualServer) string {
	if v.Addr.Is6() {
		return "v6"
	}
	return "v4"
}

// Go's net package has no SCTP.

func socketSCTP(at netip.AddrPort) (*os.File, syscall.RawConn, error) {
	family := unix.AF_INET
	if at.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return nil, nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), "sctp")
	raw, err := f.SyscallConn()
	if err == nil {
		err = unix.Bind(fd, sockaddr(at))
	}
	return f, raw, err
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
}

func listenSCTP(at netip.AddrPort) (func() (io.ReadWriteCloser, error), io.Closer, error) {
	f, raw, err := socketSCTP(at)
	if err != nil {
		return nil, nil, err
	}
	control := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 64) })
	accept := func() (io.ReadWriteCloser, error) {
		var conn int
		var err error
		waited := raw.Read(func(fd uintptr) bool {
			conn, _, err = unix.Accept4(int(fd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			return !errors.Is(err, unix.EAGAIN)
		})
		if err := errors.Join(waited, err); err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(conn), "sctp"), nil
	}
	return accept, f, errors.Join(control, err)
}

func dialSCTP(from netip.Addr, to netip.AddrPort) (*os.File, error) {
	f, raw, err := socketSCTP(netip.AddrPortFrom(from, 0))
	if err != nil {
		return nil, err
	}
	_ = f.SetWriteDeadline(time.Now().Add(3 * time.Second))
	started := false
	waited := raw.Write(func(fd uintptr) bool {
		if !started {
			started = true
			err = unix.Connect(int(fd), sockaddr(to))
			return !errors.Is(err, unix.EINPROGRESS)
		}
		var code int
		code, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		return true
	})
	if err := errors.Join(waited, err); err != nil {
		f.Close()
		return nil, os.NewSyscallError("connect", err)
	}
	return f, nil
}
