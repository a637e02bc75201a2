package conntrack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// Opened counts the translated flows that begin, by their routes. The kernel tells about each new flow while an Opened
// exists, which costs about a microsecond of each new connection of the host.
type Opened struct {
	k    *kernel
	stop context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	count map[Route]uint64
	lost  bool  // the kernel dropped messages since the latest Take
	err   error // that ended the reading
}

// groupNew is the multicast group of new flows (NFNLGRP_CONNTRACK_NEW).
const groupNew = 1

// openedBuffer holds about 50,000 messages.
const openedBuffer = 32 << 20

// WatchOpened begins to count. The caller closes it.
func WatchOpened(o Options) (*Opened, error) {
	k, err := dial(o)
	if err != nil {
		return nil, err
	}
	_ = k.SetsockoptInt(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, openedBuffer) // otherwise messages are lost, and Take says so
	if err := k.Subscribe(groupNew); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return watch(k), nil
}

func watch(k *kernel) *Opened {
	ctx, stop := context.WithCancel(context.Background())
	w := &Opened{k: k, stop: stop, done: make(chan struct{}), count: map[Route]uint64{}}
	go w.read(ctx)
	return w
}

// Take returns what began since the latest call. If lost, the kernel has dropped messages, and there were more.
func (w *Opened) Take() (count map[Route]uint64, lost bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	count, lost, err = w.count, w.lost, w.err
	w.count, w.lost = map[Route]uint64{}, false
	return count, lost, err
}

// Close ends the counting.
func (w *Opened) Close() error {
	w.stop()
	_ = w.k.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
	<-w.done
	return w.k.Close()
}

func (w *Opened) read(ctx context.Context) {
	defer close(w.done)
	for ctx.Err() == nil {
		m, err := w.k.Hear(ctx)
		w.mu.Lock()
		switch {
		case err == nil:
			w.add(m)
		case errors.Is(err, unix.ENOBUFS):
			w.lost = true
		case ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded):
			w.err = fmt.Errorf("receive new flows from conntrack: %w", err)
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

func (w *Opened) add(m nlmsg.Messages) {
	for m.Next() {
		var e entry
		if e.parse(m.Attributes()) && e.DNAT {
			w.count[e.route()]++
		}
	}
}
