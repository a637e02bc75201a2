package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Flow is an open connection. In UDP and SCTP it is a socket that keeps its address and port.
type Flow struct {
	Client   netip.Addr // the address that the client uses
	conn     net.Conn
	protocol Protocol
	to       uint16
}

// Open connects from the namespace of the calling thread. Any thread may use the flow afterwards.
func Open(q Question) (*Flow, error) {
	ctx, cancel := waiting(q.Patience)
	defer cancel()
	conn, err := dial(ctx, q)
	if err != nil {
		return nil, err
	}
	f := &Flow{Client: addrOf(conn.LocalAddr()), conn: conn, protocol: q.Protocol, to: q.To.Port()}
	if err := f.reportErrors(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
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

// interrupt ends what waits for a socket when the context ends. The caller calls stop before that.
func interrupt(ctx context.Context, socket interface{ SetDeadline(time.Time) error }) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = socket.SetDeadline(time.Now()) }) // it fails only if the socket is closed
}

func dial(ctx context.Context, q Question) (net.Conn, error) {
	if q.Protocol == KernelSCTP {
		return dialKernelSCTP(ctx, q)
	}
	d := net.Dialer{KeepAlive: -1, Control: func(_, _ string, socket syscall.RawConn) error {
		return control(socket, q.takePort)
	}}
	network, to := q.Protocol.String(), q.To.String()
	if q.Protocol == SCTP {
		network, to = rawSCTP, q.To.Addr().String()
	}
	switch own := q.From.AsSlice(); {
	case own == nil: // the kernel chooses when it connects
	case q.Protocol == TCP:
		d.LocalAddr = &net.TCPAddr{IP: own}
	case q.Protocol == UDP:
		d.LocalAddr = &net.UDPAddr{IP: own}
	default:
		d.LocalAddr = &net.IPAddr{IP: own}
	}
	return d.DialContext(ctx, network, to)
}

// takePort bounds the source port of a socket.
func (q Question) takePort(fd int) error {
	if q.Ports == (PortRange{}) {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE, int(q.Ports.High)<<16|int(q.Ports.Low)); err != nil {
		return fmt.Errorf("take a port between %d and %d: %w", q.Ports.Low, q.Ports.High, err)
	}
	return nil
}

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

// Retransmits is how many packets of a TCP connection its client has sent again. The kernel sends the first packet again
// after a second.
func (f *Flow) Retransmits() (int, error) { return Retransmits(f.conn) }

// Retransmits is how many packets of a TCP connection this side has sent again; 0 for another protocol.
func Retransmits(conn net.Conn) (n int, err error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return 0, nil
	}
	socket, err := tcp.SyscallConn()
	if err == nil {
		err = control(socket, func(fd int) error {
			info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
			if err == nil {
				n = int(info.Total_retrans)
			}
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("ask how many packets were sent again: %w", err)
	}
	return n, nil
}

// First gets the first answer.
func (f *Flow) First(patience time.Duration) Result {
	return f.exchange(patience, !f.protocol.serverSpeaksFirst())
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
