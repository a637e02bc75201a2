package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/loopback"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
)

// Pauses before the events of nf_tables are read from a new socket: each is twice as long as the last one, until an event
// has come.
const (
	firstRewatch = 50 * time.Millisecond
	lastRewatch  = 10 * time.Second
)

// watch reports to the loop what other processes do to the tables, and to the keeper what they do to the guard of
// 127.0.0.0/8, until the context ends. The kernel queues events while the loop is busy. When they cannot be read, some are
// lost, and the loop looks at everything.
func (k *kernelSide) watch(ctx context.Context, guard *loopback.Keeper, tell chan<- dataplane.Interference, log *slog.Logger) error {
	pause := firstRewatch
	for ctx.Err() == nil {
		i, err := k.watcher.Next(ctx)
		switch {
		case err == nil:
			pause = firstRewatch
		case ctx.Err() == nil:
			log.Error("cannot read what other processes do to the tables; a new socket is opened, and everything is looked at",
				"error", err, "after", pause)
			k.rewatch(ctx, pause, log)
			pause = min(2*pause, lastRewatch)
			i = dataplane.Interference{Lost: true}
		}
		if i.Guard || i.Lost {
			guard.Changed(i.Process)
		}
		if i.Empty() {
			continue
		}
		select {
		case tell <- i:
		case <-ctx.Done():
		}
	}
	return nil
}

// rewatch replaces the watcher after a pause. It tries until it succeeds or the context ends.
func (k *kernelSide) rewatch(ctx context.Context, pause time.Duration, log *slog.Logger) {
	for wait(ctx, pause) {
		w, err := k.engine.Watch()
		if err == nil {
			_ = k.watcher.Close() // its error does not matter: nobody reads from it any more
			k.watcher = w
			return
		}
		pause = min(2*pause, lastRewatch)
		log.Error("cannot watch the tables: what other processes do is found by the slow comparison only; trying again",
			"error", err, "after", pause)
	}
}

// wait waits for a time. It reports whether the time is over, and not the context.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
