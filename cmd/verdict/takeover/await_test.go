package takeover

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Metrics of kube-proxy 1.37 before and after it has written its rules, and those of an older one.
const (
	other        = "kubeproxy_proxy_healthz_total{code=\"200\"} 1\n"
	halfWritten  = other + "# TYPE " + lastSync + " gauge\n" + lastSync + "{ip_family=\"IPv4\"} 1.7953e+09\n"
	written      = halfWritten + lastSync + "{ip_family=\"IPv6\"} 1.7953e+09\n"
	oldUnwritten = other + lastSync + " 0\n"
	oldWritten   = other + lastSync + " 1.7953e+09\n"
)

// kubeProxy answers questions for metrics, one after the other. The last answer stays. Without answers, nobody listens.
type kubeProxy struct {
	host    string // where it listens
	answers []string
	asked   int
}

func (k *kubeProxy) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != k.host {
		return nil, syscall.ECONNREFUSED
	}
	k.asked++
	if len(k.answers) == 0 {
		return nil, syscall.ECONNREFUSED
	}
	w := httptest.NewRecorder()
	_, err := w.WriteString(k.answers[min(k.asked, len(k.answers))-1])
	return w.Result(), err
}

type handover struct {
	name    string
	answers []string
	asked   int // at least
	took    time.Duration
	err     string
	log     string
}

// TestHandover: kube-proxy listens in either family.
func TestHandover(t *testing.T) {
	for _, c := range []handover{
		{name: "rules are there", answers: []string{written}, asked: 1},
		{name: "rules come", answers: []string{other, halfWritten, written}, asked: 3, took: 2 * time.Second},
		{name: "no rules", answers: []string{other}, asked: 10, took: 10 * time.Second, err: "nothing was removed"},
		{name: "one family", answers: []string{halfWritten}, asked: 10, took: 10 * time.Second, log: "missing=IPv6"},
		{name: "no kube-proxy", asked: 10, took: 10 * time.Second, log: "no kube-proxy answers"},
		{name: "Verdict answers", answers: []string{written + "verdict_passes_total 3\n"}, asked: 10, took: 10 * time.Second, log: "no kube-proxy answers"},
		{name: "old kube-proxy", answers: []string{oldUnwritten, oldWritten}, asked: 2, took: time.Second},
	} {
		for _, host := range []string{"127.0.0.1:10249", "[::1]:10249"} {
			// The clock of synctest lets no question be late.
			t.Run(c.name+" at "+host, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { c.run(t, host) }) })
		}
	}
}

func (c *handover) run(t *testing.T, host string) {
	peer := &kubeProxy{host: host, answers: c.answers}
	h := &Wait{
		at: kubeProxyMetrics(), client: &http.Client{Transport: peer}, patience: 10 * time.Second, pause: time.Second,
		families: []string{"IPv4", "IPv6"},
	}
	var log strings.Builder
	began := time.Now()
	err := h.Await(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
	if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
		t.Errorf("error %v, want %q", err, c.err)
	}
	if took := time.Since(began); took != c.took || peer.asked < c.asked || !strings.Contains(log.String(), c.log) {
		t.Errorf("%s, asked %d times, log %q; want %s, %d and %q", took, peer.asked, log.String(), c.took, c.asked, c.log)
	}
}
