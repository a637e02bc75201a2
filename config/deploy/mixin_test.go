//go:build e2e

package deploy

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// mixinQueries are the expressions about kube-proxy of kubernetes-mixin (alerts/kube_proxy.libsonnet and
// dashboards/proxy.libsonnet, September 2026), which kube-prometheus and kube-prometheus-stack take over.
var mixinQueries = strings.Fields(strings.NewReplacer("KP", `cluster="c",job="kube-proxy"`, "IN", `cluster="c",job="kube-proxy",instance=~".+"`).Replace(`
	absent(up{job="kube-proxy"})
	up{job="kube-proxy"}==0
	sum(up{KP})
	sum(rate(kubeproxy_sync_proxy_rules_duration_seconds_count{IN}[5m]))
	histogram_quantile(0.99,rate(kubeproxy_sync_proxy_rules_duration_seconds_bucket{IN}[5m]))
	sum(rate(kubeproxy_network_programming_duration_seconds_count{IN}[5m]))
	histogram_quantile(0.99,sum(rate(kubeproxy_network_programming_duration_seconds_bucket{IN}[5m]))by(instance,le))
	sum(rate(rest_client_requests_total{IN,code=~"2.."}[5m]))
	histogram_quantile(0.99,sum(rate(rest_client_request_duration_seconds_bucket{IN,verb="POST"}[5m]))by(verb,le))
	histogram_quantile(0.99,sum(rate(rest_client_request_duration_seconds_bucket{IN,verb="GET"}[5m]))by(verb,le))
	process_resident_memory_bytes{IN}
	rate(process_cpu_seconds_total{IN}[5m])
	go_goroutines{IN}`))

// mixin scrapes Verdict as a Prometheus whose monitor gives it the job of kube-proxy, and looks for the series that each
// expression selects.
func (c *cluster) mixin(t *testing.T) {
	client := http.Client{Transport: &http.Transport{DialContext: c.ns.DialContext, DisableKeepAlives: true}}
	var series []map[string]string
	for _, query := range mixinQueries {
		for _, selector := range regexp.MustCompile(`(\w+)\{([^}]*)\}`).FindAllStringSubmatch(query, -1) {
			c.await(t, "a series of "+query, func() (bool, error) {
				r, err := client.Get("http://127.0.0.1:10249/metrics")
				if err != nil {
					return false, err
				}
				defer r.Body.Close()
				parser := expfmt.NewTextParser(model.UTF8Validation)
				families, err := parser.TextToMetricFamilies(r.Body)
				series = seriesOf(families)
				for _, s := range series {
					if selects(selector[1], selector[2], s) {
						return true, nil
					}
				}
				return false, err
			})
		}
	}
	if len(series) < 100 {
		t.Errorf("only %d series", len(series))
	}
}

// seriesOf returns the labels of each series as Prometheus stores it.
func seriesOf(families map[string]*dto.MetricFamily) []map[string]string {
	list := []map[string]string{{"__name__": "up"}}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			names := map[string]string{name: ""}
			if h := m.GetHistogram(); h != nil {
				names = map[string]string{name + "_count": "", name + "_sum": "", name + "_bucket": "+Inf"}
			}
			for name, le := range names {
				s := map[string]string{"__name__": name}
				for _, l := range m.GetLabel() {
					s[l.GetName()] = l.GetValue()
				}
				if le != "" {
					s["le"] = le
				}
				list = append(list, s)
			}
		}
	}
	for _, s := range list {
		s["job"], s["cluster"], s["instance"] = "kube-proxy", "c", "10.252.0.1:10249"
	}
	return list
}

// selects reports whether a selector has a series.
func selects(name, matchers string, series map[string]string) bool {
	if series["__name__"] != name {
		return false
	}
	for _, m := range regexp.MustCompile(`(\w+)(=~?)"([^"]*)"`).FindAllStringSubmatch(matchers, -1) {
		pattern := m[3]
		if m[2] == "=" {
			pattern = regexp.QuoteMeta(pattern)
		}
		if !regexp.MustCompile("^(?:" + pattern + ")$").MatchString(series[m[1]]) {
			return false
		}
	}
	return true
}
