package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/events"
	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/health"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestTenantLeavesLinesAboutHealthChecks: many ports of one namespace that cannot be opened do not fill the log.
func TestTenantLeavesLinesAboutHealthChecks(t *testing.T) {
	var text strings.Builder
	s, store, log := config.Default(), state.NewStore(), slog.New(slog.NewTextHandler(&text, nil))
	o, err := newObservers(options(s, log), prometheus.NewRegistry(), events.New(nil, "n", store, log), store)
	if err != nil {
		t.Fatal(err)
	}
	failed := map[state.Name]error{{Namespace: "shop", Name: "web"}: errors.New("injected: in use")}
	for i := range 1000 {
		failed[state.Name{Namespace: "tenant", Name: fmt.Sprint("svc-", i)}] = errors.New("injected: in use")
	}
	o.reportListening(nil, failed)
	for part, want := range map[string]int{"object=tenant/": s.Budgets.NamespaceLogLines, "object=shop/web": 1} {
		if n := strings.Count(text.String(), part); n != want {
			t.Errorf("%d lines with %q, want %d", n, part, want)
		}
	}
}

// TestHealthCheckServerIsStartedAgain: the listener of a healthCheckNodePort ends, and nothing else changes.
func TestHealthCheckServerIsStartedAgain(t *testing.T) {
	var mu sync.Mutex
	var opened []net.Listener
	listeners := func() []net.Listener {
		mu.Lock()
		defer mu.Unlock()
		return opened
	}
	o := &observers{log: slog.New(slog.DiscardHandler), checks: make(chan report.HealthChecks, 1)}
	o.servers = health.NewServers(health.ServersOptions{
		Healthy: func() bool { return true }, Log: o.log,
		Listen: func(network, _ string) (net.Listener, error) {
			l, err := net.Listen(network, "127.0.0.1:0")
			mu.Lock()
			defer mu.Unlock()
			opened = append(opened, l)
			return l, err
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = o.serveHealthChecks(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	o.checks <- report.HealthChecks{
		Services:  map[state.Name]plan.HealthCheck{{Namespace: "shop", Name: "web"}: {NodePort: 32000, LocalIPv4: 2}},
		Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
	}
	await(t, "the server is started", func() bool { return len(listeners()) == 1 })
	if err := listeners()[0].Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "the server is started again", func() bool { return len(listeners()) == 2 })
	r, err := http.Get("http://" + listeners()[1].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK || !strings.Contains(string(body), `"localEndpoints": 2`) {
		t.Errorf("status %s, body %s, error %v", r.Status, body, err)
	}
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within three minutes: %s", what)
		}
	}
}

// TestKernelIsAsked: a refusal of whole tables has the kernel checked. Other passes do not.
func TestKernelIsAsked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		result dataplane.Result
		want   bool
	}{
		{"applied", dataplane.Result{Outcome: kernel.Applied, Full: true}, false},
		{"change refused", dataplane.Result{Outcome: kernel.Rejected, Err: unix.ENOENT}, false},
		{"tables refused", dataplane.Result{Outcome: kernel.Rejected, Full: true, Err: unix.ENOENT}, true},
	} {
		if got := tablesRefused(&report.Pass{Result: tt.result}); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// options are those of a daemon with these settings.
func options(s config.Settings, log *slog.Logger) *Options {
	return &Options{CommandLine: &flags.CommandLine{Settings: s}, Version: "v0.0.0-test", Log: log}
}
