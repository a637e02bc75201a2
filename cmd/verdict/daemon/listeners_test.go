package daemon

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// face answers on --metrics-bind-address, with some settings.
func face(t *testing.T, edit func(*config.Settings)) http.Handler {
	t.Helper()
	s := config.Default()
	edit(&s)
	o, err := newObservers(options(s, slog.New(slog.DiscardHandler)), prometheus.NewRegistry(), nil, state.NewStore())
	if err != nil {
		t.Fatal(err)
	}
	return o.metricsFace()
}

func askFace(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// TestProxyMode: programs that ask know the modes of kube-proxy.
func TestProxyMode(t *testing.T) {
	for backend, want := range map[config.Backend]string{
		config.BackendNFT: "nftables", config.BackendHybrid: "nftables", config.BackendIPVS: "ipvs",
	} {
		w := askFace(face(t, func(s *config.Settings) { s.Backend = backend }), "/proxyMode")
		if got := w.Body.String(); got != want || w.Code != http.StatusOK {
			t.Errorf("%s: %d %q, want %q", backend, w.Code, got, want)
		}
	}
}

// TestConfigz: the answer has each flag with the value in force.
func TestConfigz(t *testing.T) {
	w := askFace(face(t, func(s *config.Settings) {
		s.Backend, s.ClusterCIDRs, s.Verbosity = config.BackendNFT, []string{"10.0.0.0/8"}, 4
	}), "/configz")
	var got map[string]map[string]string
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	settings := config.Default()
	fs := pflag.NewFlagSet("all", pflag.ContinueOnError)
	flags.Bind(fs, &settings)
	fs.VisitAll(func(f *pflag.Flag) {
		if _, ok := got["verdict"][f.Name]; !ok {
			t.Errorf("--%s is missing", f.Name)
		}
	})
	for flag, want := range map[string]string{
		"backend": "nft", "cluster-cidr": "[10.0.0.0/8]", "v": "4", "min-sync-period": "10ms", "ipvs-scheduler": "rr",
		"max-service-frontends": "4096", "profiling": "false", "conntrack-min": "131072", "outlier-detection": "observe",
	} {
		if got["verdict"][flag] != want {
			t.Errorf("--%s is %q, want %q", flag, got["verdict"][flag], want)
		}
	}
}

// TestProfiling: profiles are served only when someone asked for them.
func TestProfiling(t *testing.T) {
	for profiling, want := range map[bool]int{false: http.StatusNotFound, true: http.StatusOK} {
		h := face(t, func(s *config.Settings) { s.Profiling = profiling })
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline"} {
			if w := askFace(h, path); w.Code != want {
				t.Errorf("--profiling=%t: %s answers %d, want %d", profiling, path, w.Code, want)
			}
		}
		if w := askFace(h, "/healthz"); w.Code != http.StatusOK || w.Body.String() != "ok" {
			t.Errorf("/healthz answers %d %s", w.Code, w.Body)
		}
		if w := askFace(h, "/metrics"); !strings.Contains(w.Body.String(), "kubeproxy_sync_proxy_rules_service_changes_total 0") {
			t.Errorf("/metrics: %s", w.Body)
		}
	}
}
