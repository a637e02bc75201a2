package kernel

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// smallBuffer is the first size of the send buffer; the receive buffer is four times as large. A batch goes to the
// kernel in one system call and must fit in the send buffer. The receive buffer must take an answer to each message of
// a refused batch.
const smallBuffer = 1 << 20

// growWriteBuffer makes room for a batch. It needs CAP_NET_ADMIN in the initial user namespace (SO_SNDBUFFORCE);
// without, the kernel limits the buffer to net.core.wmem_max (SO_SNDBUF).
func (c *Conn) growWriteBuffer(size int) error {
	if size <= c.writeBuffer {
		return nil
	}
	if err := c.SetWriteBuffer(size); err != nil {
		return fmt.Errorf("size netlink send buffer for %d bytes: %w", size, err)
	}
	c.writeBuffer = size
	return nil
}

// Capacity is the size of the largest batch that fits in the present send buffer.
func (c *Conn) Capacity() int {
	size, err := c.WriteBuffer()
	if err != nil {
		size = smallBuffer
	}
	return size - 32 // which netlink_sendmsg keeps for itself
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
	*nlmsg.Conn
	netns       int  // as in Options
	wire        Wire // for requests outside batches
	writeBuffer int
}

// Dial opens a socket in the network namespace of a file descriptor; 0: in the present one.
func Dial(netns int) (*Conn, error) {
	sock, err := nlmsg.Dial("nf_tables", netns)
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: sock, netns: netns}
	if err = sock.SetReadBuffer(4 * smallBuffer); err != nil {
		err = fmt.Errorf("size netlink receive buffer: %w", err)
	} else {
		err = c.growWriteBuffer(smallBuffer)
	}
	if err != nil {
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
