package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/health"
	"github.com/verdict-proxy/verdict/proxier/metrics"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// pendingTimeout is how long a change may wait for the kernel before the proxy counts as unhealthy: twice the sync
// period of upstream kube-proxy (30 s), which is what its health check allows.
const pendingTimeout = time.Minute

// faces show the loop's status to the outside: health, metrics, Events. It is the loop's observer.
type faces struct {
	settings *config.Settings
	log      *slog.Logger
	proxy    *health.Proxy
	servers  *health.Servers
	metrics  *metrics.Metrics
	events   *events
	checks   chan proxier.HealthChecks // latest wish; the loop does not wait for listeners
}

func newFaces(s *config.Settings, e *events, log *slog.Logger) (*faces, error) {
	families := []state.Family{state.IPv4, state.IPv6}
	m, err := metrics.New(metrics.Options{Registry: prometheus.NewRegistry(), Families: families, Version: version})
	if err != nil {
		return nil, err
	}
	f := &faces{settings: s, log: log, metrics: m, events: e, checks: make(chan proxier.HealthChecks, 1)}
	f.proxy = health.NewProxy(health.ProxyOptions{Timeout: pendingTimeout, Families: families, Now: time.Now, Answered: m.Answered})
	f.servers = health.NewServers(health.ServersOptions{Healthy: f.proxy.Healthy, Log: log})
	return f, nil
}

// Pending implements proxier.Observer.
func (f *faces) Pending(since time.Time) {
	f.proxy.Pending(since)
	f.metrics.Pending(since)
}

// PassDone implements proxier.Observer.
func (f *faces) PassDone(r proxier.PassReport) {
	f.proxy.SetNode(r.NodeEligible)
	f.proxy.PassDone(r.Started, r.Result.Err == nil)
	f.metrics.PassDone(metrics.Pass{
		Outcome: r.Result.Outcome.String(), Started: r.Started, Duration: r.Duration, Added: r.Result.Added, Deleted: r.Result.Deleted,
	})
	if r.Result.Full && r.Result.Err == nil {
		settle()
	}
	if r.Result.Err == nil {
		for engine, totals := range r.Totals {
			f.metrics.Served(dataplane.Engine(engine).String(), totals.Frontends, totals.Endpoints)
		}
		for _, t := range r.Triggers {
			f.metrics.Programmed(t.Family, r.Started.Add(r.Duration).Sub(t.At))
		}
	}
	if r.HealthChecks != nil {
		select {
		case <-f.checks: // a wish that nobody has read yet is out of date
		default:
		}
		f.checks <- *r.HealthChecks
	}
}

// FlowsCleaned implements proxier.Observer.
func (f *faces) FlowsCleaned(results []conntrack.Result) {
	for _, r := range results {
		f.metrics.FlowsCleaned(r.Family, r.Took, r.Deleted)
	}
}

// Problems implements proxier.Observer.
func (f *faces) Problems(list []state.Problem) {
	f.metrics.Problems(list)
	f.events.problems(list)
}

// listen opens the listeners, so that an address in use is an error at the start, and serves until the context ends.
func (f *faces) listen(ctx context.Context, group *errgroup.Group) error {
	healthz := http.NewServeMux()
	healthz.Handle("/healthz", f.proxy.Healthz())
	healthz.Handle("/livez", f.proxy.Livez())
	metricsMux := http.NewServeMux()
	metricsMux.Handle("/metrics", f.metrics.Handler())
	metricsMux.HandleFunc("/healthz", plain("ok"))
	metricsMux.HandleFunc("/proxyMode", plain(string(f.settings.Backend)))
	group.Go(func() error { return f.serveHealthChecks(ctx) })
	return errors.Join(
		serve(ctx, group, "--healthz-bind-address", f.settings.HealthzBindAddress, healthz),
		serve(ctx, group, "--metrics-bind-address", f.settings.MetricsBindAddress, metricsMux),
	)
}

func plain(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		fmt.Fprint(w, text)
	}
}

// headerTimeout bounds how long a client may take to send its request's header.
const headerTimeout = 10 * time.Second

func serve(ctx context.Context, group *errgroup.Group, flag, address string, h http.Handler) error {
	if address == "" {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("%s=%s: %w", flag, address, err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout}
	group.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve on %s: %w", address, err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	return nil
}

// listenRetry is how often a healthCheckNodePort that could not be listened on is tried again.
const listenRetry = 10 * time.Second

func (f *faces) serveHealthChecks(ctx context.Context) error {
	defer f.servers.Close()
	var want proxier.HealthChecks
	again := time.NewTicker(listenRetry)
	defer again.Stop()
	failing := map[state.Name]string{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case want = <-f.checks:
		case <-again.C:
			if len(failing) == 0 {
				continue
			}
		}
		failing = f.reportListening(failing, f.servers.Sync(want.Services, want.Addresses))
	}
}

// reportListening logs failures that are new and raises the Event that upstream raises.
func (f *faces) reportListening(before map[state.Name]string, failed map[state.Name]error) map[state.Name]string {
	now := map[state.Name]string{}
	for name, err := range failed {
		now[name] = err.Error()
		if before[name] == now[name] {
			continue
		}
		f.log.Warn("cannot listen for health checks of a Service; trying again", "object", name.String(), "every", listenRetry, "error", err)
		f.events.service(name, "FailedToStartServiceHealthcheck", fmt.Sprintf("node %s cannot serve the health check: %v", f.settings.NodeName, err))
	}
	return now
}
