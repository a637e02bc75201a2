package conntrack

import (
	"fmt"
	"sync"
	"time"
)

// Forgetter deletes flows of this node's own connections that have ended, each by its tuple. Without it, such a flow would
// stay for up to two minutes: a node that asks 1,000 endpoints a second would fill the table for everybody.
//
// It gathers flows for a few milliseconds, because one request for many costs a fraction of many requests. If no flow ends, it does
// nothing. Its methods may be called from any goroutine.
type Forgetter struct {
	report func(error)

	mu      sync.Mutex
	pending []Query
	timer   *time.Timer // runs while there are pending flows
	closed  bool

	deleting sync.Mutex // guards what follows
	kernel   *kernel
	failed   bool // the last request
	free     []Query
}

const (
	// gathering is also how long packets that were on their way when the connection ended still find its flow.
	gathering = 10 * time.Millisecond
	// maxPending bounds the memory. Forget deletes by itself when there are as many.
	maxPending = 256
)

// OpenForgetter connects to the kernel. The report is called with an error when deleting begins to fail, and with nil when
// it works again; it must not block.
func OpenForgetter(o Options, report func(error)) (*Forgetter, error) {
	k, err := dial(o)
	if err != nil {
		return nil, err
	}
	f := &Forgetter{report: report, kernel: k}
	f.timer = time.AfterFunc(time.Hour, f.flush)
	f.timer.Stop()
	return f, nil
}

// Forget has a flow deleted soon. The caller has closed the socket before. The query has a source port.
func (f *Forgetter) Forget(q Query) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return
	}
	f.pending = append(f.pending, q)
	n := len(f.pending)
	if n == 1 {
		f.timer.Reset(gathering)
	}
	f.mu.Unlock()
	if n >= maxPending {
		f.flush()
	}
}

// flush deletes what is pending. While it waits for the kernel, others gather.
func (f *Forgetter) flush() {
	f.deleting.Lock()
	defer f.deleting.Unlock()
	f.mu.Lock()
	list := f.pending
	f.pending = f.free[:0]
	f.timer.Stop()
	f.mu.Unlock()
	f.free = list
	if len(list) == 0 {
		return
	}
	_, err := f.kernel.deleteEach(len(list), func(i int) { f.kernel.out.flow(msgDelete, list[i]) })
	if failed := err != nil; failed != f.failed {
		f.failed = failed
		if failed {
			err = fmt.Errorf("delete %d flows of this node's own questions: %w; they stay until they time out", len(list), err)
		}
		f.report(err)
	}
}

// Close deletes what is pending, and closes the connection to the kernel. Forget does nothing from then on.
func (f *Forgetter) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.flush()
	f.deleting.Lock()
	defer f.deleting.Unlock()
	return f.kernel.Close()
}
