package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Flow is an open connection. In UDP and SCTP it is a socket that keeps its address and port.
type Flow struct {
	Client   netip.Addr // the address that the client uses
	conn     net.Conn
	protocol Protocol
	from, to uint16 // ports of SCTP; from is 0 if each question has another one
}

// Open connects from the namespace of the calling thread. Any thread may use the flow afterwards.
func Open(q Question) (*Flow, error) {
	f, _, err := open(q)
	return f, err
}

// open also returns how many packets the client has sent again, even if the connection could not be made.
func open(q Question) (f *Flow, repeated int, err error) {
	ctx, cancel := context.Background(), func() {}
	if q.Protocol.serverSpeaksFirst() { // the others send nothing yet
		ctx, cancel = waiting(q.Patience)
	}
	defer cancel()
	conn, repeated, err := dial(ctx, q)
	if err != nil {
		return nil, repeated, err
	}
	f = &Flow{Client: addrOf(conn.LocalAddr()), conn: conn, protocol: q.Protocol, from: uint16(q.Ports.draw()), to: q.To.Port()}
	if err := f.reportErrors(); err != nil {
		f.Close()
		return nil, repeated, err
	}
	return f, repeated, nil
}

// waiting returns a context for an answer that a client waits for. It ends after 20 ticks: a machine that stands still for
// seconds must not look like a lost packet, and uses up two ticks at most.
func waiting(patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		ticks := time.NewTicker(max(patience/20, 1))
		defer ticks.Stop()
		for range 20 {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
		}
	}()
	return ctx, cancel
}

func dial(ctx context.Context, q Question) (conn net.Conn, repeated int, err error) {
	if q.Protocol == KernelSCTP {
		conn, err = dialKernelSCTP(ctx, q)
		return conn, 0, err
	}
	for range 100 { // another socket may have the port, or a connection from it to this server
		if conn, repeated, err = dialFrom(ctx, q, q.Ports.draw()); !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.EADDRNOTAVAIL) {
			break
		}
	}
	return conn, repeated, err
}

// draw returns one of the ports; 0: the kernel chooses. The socket is bound to it: the option IP_LOCAL_PORT_RANGE takes only
// ports of the sysctl ip_local_port_range, and ignores others without an error.
func (r PortRange) draw() int { return int(r.Low) + rand.IntN(int(r.High-r.Low)+1) }

func dialFrom(ctx context.Context, q Question, port int) (conn net.Conn, repeated int, err error) {
	d := net.Dialer{KeepAlive: -1, Control: func(_, _ string, socket syscall.RawConn) error {
		return control(socket, func(fd int) error {
			if q.Protocol != TCP || port == 0 {
				return nil
			}
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // one port for connections to several servers
		})
	}}
	network, to := q.Protocol.String(), q.To.String()
	if q.Protocol == SCTP {
		network, to = rawSCTP, q.To.Addr().String()
	}
	switch own := q.From.AsSlice(); {
	case own == nil && port == 0: // the kernel chooses when it connects
	case q.Protocol == TCP:
		d.LocalAddr = &net.TCPAddr{IP: own, Port: port}
	case q.Protocol == UDP:
		d.LocalAddr = &net.UDPAddr{IP: own, Port: port}
	default:
		d.LocalAddr = &net.IPAddr{IP: own}
	}
	began := time.Now()
	conn, err = dialThen(ctx, &d, network, to, func(fd int) {
		if q.Protocol == TCP && time.Since(began) >= FirstTimeout {
			repeated, _ = retransmits(fd) // on an open socket it cannot fail
		}
	})
	return conn, repeated, err
}

// Dial connects as the dialer does, but returns a connection that was made although an ICMP error came to one of its packets, such as
// the end of its handshake. That ends no connection, but the kernel reports it to whoever asks how the handshake ended (SO_ERROR).
func Dial(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	return dialThen(ctx, d, network, address, func(int) {})
}

// dialThen also calls a function with a descriptor of the socket, whether there is a connection or not.
func dialThen(ctx context.Context, d *net.Dialer, network, address string, then func(fd int)) (net.Conn, error) {
	again, before := -1, d.Control // a second descriptor: the dialer closes the first one after an error
	d.FallbackDelay = -1           // one socket at a time
	d.Control = func(network, address string, socket syscall.RawConn) error {
		if again >= 0 {
			_ = unix.Close(again)
		}
		err := control(socket, func(fd int) (err error) {
			again, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			return err
		})
		if err == nil && before != nil {
			err = before(network, address, socket)
		}
		return err
	}
	conn, err := d.DialContext(ctx, network, address)
	if again < 0 {
		return conn, err
	}
	then(again)
	if o := OutcomeOf(err); o != Unreachable && o != Refused || !strings.HasPrefix(network, "tcp") || !handshakeOver(again) {
		_ = unix.Close(again)
		return conn, err
	}
	file := os.NewFile(uintptr(again), address)
	defer file.Close()
	return net.FileConn(file)
}

// handshakeOver reports whether a socket of TCP has or had a connection that the other side has not refused.
func handshakeOver(fd int) bool {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && info.State != unix.BPF_TCP_SYN_SENT && info.State != unix.BPF_TCP_CLOSE
}

// FirstTimeout is a little less than how long a client waits before it sends a SYN again that got lost (TCP_TIMEOUT_INIT, a second). It
// sends one again earlier, after two ticks, if the server took it for a packet of an old connection in TIME_WAIT, from another client
// that had the same masqueraded port: the server answers with an ACK, and the client resets that. So no packet was lost.
const FirstTimeout = 900 * time.Millisecond

// control calls fn with the descriptor of a socket.
func control(socket syscall.RawConn, fn func(fd int) error) error {
	var err error
	closed := socket.Control(func(fd uintptr) { err = fn(int(fd)) })
	return errors.Join(closed, err)
}

// reportErrors has the socket of a protocol without connections also report soft ICMP errors ("host unreachable"). It must be
// connected: a raw socket without a destination would report those of every other client in the namespace.
func (f *Flow) reportErrors() error {
	if f.protocol.serverSpeaksFirst() {
		return nil
	}
	level, name := unix.IPPROTO_IP, unix.IP_RECVERR
	if FamilyOf(f.Client) == IPv6 {
		level, name = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	socket, err := f.conn.(syscall.Conn).SyscallConn()
	if err == nil {
		err = control(socket, func(fd int) error { return unix.SetsockoptInt(fd, level, name, 1) })
	}
	if err != nil {
		return fmt.Errorf("ask for ICMP errors: %w", err)
	}
	return nil
}

// Retransmits is how many packets of a TCP connection its client has sent again because they were lost. The kernel sends the first
// packet again after a second.
func (f *Flow) Retransmits() (int, error) { return Retransmits(f.conn) }

// Retransmits is how many packets of a TCP connection this side has sent again because they were lost; 0 for another protocol. One
// that was only late, on a busy machine, does not count: the other side has said that it got it twice (DSACK).
func Retransmits(conn net.Conn) (n int, err error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return 0, nil
	}
	socket, err := tcp.SyscallConn()
	if err == nil {
		err = control(socket, func(fd int) (err error) {
			n, err = retransmits(fd)
			return err
		})
	}
	return n, err
}

func retransmits(fd int) (int, error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, fmt.Errorf("ask how many packets were sent again: %w", err)
	}
	return int(info.Total_retrans) - int(info.Dsack_dups), nil
}

// Send asks again over the open flow and waits for the answer.
func (f *Flow) Send(patience time.Duration) Result { return f.exchange(patience, true) }

// Receive waits for the first answer of a TCP server, which needs no question.
func (f *Flow) Receive(patience time.Duration) Result { return f.exchange(patience, false) }

func (f *Flow) exchange(patience time.Duration, ask bool) Result {
	ctx, cancel := waiting(patience)
	defer cancel()
	line, err := f.line(ctx, ask)
	if err != nil {
		return resultOf(err)
	}
	answer, err := parseAnswer(line)
	if err != nil {
		return resultOf(err)
	}
	return Result{Outcome: Answered, Answer: answer, Client: f.Client}
}

func (f *Flow) line(ctx context.Context, ask bool) ([]byte, error) {
	if err := f.conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	defer interrupt(ctx, f.conn)()
	request, question := newInit(f.to), []byte("?\n")
	request.Sport = cmp.Or(f.from, request.Sport)
	if f.protocol == SCTP {
		question = request.encode()
	}
	if ask {
		if _, err := f.conn.Write(question); err != nil && !errors.Is(err, unix.EPERM) {
			return nil, err
		}
		// EPERM: the rules of the client's own node dropped the packet. If they refused it, an ICMP error follows.
	}
	if f.protocol == SCTP {
		return request.answer(f.conn.(*net.IPConn))
	}
	buf := make([]byte, 200)
	n, err := f.conn.Read(buf)
	return buf[:n], err // answers are short and come in one piece
}

// Close ends a connection by a reset, so that it does not stay in TIME_WAIT and ports do not run out. Further calls do
// nothing.
func (f *Flow) Close() {
	// Both can only fail on a closed socket.
	if tcp, ok := f.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = f.conn.Close()
}

// QueueDrops is how many packets the machine has dropped since its start because the queue of a processor was full. All network
// namespaces share these queues (net.core.netdev_max_backlog): a flood in one takes packets of the others.
func QueueDrops() (n int, err error) {
	const file = "/proc/net/softnet_stat"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var passed, dropped int
		if _, err := fmt.Sscanf(line, "%x %x", &passed, &dropped); err != nil {
			return 0, fmt.Errorf("read %s: %w", file, err)
		}
		n += dropped
	}
	return n, nil
}
