package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/cmd/verdict/ui"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/health"
)

// listen opens the listeners and serves until the context ends. An address in use is an error with --bind-address-hard-fail
// only.
func (o *observers) listen(ctx context.Context, group *errgroup.Group, daemon *socket.Daemon) error {
	healthz := http.NewServeMux()
	healthz.Handle("/healthz", o.proxy.Healthz())
	healthz.Handle("/livez", o.proxy.Livez())
	healthz.Handle("/readyz", o.proxy.Readyz())
	group.Go(func() error { return o.serveHealthChecks(ctx) })
	face, probes := o.metricsFace(), o.settings.ProbeBindAddress
	if covers(o.settings.HealthzBindAddress, probes) {
		probes = ""
	}
	return errors.Join(
		o.serve(ctx, group, listener{"--healthz-bind-address", o.settings.HealthzBindAddress, healthz, health.AnswerTime}),
		o.serve(ctx, group, listener{"--probe-bind-address", probes, healthz, health.AnswerTime}),
		o.servePage(ctx, group, face, daemon),
		o.serve(ctx, group, listener{"--metrics-bind-address", o.settings.MetricsBindAddress, guardLoopback(o.settings.MetricsBindAddress, face), longestAnswer}),
	)
}

// covers reports whether a listener at an address gets the connections to another address as well.
func covers(address, other string) bool {
	host, port, _ := net.SplitHostPort(address) // Validate has accepted both
	_, wanted, _ := net.SplitHostPort(other)
	at, err := netip.ParseAddr(host)
	return address == other || port == wanted && (host == "" || err == nil && at.IsUnspecified())
}

// servePage serves the page /ui, if it is wanted: on --ui-address, or else on the port of the metrics at loopback
// addresses only.
func (o *observers) servePage(ctx context.Context, group *errgroup.Group, face *http.ServeMux, daemon *socket.Daemon) error {
	if !o.settings.UI {
		return nil
	}
	page := ui.New(ui.Options{Daemon: daemon, Log: o.log})
	address, shared := o.settings.UIAddress, o.settings.UIAddress == o.settings.MetricsBindAddress
	if address == "" {
		page = ui.LocalOnly(page)
		address, shared = uiAddress(o.settings.MetricsBindAddress)
	}
	o.log.Info("serving the page", "url", "http://"+address+"/ui/")
	if !shared {
		return o.serve(ctx, group, listener{"--ui-address", address, page, longestAnswer})
	}
	face.Handle("/ui", page)
	face.Handle("/ui/", page)
	return nil
}

// uiAddress is where the page is served at loopback addresses, and whether the listener of the metrics has this address.
func uiAddress(metrics string) (address string, shared bool) {
	host, port, err := net.SplitHostPort(metrics)
	if err != nil { // the metrics are off
		return net.JoinHostPort("127.0.0.1", config.MetricsPort), false
	}
	at, err := netip.ParseAddr(host)
	switch {
	case err == nil && at.IsLoopback():
		return metrics, true
	case err != nil || at.IsUnspecified():
		return net.JoinHostPort("127.0.0.1", port), true
	}
	return net.JoinHostPort("127.0.0.1", port), false
}

// metricsFace answers on --metrics-bind-address, with the paths of kube-proxy.
func (o *observers) metricsFace() *http.ServeMux {
	mode := "nftables" // the mode of kube-proxy that comes closest: programs that ask know only those
	if o.settings.Backend == config.BackendIPVS {
		mode = "ipvs"
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", o.metrics.Handler())
	mux.HandleFunc("/healthz", plain("ok"))
	mux.HandleFunc("/proxyMode", plain(mode))
	mux.HandleFunc("/configz", o.configz)
	if o.settings.Profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// guardLoopback refuses requests for hosts of other names, if the address is a loopback address. The name of a page in a
// browser on this node may lead here (DNS rebinding), and the page must not read the answer. Programs that connect to other
// addresses, such as Prometheus, may use any name.
func guardLoopback(address string, next http.Handler) http.Handler {
	host, _, _ := net.SplitHostPort(address) // Validate has accepted it
	if at, err := netip.ParseAddr(host); err != nil || !at.IsLoopback() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "" && !ui.KnownHost(r.Host, netip.Addr.IsLoopback) { // no browser leaves it out
			http.Error(w, "a loopback address answers only to requests by address or as localhost, because a foreign name may "+
				"lead here without the knowledge of the reader (DNS rebinding)", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// configz answers with the flags in force. None of them is a secret: the kubeconfig is only named.
func (o *observers) configz(w http.ResponseWriter, _ *http.Request) {
	fs, in := pflag.NewFlagSet("configz", pflag.ContinueOnError), *o.inForce.Load()
	flags.Bind(fs, &in)
	values := map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) { values[f.Name] = f.Value.String() })
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(map[string]any{"verdict": values}) // fails only if the client has gone
}

func plain(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		fmt.Fprint(w, text)
	}
}

// longestAnswer is the time for the longest profile that someone may ask for.
const longestAnswer = 5 * time.Minute

// listener is where the daemon answers, and what.
type listener struct {
	flag, address string
	handler       http.Handler
	longest       time.Duration // for one request and its answer
}

// serve serves until the context ends. If it cannot listen, which any program on the node can bring about, it tries again:
// the Services go before.
func (o *observers) serve(ctx context.Context, group *errgroup.Group, at listener) error {
	if at.address == "" {
		return nil
	}
	l, err := at.open(ctx)
	if err != nil && o.settings.BindAddressHardFail {
		return err
	}
	group.Go(func() error {
		if l == nil {
			o.log.Error("cannot answer; going on, and trying again", "every", listenRetry, "error", err)
			if l = at.await(ctx); l == nil {
				return nil
			}
			o.log.Info("listening at last", "flag", at.flag, "address", at.address)
		}
		server := health.NewServer(at.handler, at.longest)
		stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // the process ends
		defer stop()
		if err := server.Serve(health.NewLimiter().Limit(l)); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve on %s: %w", at.address, err)
		}
		return nil
	})
	return nil
}

func (at *listener) open(ctx context.Context) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s=%s: %w", at.flag, at.address, err)
	}
	return l, nil
}

// await returns when it can listen, or nil when the context ends.
func (at *listener) await(ctx context.Context) net.Listener {
	for wait(ctx, listenRetry) {
		if l, err := at.open(ctx); err == nil {
			return l
		}
	}
	return nil
}
