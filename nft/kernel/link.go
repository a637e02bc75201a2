package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// link is a netlink socket to nf_tables.
type link struct {
	sock        *socket.Conn
	netns       int    // as in Options
	port        uint32 // the address of the socket: by it, the watcher tells the engine's commits from those of other processes
	writeBuffer int
	answers     []byte
	unread      bool // the socket may hold answers to an earlier request
	patience    time.Duration
	deadline    time.Time // when reading ends; zero: when patience does
}

// answerTimeout ends the wait for an answer that got lost. The kernel answers while the request is being sent.
const answerTimeout = 10 * time.Second

// smallBuffer is the first size of the send buffer; the receive buffer is four times as large. A batch goes to the
// kernel in one system call and must fit in the send buffer. The receive buffer must take an answer to each message of
// a refused batch.
const smallBuffer = 1 << 20

func (l *link) prepare() error {
	if err := l.sock.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind netlink socket to nf_tables: %w", err)
	}
	name, err := l.sock.Getsockname()
	if err != nil {
		return fmt.Errorf("read the address of the netlink socket to nf_tables: %w", err)
	}
	l.port = name.(*unix.SockaddrNetlink).Pid
	// The kernel's errors name the attribute at fault, and do not repeat the message (up to 64 KiB) that they answer.
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK} {
		if err := l.sock.SetsockoptInt(unix.SOL_NETLINK, option, 1); err != nil {
			return fmt.Errorf("set netlink option %d: %w", option, err)
		}
	}
	if err := l.sock.SetReadBuffer(4 * smallBuffer); err != nil {
		return fmt.Errorf("size netlink receive buffer: %w", err)
	}
	return l.growWriteBuffer(smallBuffer)
}

// growWriteBuffer makes room for a batch. It needs CAP_NET_ADMIN in the initial user namespace (SO_SNDBUFFORCE);
// without, the kernel limits the buffer to net.core.wmem_max (SO_SNDBUF).
func (l *link) growWriteBuffer(size int) error {
	if size <= l.writeBuffer {
		return nil
	}
	if err := l.sock.SetWriteBuffer(size); err != nil {
		return fmt.Errorf("size netlink send buffer for %d bytes: %w", size, err)
	}
	l.writeBuffer = size
	return nil
}

// Capacity is the size of the largest batch that fits in the present send buffer.
func (l *link) Capacity() int {
	size, err := l.sock.WriteBuffer()
	if err != nil {
		size = smallBuffer
	}
	return size - 32 // which netlink_sendmsg keeps for itself
}

func (l *link) Close() error { return l.sock.Close() }

// SyscallConn returns the socket, for options that only its user knows.
func (l *link) SyscallConn() (syscall.RawConn, error) { return l.sock.SyscallConn() }

// GiveUpAfter ends all reading after a time.
func (l *link) GiveUpAfter(within time.Duration) { l.deadline = time.Now().Add(within) }

// Subscribe makes the kernel send the messages of a group.
func (l *link) Subscribe(group int) error {
	return l.sock.SetsockoptInt(unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group)
}

// Next waits for messages of a group until the context ends, or for some time. Nothing and no error: the time is over.
func (l *link) Next(ctx context.Context, wait time.Duration) ([]byte, error) {
	if err := l.sock.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return nil, fmt.Errorf("set read deadline: %w", err)
	}
	n, _, err := l.sock.Recvfrom(ctx, l.answers, 0)
	if errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
		return nil, nil //nolint:nilerr // the time is over
	}
	return l.answers[:n], err
}

// sendRaw sends a request. The caller that has read all answers sets unread to false.
func (l *link) sendRaw(messages []byte) error {
	l.drain()
	l.unread = true
	if err := nlmsg.Send(l.sock, messages); err != nil {
		return fmt.Errorf("send %d bytes to nf_tables: %w", len(messages), err)
	}
	return nil
}

// errSlow ends a reading that has a deadline.
var errSlow = errors.New("the answers took too long")

// wait receives the next datagram.
func (l *link) wait() (int, error) {
	if !l.deadline.IsZero() && time.Now().After(l.deadline) {
		return 0, errSlow
	}
	if err := l.sock.SetReadDeadline(time.Now().Add(l.patience)); err != nil {
		return 0, fmt.Errorf("set read deadline: %w", err)
	}
	n, _, err := l.sock.Recvfrom(context.Background(), l.answers, 0)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, fmt.Errorf("none came within %s", l.patience)
	}
	return n, err
}

// drain discards answers to an earlier request.
func (l *link) drain() {
	for l.unread {
		_, err := l.receive()
		l.unread = err == nil || errors.Is(err, unix.ENOBUFS)
	}
}

// receive reads a datagram without waiting: an answer that is not there yet will never come.
func (l *link) receive() (n int, err error) {
	raw, err := l.sock.SyscallConn()
	if err != nil {
		return 0, err
	}
	readErr := raw.Control(func(fd uintptr) {
		n, _, err = unix.Recvfrom(int(fd), l.answers, unix.MSG_DONTWAIT)
	})
	return n, errors.Join(readErr, err)
}

// Options say which nf_tables to use.
type Options struct {
	// NetNS is a file descriptor of a network namespace; 0: the present one.
	NetNS int
	// Families to read; empty: both.
	Families []program.Family
}

// Served are those to read.
func (o Options) Served() []program.Family {
	if len(o.Families) > 0 {
		return o.Families
	}
	both := program.Families()
	return both[:]
}

// Conn is a connection to nf_tables: requests and their answers. It is used by one goroutine.
type Conn struct {
	link
	wire Wire // for requests outside batches
}

// Dial opens a socket in the network namespace of a file descriptor; 0: in the present one.
func Dial(netns int) (*Conn, error) {
	sock, err := socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER, "nf_tables", &socket.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket to nf_tables: %w", err)
	}
	c := &Conn{link: link{sock: sock, netns: netns, answers: make([]byte, 1<<16), patience: answerTimeout}}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(err, sock.Close())
	}
	return c, nil
}

// The kernel may fail to answer when memory is short, or while another process commits again and again. A daemon that
// ends for that leaves its node without changes until it is started again.
const (
	persistFor   = 5 * time.Second
	persistPause = 50 * time.Millisecond
	refusals     = 5 // after as many in a row, the process may not do it
)

// Retry calls a function until it succeeds, and returns its last error.
func Retry(call func() error) error {
	end, refused := time.Now().Add(persistFor), 0
	for {
		err := call()
		if err == nil {
			return nil
		}
		if refused++; !errors.Is(err, unix.EPERM) {
			refused = 0
		}
		if refused == refusals || time.Now().After(end) {
			return err
		}
		time.Sleep(persistPause)
	}
}

// withConn calls a function with a connection of its own until it succeeds. What the function does, it may do twice.
func withConn(o Options, call func(*Conn) error) error {
	return Retry(func() error { return With(o, call) })
}

// With calls a function with a connection of its own.
func With(o Options, call func(*Conn) error) error {
	c, err := Dial(o.NetNS)
	if err != nil {
		return err
	}
	err = call(c)
	return errors.Join(err, c.Close())
}
