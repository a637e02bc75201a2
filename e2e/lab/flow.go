package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Flow is an open connection. In UDP and SCTP it is a socket that keeps its address and port.
type Flow struct {
	Client   netip.Addr // the address that the client uses
	fd       int
	protocol Protocol
	to       uint16
	close    sync.Once
}

// Open connects from the namespace of the calling thread. Any thread may use the flow afterwards. Sockets do not block,
// and the flow waits by poll: signals of the Go runtime would interrupt a blocking connect.
func Open(q Question) (*Flow, error) {
	kind, proto := unix.SOCK_STREAM, 0
	switch q.Protocol {
	case UDP:
		kind = unix.SOCK_DGRAM
	case SCTP:
		kind, proto = unix.SOCK_RAW, unix.IPPROTO_SCTP
	case KernelSCTP:
		proto = unix.IPPROTO_SCTP
	}
	family := FamilyOf(q.To.Addr())
	fd, err := unix.Socket(domain(family), kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	f := &Flow{fd: fd, protocol: q.Protocol, to: q.To.Port()}
	if err := f.connect(family, q); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *Flow) connect(family Family, q Question) error {
	if q.Ports != (PortRange{}) {
		if err := unix.SetsockoptInt(f.fd, unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE, int(q.Ports.High)<<16|int(q.Ports.Low)); err != nil {
			return fmt.Errorf("take a port between %d and %d: %w", q.Ports.Low, q.Ports.High, err)
		}
	}
	if q.From.IsValid() {
		if err := unix.Bind(f.fd, sockaddr(netip.AddrPortFrom(q.From, 0))); err != nil {
			return fmt.Errorf("bind to %s: %w", q.From, err)
		}
	}
	to := q.To
	if q.Protocol == SCTP {
		to = netip.AddrPortFrom(to.Addr(), 0) // raw sockets have no ports
	}
	err := unix.Connect(f.fd, sockaddr(to))
	if errors.Is(err, unix.EINPROGRESS) {
		err = f.connected(waitFor(q.Patience))
	}
	if err != nil {
		return err
	}
	if !q.Protocol.serverSpeaksFirst() {
		if err := f.reportErrors(family); err != nil {
			return err
		}
	}
	own, err := unix.Getsockname(f.fd)
	f.Client = fromSockaddr(own)
	return err
}

// reportErrors has the socket also report soft ICMP errors ("host unreachable"). It must be connected: a raw socket
// without a destination would report those of every other client in the namespace.
func (f *Flow) reportErrors(family Family) error {
	level, name := unix.IPPROTO_IP, unix.IP_RECVERR
	if family == IPv6 {
		level, name = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	if err := unix.SetsockoptInt(f.fd, level, name, 1); err != nil {
		return fmt.Errorf("ask for ICMP errors: %w", err)
	}
	return nil
}

// connected waits for the handshake.
func (f *Flow) connected(w *waiting) error {
	if err := f.wait(unix.POLLOUT, w); err != nil {
		return err
	}
	return f.pending()
}

// pending is the socket's error, if it has one.
func (f *Flow) pending() error {
	code, err := unix.GetsockoptInt(f.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}

// waiting is how long a client still waits. One look at its socket uses up at most a slice of that, however long it takes: a
// machine that stands still for seconds must not look like a lost packet.
type waiting struct{ left, slice time.Duration }

func waitFor(d time.Duration) *waiting { return &waiting{left: d, slice: d / 20} }

// wait waits for an event or an error on the socket.
func (f *Flow) wait(event int16, w *waiting) error {
	for w.left > 0 {
		start := time.Now()
		fds := []unix.PollFd{{Fd: int32(f.fd), Events: event}}
		n, err := unix.Poll(fds, int(min(w.slice, w.left).Milliseconds())+1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return os.NewSyscallError("poll", err)
		case n > 0:
			return nil
		}
		w.left -= min(w.slice, time.Since(start))
	}
	return errSilence
}

// Retransmits is how many packets of a TCP connection its client has sent again. The kernel sends the first packet again
// after a second.
func (f *Flow) Retransmits() (int, error) {
	info, err := unix.GetsockoptTCPInfo(f.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, fmt.Errorf("ask how many packets were sent again: %w", err)
	}
	return int(info.Total_retrans), nil
}

// First gets the first answer.
func (f *Flow) First(patience time.Duration) Result {
	return f.exchange(patience, !f.protocol.serverSpeaksFirst())
}

// Send asks again over the open flow and waits for the answer.
func (f *Flow) Send(patience time.Duration) Result { return f.exchange(patience, true) }

// Receive waits for the first answer of a TCP server, which needs no question.
func (f *Flow) Receive(patience time.Duration) Result { return f.exchange(patience, false) }

func (f *Flow) exchange(d time.Duration, ask bool) Result {
	line, err := f.line(waitFor(d), ask)
	if err != nil {
		return resultOf(err)
	}
	answer, err := parseAnswer(line)
	if err != nil {
		return resultOf(err)
	}
	return Result{Outcome: Answered, Answer: answer, Client: f.Client}
}

func (f *Flow) line(w *waiting, ask bool) (string, error) {
	if f.protocol == SCTP {
		return f.exchangeSCTP(w)
	}
	if ask {
		if _, err := unix.Write(f.fd, []byte("?\n")); err != nil && !errors.Is(err, unix.EPERM) {
			return "", err
		}
		// EPERM: the rules of the client's own node dropped the packet. If they refused it, an ICMP error follows.
	}
	buf := make([]byte, 200)
	for {
		if err := f.wait(unix.POLLIN, w); err != nil {
			return "", err
		}
		n, err := unix.Read(f.fd, buf)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil:
			return "", err
		case n == 0:
			return "", errEnd
		default:
			return string(buf[:n]), nil // answers are short and come in one piece
		}
	}
}

func (f *Flow) exchangeSCTP(w *waiting) (string, error) {
	request := newInit(f.to)
	if _, err := unix.Write(f.fd, request.encode()); err != nil && !errors.Is(err, unix.EPERM) {
		return "", err
	}
	for {
		if err := f.wait(unix.POLLIN, w); err != nil {
			return "", err
		}
		got, _, ok, err := receiveSCTP(f.fd)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil:
			return "", err
		case ok && got.answers(&request):
			return string(got.text), nil
		}
	}
}

// Close ends a connection by a reset, so that it does not stay in TIME_WAIT and ports do not run out. Further calls do
// nothing.
func (f *Flow) Close() {
	f.close.Do(func() {
		// Both can only fail on a closed socket.
		_ = unix.SetsockoptLinger(f.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		_ = unix.Close(f.fd)
	})
}
