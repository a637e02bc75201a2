package main

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

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/cmd/verdict/ui"
	"github.com/verdict-proxy/verdict/config"
)

// listen opens the listeners, so that an address in use is an error at the start. It serves until the context ends.
func (o *observers) listen(ctx context.Context, group *errgroup.Group, daemon *socket.Daemon) error {
	healthz := http.NewServeMux()
	healthz.Handle("/healthz", o.proxy.Healthz())
	healthz.Handle("/livez", o.proxy.Livez())
	healthz.Handle("/readyz", o.proxy.Readyz())
	group.Go(func() error { return o.serveHealthChecks(ctx) })
	face := o.metricsFace()
	return errors.Join(
		serve(ctx, group, "--healthz-bind-address", o.settings.HealthzBindAddress, healthz),
		o.servePage(ctx, group, face, daemon),
		serve(ctx, group, "--metrics-bind-address", o.settings.MetricsBindAddress, face),
	)
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
		return serve(ctx, group, "--ui-address", address, page)
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
	mux := http.NewServeMux()
	mux.Handle("/metrics", o.metrics.Handler())
	mux.HandleFunc("/healthz", plain("ok"))
	mux.HandleFunc("/proxyMode", plain(proxyMode(o.settings.Backend)))
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

// proxyMode is the mode of kube-proxy that comes closest to a backend. Programs that ask know only those.
func proxyMode(b config.Backend) string {
	if b == config.BackendIPVS {
		return "ipvs"
	}
	return "nftables"
}

// configz answers with the flags in force. None of them is a secret: the kubeconfig is only named.
func (o *observers) configz(w http.ResponseWriter, _ *http.Request) {
	fs, in := pflag.NewFlagSet("configz", pflag.ContinueOnError), *o.inForce.Load()
	bindSettings(fs, &in)
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

// headerTimeout limits how long a client may take to send its request header.
const headerTimeout = 10 * time.Second

func serve(ctx context.Context, group *errgroup.Group, flag, address string, h http.Handler) error {
	if address == "" {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s=%s: %w", flag, address, err)
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
