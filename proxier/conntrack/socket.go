package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// kernel is the table behind a netlink socket.
type kernel struct {
	sock *socket.Conn
	in   []byte
	out  message
	seq  uint32
}

func dial(netns int) (*kernel, error) {
	sock, err := socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER, "conntrack", &socket.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket to conntrack: %w", err)
	}
	k := &kernel{sock: sock, in: make([]byte, 1<<16)}
	if err := sock.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind netlink socket to conntrack: %w", err), sock.Close())
	}
	// Answers to deletions need not repeat them.
	if err := sock.SetsockoptInt(unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return nil, errors.Join(fmt.Errorf("set netlink option of conntrack socket: %w", err), sock.Close())
	}
	return k, nil
}

func (k *kernel) close() error { return k.sock.Close() }

// errInterrupted says that the table changed its shape while it was read, so that entries may be missing.
var errInterrupted = errors.New("the table was resized while it was read")

// dumpTries is how often an interrupted dump is tried.
const dumpTries = 3

func (k *kernel) dump(family state.Family, to *Frontend, fn func(*entry)) (err error) {
	for range dumpTries {
		if err = k.dumpOnce(family, to, fn); !errors.Is(err, errInterrupted) {
			return err
		}
	}
	return err
}

func (k *kernel) dumpOnce(family state.Family, to *Frontend, fn func(*entry)) error {
	var e entry
	ask := func(m *message) { m.question(k.seq, family, to) }
	return k.read(ask, func(body []byte) {
		if e.parse(body) {
			fn(&e)
		}
	})
}

// read asks a question and hands the body of each answer to fn.
func (k *kernel) read(ask func(*message), fn func(body []byte)) error {
	k.seq++
	k.out.buf = k.out.buf[:0]
	ask(&k.out)
	if err := k.send(); err != nil {
		return err
	}
	interrupted := false
	err := k.receive(k.seq, k.seq, func(h header, body []byte) (done bool, err error) {
		interrupted = interrupted || h.flags&unix.NLM_F_DUMP_INTR != 0
		switch h.kind {
		case unix.NLMSG_DONE, unix.NLMSG_ERROR:
			return true, errnoIn(body)
		}
		fn(body)
		return false, nil
	})
	if err == nil && interrupted {
		return errInterrupted
	}
	return err
}

// deletionsAtOnce bounds the answers that wait in the socket's buffer.
const deletionsAtOnce = 64

func (k *kernel) remove(family state.Family, keys [][]byte) (removed int, err error) {
	for len(keys) > 0 && err == nil {
		n := min(len(keys), deletionsAtOnce)
		var some int
		some, err = k.removeSome(family, keys[:n])
		removed += some
		keys = keys[n:]
	}
	return removed, err
}

func (k *kernel) removeSome(family state.Family, keys [][]byte) (removed int, err error) {
	first := k.seq + 1
	k.out.buf = k.out.buf[:0]
	for _, key := range keys {
		k.seq++
		k.out.deletion(k.seq, family, key)
	}
	if err := k.send(); err != nil {
		return 0, err
	}
	left := len(keys)
	var refused error
	err = k.receive(first, k.seq, func(_ header, body []byte) (bool, error) {
		left--
		switch err := errnoIn(body); {
		case err == nil:
			removed++
		case !errors.Is(err, unix.ENOENT): // gone by itself: just as well
			refused = err
		}
		return left == 0, nil
	})
	return removed, errors.Join(err, refused)
}

func (k *kernel) send() error {
	to := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := k.sock.Sendto(context.Background(), k.out.buf, 0, to); err != nil {
		return fmt.Errorf("send to conntrack: %w", err)
	}
	return nil
}

// header is what counts of a netlink header.
type header struct {
	kind, flags uint16
	seq         uint32
}

// answerTimeout ends waiting for an answer that got lost; the kernel answers while the question is being sent.
const answerTimeout = 10 * time.Second

// receive hands the answers to the questions first to last to fn, until it is done. Answers to earlier questions, left
// over from a failure, are skipped.
func (k *kernel) receive(first, last uint32, fn func(header, []byte) (bool, error)) error {
	for {
		if err := k.sock.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
			return fmt.Errorf("set deadline for conntrack: %w", err)
		}
		n, _, err := k.sock.Recvfrom(context.Background(), k.in, 0)
		if err != nil {
			return fmt.Errorf("receive from conntrack: %w", err)
		}
		for b := k.in[:n]; len(b) >= messageHead; {
			length := int(binary.NativeEndian.Uint32(b))
			if length < messageHead || length > len(b) {
				return errors.New("receive from conntrack: a message is cut short")
			}
			h := header{
				kind: binary.NativeEndian.Uint16(b[4:]), flags: binary.NativeEndian.Uint16(b[6:]), seq: binary.NativeEndian.Uint32(b[8:]),
			}
			body := b[messageHead:length]
			b = b[min((length+3)&^3, len(b)):]
			if h.seq-first > last-first {
				continue
			}
			if done, err := fn(h, body); done || err != nil {
				return err
			}
		}
	}
}

// errnoIn reads the result out of an answer; nil: success.
func errnoIn(body []byte) error {
	if len(body) < 4 {
		return nil
	}
	if errno := int32(binary.NativeEndian.Uint32(body)); errno < 0 {
		return fmt.Errorf("conntrack: %w", unix.Errno(-errno))
	}
	return nil
}
