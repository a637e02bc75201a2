package takeover

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
)

// kubeProxyMetrics is where kube-proxy says when it wrote its rules: in IPv6, if its bindAddress is in IPv6.
func kubeProxyMetrics() []string {
	return []string{"http://127.0.0.1:10249/metrics", "http://[::1]:10249/metrics"}
}

// Wait is the wait for kube-proxy before a clean-up: its pod runs before its rules are in the kernel, and connections
// in between would find no translation.
type Wait struct {
	at       []string // where the metrics of kube-proxy may be
	client   *http.Client
	patience time.Duration // how long to wait
	pause    time.Duration // between two questions
	families []string      // of the rules
}

// NewWait returns a wait of at most this time; 0: none. The kernel may have IPv6.
func NewWait(patience time.Duration, ipv6 bool) *Wait {
	h := &Wait{
		at: kubeProxyMetrics(), client: http.DefaultClient, patience: patience, pause: 200 * time.Millisecond, families: []string{"IPv4"},
	}
	if ipv6 {
		h.families = append(h.families, "IPv6")
	}
	return h
}

// Await returns when kube-proxy has rules in all families, or when the node has no kube-proxy. The patience ends in an
// error if kube-proxy runs without rules.
func (h *Wait) Await(ctx context.Context, log *slog.Logger) error {
	if h.patience == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.patience)
	defer cancel()
	answered, missing := false, h.families
	for {
		for _, at := range h.at {
			if written, err := h.ask(ctx, at); err == nil {
				answered, missing = true, slices.DeleteFunc(slices.Clone(h.families), func(f string) bool { return written[f] })
				break
			}
		}
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return h.late(answered, missing, log)
		case <-time.After(h.pause):
		}
	}
}

// late decides when the patience has ended.
func (h *Wait) late(answered bool, missing []string, log *slog.Logger) error {
	families := strings.Join(missing, " and ")
	switch {
	case !answered:
		log.Warn("clean up without another proxy: no kube-proxy answers", "addresses", strings.Join(h.at, " "), "waited", h.patience)
	case len(missing) == len(h.families):
		return fmt.Errorf("clean up: kube-proxy has written no rules within %s; nothing was removed: "+
			"look at the log of kube-proxy, and repeat the clean-up", h.patience)
	default:
		log.Warn("clean up: kube-proxy has rules for one family only; connections of the other one end", "missing", families)
	}
	return nil
}

// lastSync is the metric of kube-proxy that says when it last wrote its rules. Its health does not say that: it is good
// before the first rules are written.
const lastSync = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"

// errVerdict means that Verdict answered in the place of kube-proxy: it has metrics of the same names.
var errVerdict = errors.New("the metrics there are those of Verdict")

// ask returns the families in which kube-proxy has written rules.
func (h *Wait) ask(ctx context.Context, at string) (written map[string]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	answer, err := h.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	written = map[string]bool{}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(series, "verdict_") {
			return nil, errVerdict
		}
		if !strings.HasPrefix(series, lastSync) || value == "0" {
			continue
		}
		for _, f := range h.families {
			if series == lastSync || strings.Contains(series, `"`+f+`"`) { // older kube-proxies have no families there
				written[f] = true
			}
		}
	}
	return written, lines.Err()
}
