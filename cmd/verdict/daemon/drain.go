package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/proxier/health"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// drainer stops serving when somebody asks for it: first the addresses leave, then there is nothing new, then the process
// ends. Each step is a change in the store, which the loop brings into the kernel like any other.
type drainer struct {
	store   *state.Store
	proxy   *health.Proxy
	passing *passing
	can     bool // the objects come from a folder
	begin   chan socket.Drain
	ended   chan struct{}
	// failed says which step failed. It is set before ended is closed.
	failed error
	log    *slog.Logger

	mu   sync.Mutex
	step string // "": nobody has asked
}

// drain begins, and returns when the daemon has drained. A second request only waits.
func (d *drainer) drain(ctx context.Context, how socket.Drain) error {
	if err := d.start(how); err != nil {
		return err
	}
	select {
	case <-d.ended:
	case <-ctx.Done():
	}
	select {
	case <-d.ended:
		return d.failed
	default:
		return errors.New("the daemon was told to stop before it had drained")
	}
}

// leave records that the system stops. A host without a cluster has no Node that says so: its addresses and its readiness go as well.
func (d *drainer) leave(ctx context.Context) error {
	if d.can {
		d.proxy.SetDraining()
	}
	d.store.SetLeaving("the system stops")
	return d.await(ctx, 0)
}

func (d *drainer) start(how socket.Drain) error {
	if !d.can {
		return errors.New("the objects come from an API server: pods of this node need their Services; move them away with kubectl drain")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.step == "" {
		d.step = "addresses leave"
		d.begin <- how
	}
	return nil
}

func (d *drainer) draining() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.step
}

func (d *drainer) note(step string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.step != step {
		d.log.Info("draining", "step", step)
	}
	d.step = step
}

// ErrDrained ends the daemon when a drain has left nothing to do.
var ErrDrained = errors.New("drained")

// run waits until somebody asks, and returns ErrDrained when the open connections have ended or the time is over.
func (d *drainer) run(ctx context.Context) error {
	var how socket.Drain
	select {
	case <-ctx.Done():
		return nil
	case how = <-d.begin:
	}
	d.log.Info("draining", "step", d.draining(), "settle", how.Settle, "timeout", how.Timeout)
	d.proxy.SetDraining()
	d.store.SetDrain(state.Withdrawn)
	err := d.await(ctx, how.Timeout)
	d.note(fmt.Sprintf("no address is announced; new connections are served for %s more", how.Settle))
	wait(ctx, how.Settle)
	d.store.SetDrain(state.Refusing)
	err = errors.Join(err, d.await(ctx, how.Timeout), d.awaitConnections(ctx, how.Timeout))
	switch {
	case ctx.Err() != nil: // told to stop in between
		return nil //nolint:nilerr // a step that was interrupted did not fail
	case err != nil:
		d.log.Error("draining: a step failed; the process ends nevertheless", "error", err)
	}
	d.failed = err
	close(d.ended)
	return ErrDrained
}

// await waits until the kernel has the change. Changes of Services may wait longer.
func (d *drainer) await(ctx context.Context, timeout time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, max(timeout, longestReload))
	defer stop()
	return awaitKernel(ctx, d.store, func(c *state.Changes) bool { return c.Environment })
}

// connectionsPeriod is how often open connections are counted.
const connectionsPeriod = time.Second

// awaitConnections waits until no connection is open.
func (d *drainer) awaitConnections(ctx context.Context, timeout time.Duration) error {
	for deadline := time.Now().Add(timeout); ctx.Err() == nil; wait(ctx, connectionsPeriod) {
		n, err := d.open()
		if err == nil && n == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			if err != nil {
				return fmt.Errorf("count open connections: %w", err)
			}
			d.log.Warn("draining: the time is over; connections are still open, and their packets are translated until they end", "open", n)
			return nil
		}
		if err == nil {
			d.note(fmt.Sprintf("nothing new is served; open connections: %d", n))
		}
	}
	return nil
}

// open counts the open connections to Services.
func (d *drainer) open() (n int, err error) {
	rows, err := d.passing.count(false)
	for i := range rows {
		n += rows[i].Open
	}
	if err != nil || !d.passing.ipvs {
		return n, err
	}
	servers, err := ipvsctl.List(ipvsctl.Options{}, 0)
	for i := range servers {
		for _, r := range servers[i].RealServers {
			n += r.Active
		}
	}
	return n, err
}
