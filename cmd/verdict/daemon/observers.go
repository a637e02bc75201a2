package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/verdict-proxy/verdict/cmd/verdict/events"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/health"
	"github.com/verdict-proxy/verdict/proxier/metrics"
	"github.com/verdict-proxy/verdict/proxier/planning"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// pendingTimeout is how long a change may wait for the kernel before the proxy counts as unhealthy. It is that of
// upstream: twice the sync period of kube-proxy, which is 30 s.
const pendingTimeout = time.Minute

// observers pass what the loop reports to health, metrics and Events. The type implements report.Observer.
type observers struct {
	settings *config.Settings                // at the start
	inForce  atomic.Pointer[config.Settings] // for /configz
	version  string
	log      *slog.Logger
	accounts *planning.Accounts
	proxy    *health.Proxy
	servers  *health.Servers
	registry *prometheus.Registry
	metrics  *metrics.Metrics
	events   *events.Recorder
	journal  *socket.Journal
	refused  func()                   // explains that the kernel takes no tables; nil: nobody does
	takeOver func()                   // from kube-proxy, when the rules are in the kernel; nil: nobody asked for it
	lines    report.Lines             // about health checks of Services
	checks   chan report.HealthChecks // the latest value, so that the loop never waits for listeners
	passed   chan struct{}            // there was a pass
}

func newObservers(of *Options, registry *prometheus.Registry, e *events.Recorder, store *state.Store) (*observers, error) {
	families := []state.Family{state.IPv4, state.IPv6}
	s, log := &of.CommandLine.Settings, of.Log
	accounts := planning.NewAccounts(store, &s.Budgets, log)
	m, err := metrics.New(metrics.Options{
		Registry: registry, Families: families, Version: of.Version, Revision: of.Revision,
		Changes: store.ChangeCounts, Seconds: accounts.Seconds,
	})
	if err != nil {
		return nil, err
	}
	o := &observers{
		settings: s, version: of.Version, log: log, accounts: accounts, registry: registry, metrics: m, events: e, journal: socket.NewJournal(),
		lines: report.NewLines(log, s.Budgets.NamespaceLogLines), checks: make(chan report.HealthChecks, 1),
		passed: make(chan struct{}, 1),
	}
	o.inForce.Store(s)
	if e != nil {
		e.CountDropped(m.EventDropped)
	}
	pause := func() time.Duration { return o.inForce.Load().MinSyncPeriod }
	o.proxy = health.NewProxy(health.ProxyOptions{Timeout: pendingTimeout, Pause: pause, Families: families, Now: time.Now, Answered: m.Answered})
	o.servers = health.NewServers(health.ServersOptions{Healthy: o.proxy.Healthy, Log: log})
	return o, nil
}

// Pending implements report.Observer.
func (o *observers) Pending(since time.Time) {
	o.proxy.Pending(since)
	o.journal.Pending(since)
	o.metrics.Pending(since)
}

// PassDone implements report.Observer.
func (o *observers) PassDone(r report.Pass) {
	o.journal.PassDone(&r)
	o.proxy.SetNode(r.NodeEligible)
	o.servers.SetLeaving(r.Leaving != "")
	o.proxy.PassDone(r.Started, r.Result.Err == nil)
	o.metrics.PassDone(&r)
	if r.Result.Full && r.Result.Err == nil {
		if os.Getenv("GOGC") == "" { // the user has not chosen a value
			debug.SetGCPercent(gcPercent)
		}
		go debug.FreeOSMemory() // the runtime would keep it for minutes
		if o.takeOver != nil {
			go o.takeOver()
		}
	}
	if o.refused != nil && tablesRefused(&r) {
		go o.refused()
	}
	if r.HealthChecks != nil {
		select {
		case <-o.checks: // drops a value that has not been read and is out of date
		default:
		}
		o.checks <- *r.HealthChecks
	}
	select {
	case o.passed <- struct{}{}:
	default:
	}
}

// tablesRefused reports whether the kernel refused to take whole tables, which may be because it lacks a feature.
func tablesRefused(r *report.Pass) bool {
	return r.Result.Full && r.Result.Outcome == kernel.Rejected
}

// FlowsCleaned implements report.Observer.
func (o *observers) FlowsCleaned(results []conntrack.Result) { o.metrics.FlowsCleaned(results) }

// AsWanted implements report.Observer.
func (o *observers) AsWanted(at time.Time) { o.metrics.AsWanted(at) }

// Repaired implements report.Observer.
func (o *observers) Repaired(r report.Repair) {
	outcome := "reported"
	switch {
	case r.Tried && r.Result.Err == nil:
		outcome = "repaired"
	case r.Tried:
		outcome = "failed"
	}
	o.metrics.Interfered(r.Interference.Process, outcome, r.Duration)
	o.events.Interfered(&r, outcome, time.Now())
}

// Problems implements report.Observer.
func (o *observers) Problems(r report.Problems) {
	o.metrics.Problems(r)
	o.events.Problems(r.Changed)
	o.journal.Problems(r.Changed)
}

// daemon answers questions about this process.
func (o *observers) daemon(store *state.Store, health *endpointhealth.Monitor) *socket.Daemon {
	return &socket.Daemon{
		Journal: o.journal, Store: store, Outliers: health, NodeName: o.settings.NodeName, MaxEjected: o.settings.MaxEjected,
		Manifests: o.settings.Manifests, Version: o.version, Log: o.log,
	}
}

// answerStatus answers the questions of the commands. Without the socket, they ask only the kernel.
func (o *observers) answerStatus(ctx context.Context, group *errgroup.Group, daemon *socket.Daemon) {
	l, err := socket.Listen(ctx)
	if err != nil {
		o.log.Warn("the commands of Verdict cannot ask this process; they ask only the kernel; trying again", "every", listenRetry, "error", err)
	}
	group.Go(func() error {
		for ; err != nil; l, err = socket.Listen(ctx) {
			if !wait(ctx, listenRetry) {
				return nil
			}
		}
		return socket.Serve(ctx, l, daemon)
	})
}

// listenRetry is the time between two attempts to listen.
const listenRetry = 10 * time.Second

// restartPause is the time until a server that ended by itself is started again. A server may end at once each time.
const restartPause = time.Second

func (o *observers) serveHealthChecks(ctx context.Context) error {
	defer o.servers.Close()
	var want report.HealthChecks
	again := time.NewTicker(listenRetry)
	defer again.Stop()
	failing := map[state.Name]string{}
	var restart <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case want = <-o.checks:
		case <-o.servers.Ended():
			restart = time.After(restartPause)
			continue
		case <-restart:
			restart = nil
			o.log.Info("starting health check servers that ended again")
		case <-again.C:
			if len(failing) == 0 {
				continue
			}
		}
		failing = o.reportListening(failing, o.servers.Sync(want.Services, want.Addresses))
	}
}

// reportListening logs new failures and raises the same Event as upstream.
func (o *observers) reportListening(before map[state.Name]string, failed map[state.Name]error) map[state.Name]string {
	now := map[state.Name]string{}
	for name, err := range failed {
		now[name] = err.Error()
		if before[name] == now[name] {
			continue
		}
		if o.lines.MayWrite(name.Namespace, time.Now()) {
			o.log.Warn("cannot listen for health checks of a Service; trying again", "object", name.String(), "every", listenRetry, "error", err)
		}
		o.events.Post(events.Event{
			Service: name, Reason: "FailedToStartServiceHealthcheck", Text: fmt.Sprintf("a node cannot serve the health check: %v", err),
		})
	}
	return now
}

// gcPercent is how far the heap grows between collections: by half of its live size, instead of by the whole of it.
// After the first pass the proxy allocates little, so this costs little: with 50,000 Services and 90 changes per second
// there was one collection in 50 s, of 0.2 s of CPU time. During the first pass it would cost more: over 10,000
// Services it took 0.8 s instead of 0.5 s.
const gcPercent = 50
