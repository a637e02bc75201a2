//go:build !nokernel

package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	reports "github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// world is a store, and a running loop that applies it to a network namespace.
type world struct {
	store   *state.Store
	engine  *nft.Engine
	flows   *conntrack.Cleaner
	settled chan settled
	stop    context.CancelFunc
	ended   chan error
}

// settled describes the moment at which the kernel had all pending changes, and the passes since the last such moment.
type settled struct {
	at       time.Time
	passes   int
	added    int
	deleted  int
	bytes    int
	kernel   time.Duration // in the system calls
	failures []error
}

// gathering reports whether the loop gathers changes, as it does with the default of --min-sync-period. Without
// gathering it takes each change as soon as the previous pass has ended.
type gathering bool

// newWorld starts a loop. The loop waits until its store is marked as synced.
func newWorld(ns *lab.Namespace, gathers gathering) (*world, error) {
	engine, err := nft.Open(nft.Options{NetNS: ns.Fd()})
	if err != nil {
		return nil, err
	}
	flows, err := conntrack.Open(conntrack.Options{NetNS: ns.Fd()})
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	settings := config.Default()
	settings.NodeName = ownNode
	if !gathers {
		settings.MinSyncPeriod = 0
	}
	// The clients of measure.Path count as pods. Their connections are not masqueraded, which is usual from pod to
	// Service.
	settings.ClusterCIDRs = []string{podRange, measure.ClientRange}
	w := &world{
		store: state.NewStore(), engine: engine, flows: flows,
		settled: make(chan settled, 1024), ended: make(chan error, 1),
	}
	loop := proxier.New(proxier.Options{
		Settings: &settings, Store: w.store, Empty: engine.Empty, Flows: flows,
		Dataplane: dataplane.New(dataplane.Options{Ruleset: engine}),
		Observer:  &observer{store: w.store, settled: w.settled},
		Primary:   func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr(measure.NodeAddress)}, nil },
		Log:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	go func() { w.ended <- loop.Run(ctx) }()
	return w, nil
}

// close ends the loop and removes the tables, so that the kernel can free their memory before the next measurement.
func (w *world) close(ns *lab.Namespace) error {
	w.stop()
	cleanup := func() error { return kernel.Cleanup(kernel.Options{}) }
	err := errors.Join(<-w.ended, w.engine.Close(), w.flows.Close(), ns.Do(cleanup))
	if err != nil {
		return fmt.Errorf("end the loop and remove the tables: %w", err)
	}
	return nil
}

// do makes a change and waits until the kernel has it.
func (w *world) do(b testing.TB, change func()) (time.Duration, settled) {
	b.Helper()
	start := time.Now()
	change()
	s := <-w.settled
	lab.Must(b, s.failures...)
	return s.at.Sub(start), s
}

// drain counts the passes that have ended, without waiting for any.
func (w *world) drain() (passes int) {
	for {
		select {
		case s := <-w.settled:
			passes += s.passes
		default:
			return passes
		}
	}
}

// observer sums up the reports of passes until nothing is pending.
type observer struct {
	store   *state.Store
	settled chan settled
	sum     settled
}

// PassDone implements report.Observer.
func (o *observer) PassDone(r reports.Pass) {
	o.sum.at = time.Now()
	o.sum.passes++
	o.sum.added += r.Result.Added
	o.sum.deleted += r.Result.Deleted
	o.sum.bytes += r.Result.Bytes
	o.sum.kernel += r.Result.Kernel
	if r.Result.Err != nil {
		o.sum.failures = append(o.sum.failures, r.Result.Err)
	}
	if c, _ := o.store.Pending(); len(c.Services) == 0 && !c.Environment {
		o.settled <- o.sum
		o.sum = settled{}
	}
}

// Pending implements report.Observer.
func (o *observer) Pending(time.Time) {}

// AsWanted implements report.Observer.
func (o *observer) AsWanted(time.Time) {}

// FlowsCleaned implements report.Observer.
func (o *observer) FlowsCleaned([]conntrack.Result) {}

// Repaired implements report.Observer.
func (o *observer) Repaired(reports.Repair) {}

// Problems implements report.Observer.
func (o *observer) Problems(reports.Problems) {}
