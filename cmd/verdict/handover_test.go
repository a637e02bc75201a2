package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
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

func TestHandover(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []string // the last one stays
		asked   int      // at least
		err     string
		log     string
	}{
		{name: "rules are there", answers: []string{written}, asked: 1},
		{name: "rules come", answers: []string{other, halfWritten, written}, asked: 3},
		{name: "no rules", answers: []string{other}, asked: 2, err: "nothing was removed"},
		{name: "one family", answers: []string{halfWritten}, asked: 2, log: "missing=IPv6"},
		{name: "no kube-proxy", log: "no kube-proxy answers"},
		{name: "old kube-proxy", answers: []string{oldUnwritten, oldWritten}, asked: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			gone := len(c.answers) == 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				n := min(int(asked.Add(1)), len(c.answers))
				fmt.Fprint(w, c.answers[n-1])
			}))
			if gone {
				server.Close()
			} else {
				defer server.Close()
			}
			h := &handover{at: server.URL, patience: 30 * time.Second, pause: time.Millisecond, families: []string{"IPv4", "IPv6"}}
			if c.err != "" || c.log != "" {
				h.patience = time.Second // they wait for its end
			}
			var log strings.Builder
			err := h.await(context.Background(), slog.New(slog.NewTextHandler(&log, nil)))
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if !strings.Contains(log.String(), c.log) || int(asked.Load()) < c.asked {
				t.Errorf("asked %d times, log %q; want %d and %q", asked.Load(), log.String(), c.asked, c.log)
			}
		})
	}
}
