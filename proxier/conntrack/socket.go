package conntrack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Options say where the table is.
type Options struct {
	// NetNS is a file descriptor of the network namespace to work in; 0: the present one. It must stay open as long as
	// the table is used.
	NetNS int
	// connect opens the socket; nil: connect. Tests inject faults here.
	connect func(netns int) (*socket.Conn, error)
}

// kernel is the kernel's table, through a netlink socket.
type kernel struct {
	sock *socket.Conn
	in   []byte
	out  request
}

func dial(o Options) (*kernel, error) {
	if o.connect == nil {
		o.connect = connect
	}
	sock, err := o.connect(o.NetNS)
	return &kernel{sock: sock, in: make([]byte, 1<<16)}, err
}

func connect(netns int) (*socket.Conn, error) {
	sock, err := socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER, "conntrack", &socket.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket to conntrack: %w", err)
	}
	err = sock.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil { // the answers to deletions do not need to repeat them
		err = sock.SetsockoptInt(unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up netlink socket to conntrack: %w", err), sock.Close())
	}
	return sock, nil
}

func (k *kernel) close() error { return k.sock.Close() }

// errInterrupted means that the kernel resized the table while it was read, so entries may be missing.
var errInterrupted = errors.New("the table was resized while it was read")

// dumpTries is how often a dump is attempted if it is interrupted.
const dumpTries = 3

// dump calls fn for the flows of a family that pass the filter. It may call fn for a flow twice.
func (k *kernel) dump(family state.Family, f filter, fn func(*entry)) error {
	return k.read(func(r *request) { r.dump(family, f) }, f.partial, func() {}, fn)
}

// read asks a question and calls fn with each answer. If it has to ask again, it calls begin before.
func (k *kernel) read(ask func(*request), partial bool, begin func(), fn func(*entry)) (err error) {
	for range dumpTries {
		begin()
		if err = k.readOnce(ask, fn); !errors.Is(err, errInterrupted) {
			return err
		}
	}
	if partial {
		return nil
	}
	return err
}

func (k *kernel) readOnce(ask func(*request), fn func(*entry)) error {
	k.out.Buf = k.out.Buf[:0]
	ask(&k.out)
	if err := k.send(); err != nil {
		return err
	}
	var e entry
	interrupted := false
	err := k.receive(k.out.Seq, k.out.Seq, func(m nlmsg.Messages) (done bool, err error) {
		interrupted = interrupted || m.Flags&unix.NLM_F_DUMP_INTR != 0
		if ack, last := m.Ack(); last {
			return true, errorOf(ack)
		}
		if e.parse(m.Attributes()) {
			fn(&e)
		}
		return false, nil
	})
	if err == nil && interrupted {
		return errInterrupted
	}
	return err
}

// deletionsAtOnce limits the answers that wait in the socket's buffer.
const deletionsAtOnce = 64

func (k *kernel) remove(family state.Family, keys [][]byte) (removed int, err error) {
	return k.deleteEach(len(keys), func(i int) { k.out.deletion(family, keys[i]) })
}

// deleteEach deletes n flows. The function writes the request for one of them.
func (k *kernel) deleteEach(n int, write func(i int)) (removed int, err error) {
	for i := 0; i < n && err == nil; i += deletionsAtOnce {
		var some int
		some, err = k.deleteSome(i, min(i+deletionsAtOnce, n), write)
		removed += some
	}
	return removed, err
}

func (k *kernel) deleteSome(from, to int, write func(i int)) (removed int, err error) {
	first := k.out.Seq + 1
	k.out.Buf = k.out.Buf[:0]
	for i := from; i < to; i++ {
		write(i)
	}
	if err := k.send(); err != nil {
		return 0, err
	}
	unanswered := to - from
	var refused error
	err = k.receive(first, k.out.Seq, func(m nlmsg.Messages) (bool, error) {
		unanswered--
		ack, _ := m.Ack()
		switch {
		case ack.Errno == 0:
			removed++
		case ack.Errno != unix.ENOENT: // ENOENT: the flow has ended by itself
			refused = errorOf(ack)
		}
		return unanswered == 0, nil
	})
	return removed, errors.Join(err, refused)
}

func (k *kernel) send() error {
	if err := nlmsg.Send(k.sock, k.out.Buf); err != nil {
		return fmt.Errorf("send to conntrack: %w", err)
	}
	return nil
}

// answerTimeout ends the wait for an answer that got lost. The kernel answers while the question is being sent.
const answerTimeout = 10 * time.Second

// receive calls fn with the answers to the questions first to last, until fn is done. It skips answers to earlier
// questions, which remain in the socket after a failure.
func (k *kernel) receive(first, last uint32, fn func(nlmsg.Messages) (bool, error)) error {
	for {
		if err := k.sock.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
			return fmt.Errorf("set read deadline of socket to conntrack: %w", err)
		}
		n, _, err := k.sock.Recvfrom(context.Background(), k.in, 0)
		if err != nil {
			return fmt.Errorf("receive from conntrack: %w", err)
		}
		m := nlmsg.NewMessages(k.in[:n])
		for m.Next() {
			if m.Seq-first > last-first {
				continue
			}
			if done, err := fn(m); done || err != nil {
				return err
			}
		}
		if err := m.Err(); err != nil {
			return fmt.Errorf("receive from conntrack: %w", err)
		}
	}
}

// errorOf is the kernel's reason for refusing a question; nil: it did not refuse.
func errorOf(ack nlmsg.Ack) error {
	if err := ack.Err(); err != nil {
		return fmt.Errorf("conntrack: %w", err)
	}
	return nil
}
