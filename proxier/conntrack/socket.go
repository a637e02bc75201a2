package conntrack

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Options say where the table is.
type Options struct {
	// NetNS is a file descriptor of the network namespace to work in; 0: the present one. It must stay open as long as
	// the table is used.
	NetNS int
	// connect opens the socket; nil: that of the kernel. Tests inject faults here.
	connect func(netns int) (*nlmsg.Conn, error)
}

// kernel is the kernel's table, through a netlink socket.
type kernel struct {
	*nlmsg.Conn
	out request
}

func dial(o Options) (*kernel, error) {
	connect := o.connect
	if connect == nil {
		connect = func(netns int) (*nlmsg.Conn, error) { return nlmsg.Dial("conntrack", netns) }
	}
	sock, err := connect(o.NetNS)
	return &kernel{Conn: sock}, err
}

// dumpTries is how often a dump is attempted if the kernel resizes the table while it is read, so that entries may be missing.
const dumpTries = 3

// dump calls fn for the flows of a family that pass the filter. It may call fn for a flow twice.
func (k *kernel) dump(family state.Family, f filter, fn func(*entry)) error {
	return k.read(func(r *request) { r.dump(family, f) }, f.partial, func() {}, fn)
}

// read asks a question and calls fn with each answer. If it has to ask again, it calls begin before.
func (k *kernel) read(ask func(*request), partial bool, begin func(), fn func(*entry)) (err error) {
	var e entry
	for range dumpTries {
		begin()
		k.out.Buf = k.out.Buf[:0]
		ask(&k.out)
		if err := k.Send(k.out.Buf); err != nil {
			return err
		}
		err = k.Answers(k.out.Seq, func(a nlmsg.Attributes) {
			if e.parse(a) {
				fn(&e)
			}
		})
		if !errors.Is(err, nlmsg.ErrInterrupted) {
			return err
		}
	}
	if partial {
		return nil
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
	if err := k.Send(k.out.Buf); err != nil {
		return 0, err
	}
	var refused error
	for unanswered := to - from; unanswered > 0; {
		m, err := k.Receive()
		if err != nil {
			return removed, errors.Join(err, refused)
		}
		for m.Next() {
			if m.Seq-first > k.out.Seq-first {
				continue // the answer to an earlier question
			}
			unanswered--
			ack, _ := m.Ack()
			switch {
			case ack.Errno == 0:
				removed++
			case ack.Errno != unix.ENOENT: // ENOENT: the flow has ended by itself
				refused = ack.Err()
			}
		}
		if err := m.Err(); err != nil {
			return removed, errors.Join(err, refused)
		}
	}
	k.Unread = false
	return removed, refused
}
