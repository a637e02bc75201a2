package prober

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// maxAnswer is how many bytes a question reads. A TLS handshake has 2,000 to 6,000.
const maxAnswer = 64 << 10

// maxPieces is how often a question reads. A TLS handshake reads five times. An answer that comes byte by byte would cost a
// hundred times its share.
const maxPieces = 64

// errTooLong ends an answer that goes on and on.
const errTooLong = answerError("the answer is too long")

// conn is the socket of a question. It does what a net.Dialer does with a third less work: a node makes up to thousands of
// connections a second for its checks. It is a net.Conn for crypto/tls.
type conn struct {
	*os.File
	forget func(conntrack.Query)
	stop   func() bool // the wait for the end of the context
	flow   conntrack.Query
	read   int  // bytes
	pieces int  // how often something was read
	late   bool // a datagram may come when nobody waits for it any more
}

// open connects to an endpoint. The caller closes the connection.
func (a *Asker) open(ctx context.Context, t probe.Target, deadline time.Time) (*conn, error) {
	kind, protocol := unix.SOCK_STREAM, uint8(unix.IPPROTO_TCP)
	if t.Protocol == state.UDP {
		kind, protocol = unix.SOCK_DGRAM, unix.IPPROTO_UDP
	}
	family, to := sockaddr(t.At)
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, ownError{os.NewSyscallError("socket", err)}
	}
	if protocol == unix.IPPROTO_TCP {
		// A connection that is closed ends with a reset, and leaves no TIME_WAIT behind.
		err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	if err == nil {
		err = hearErrors(fd, family)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, ownError{os.NewSyscallError("setsockopt", err)}
	}
	if err = unix.Connect(fd, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	c := &conn{
		forget: a.forget, flow: conntrack.Query{Protocol: protocol, Dst: t.At},
		File: os.NewFile(uintptr(fd), "socket"), // after Connect: a socket that was never connected is writable, too
	}
	c.flow.Src, c.flow.SrcPort = ownAddr(fd)
	if deadlineErr := c.SetDeadline(deadline); deadlineErr != nil { // nobody would hear an answer
		err = ownError{deadlineErr}
	}
	c.stop = context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // fails only after close
	if errors.Is(err, unix.EINPROGRESS) {
		err = c.connected(to)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func sockaddr(at netip.AddrPort) (family int, to unix.Sockaddr) {
	if at.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
}

// ownAddr returns the address that the kernel chose for a socket. Its port is 0 if a reset has ended the connection: the
// kernel has forgotten the flow by itself then.
func ownAddr(fd int) (netip.Addr, uint16) {
	own, err := unix.Getsockname(fd)
	if err != nil {
		return netip.Addr{}, 0
	}
	switch own := own.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(own.Addr), uint16(own.Port)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(own.Addr), uint16(own.Port)
	}
	return netip.Addr{}, 0
}

// hearErrors has the kernel keep ICMP errors. Those that arrive while it is still in connect, as errors of this node itself do,
// would not end the connection otherwise: it sends another packet after a second.
func hearErrors(fd, family int) error {
	if family == unix.AF_INET6 {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
}

// icmpError returns the error that the kernel has kept; EALREADY: there is none.
func icmpError(fd int) error {
	var control [128]byte
	_, n, _, _, err := unix.Recvmsg(fd, make([]byte, 1), control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		return unix.EALREADY
	}
	list, err := unix.ParseSocketControlMessage(control[:n])
	for i := range list {
		if data := list[i].Data; err == nil && len(data) >= 4 { // struct sock_extended_err begins with the error
			return unix.Errno(binary.NativeEndian.Uint32(data))
		}
	}
	return unix.EALREADY
}

// connected waits until a connection exists. To connect once more returns how far the first time came.
func (c *conn) connected(to unix.Sockaddr) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	ended := func(fd uintptr) bool {
		if err = unix.Connect(int(fd), to); errors.Is(err, unix.EALREADY) {
			err = icmpError(int(fd))
		}
		return !errors.Is(err, unix.EALREADY) && !errors.Is(err, unix.EINTR)
	}
	waitErr := raw.Write(ended)
	// An answer that is there counts, also if this process comes late to look.
	if waitErr != nil && (raw.Control(func(fd uintptr) { ended(fd) }) != nil || errors.Is(err, unix.EALREADY)) {
		return waitErr
	}
	switch {
	case err == nil, errors.Is(err, unix.EISCONN), errors.Is(err, unix.ECONNRESET): // the last one was accepted before
		return nil
	}
	return os.NewSyscallError("connect", err)
}

// close closes the socket, and has its flow forgotten.
func (c *conn) close() {
	c.stop()
	_ = c.Close() // the answer is known
	if c.flow.SrcPort == 0 {
		return
	}
	c.forget(c.flow)
	if f := c.flow; c.late {
		back := conntrack.Query{Protocol: f.Protocol, Src: f.Dst.Addr(), SrcPort: f.Dst.Port(), Dst: netip.AddrPortFrom(f.Src, f.SrcPort)}
		time.AfterFunc(late, func() { c.forget(back) })
	}
}

// late is when the flow is forgotten that begins with a datagram that comes too late. Later ones are the endpoint's own: it
// could as well send datagrams that nobody asked for.
const late = 500 * time.Millisecond

// Read reads a part of the answer.
func (c *conn) Read(b []byte) (int, error) {
	if c.pieces++; c.read >= maxAnswer || c.pieces > maxPieces {
		return 0, errTooLong
	}
	n, err := c.File.Read(b[:min(len(b), maxAnswer-c.read)])
	c.read += n
	return n, err
}

// LocalAddr is for net.Conn.
func (c *conn) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.flow.Src, c.flow.SrcPort))
}

// RemoteAddr is for net.Conn.
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.flow.Dst) }
