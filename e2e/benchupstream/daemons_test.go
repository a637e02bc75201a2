package benchupstream

import (
	"flag"
	"fmt"
	"math"
	"net/http"
	"sort"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

var daemons = flag.Int("daemons", 50, "`N` nodes with Verdict for BenchmarkDaemons")

// BenchmarkDaemons is what a fleet can see of the latency of a change: many daemons at one API server, 100 Services, and one new
// endpoint a second. It asks their metrics for the 99th percentile over all nodes, as the recording rules do.
func BenchmarkDaemons(b *testing.B) {
	p := newPlane(b, tenEach(100))
	kubeconfig, err := p.control.Kubeconfig(apiserver.KubeProxy)
	lab.Must(b, err)
	nodes := make([]*lab.Namespace, *daemons)
	for i := range nodes {
		nodes[i] = &lab.Namespace{Namespace: netns.New(b)}
		p.connect(b, nodes[i])
		kind := *proxyKinds()[0]
		kind.id = fmt.Sprint("verdict-", i)
		r := start(b, &kind, nodes[i], p.dir, kubeconfig)
		b.Cleanup(func() { lab.Must(b, r.process.Kill()) })
		_, err := r.waitSynced(func() {})
		lab.Must(b, err)
	}
	for b.Loop() {
		_, _, err = newChanger(p).stream(nil, 1, *seconds)
		lab.Must(b, err)
	}
	time.Sleep(rest) // in which the last change arrives everywhere, and kept answers to scrapes are forgotten
	ours, upstream := newQuantiles(), newQuantiles()
	for _, node := range nodes {
		page, err := node.Get(b.Context(), "http://127.0.0.1:10249/metrics")
		lab.Must(b, err)
		if page.Code != http.StatusOK {
			b.Fatal("/metrics answers", page.Code)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(page.Body))
		lab.Must(b, err)
		ours.add(families["verdict_change_duration_seconds"], "endpoint_added")
		upstream.add(families["kubeproxy_network_programming_duration_seconds"], "IPv4")
	}
	if want := float64(*daemons * *seconds); ours.count < want {
		b.Errorf("%v changes were counted, want %v: %d on each node", ours.count, want, *seconds)
	}
	for name, q := range map[string]quantiles{"verdict-change": ours, "kubeproxy-programming": upstream} {
		b.ReportMetric(1e9*q.of(0.5), name+"-p50-ns")
		b.ReportMetric(1e9*q.of(0.99), name+"-p99-ns")
	}
	b.ReportMetric(ours.count, "changes")
	b.ReportMetric(0, "ns/op")
}

// quantiles sums the buckets of histograms of several nodes.
type quantiles struct {
	buckets map[float64]float64 // by upper bound, cumulative
	count   float64
}

func newQuantiles() quantiles { return quantiles{buckets: map[float64]float64{}} }

// add adds the series of a histogram whose only label has this value.
func (q *quantiles) add(f *dto.MetricFamily, value string) {
	for _, m := range f.GetMetric() {
		if m.GetLabel()[0].GetValue() != value {
			continue
		}
		for _, bucket := range m.GetHistogram().GetBucket() {
			q.buckets[bucket.GetUpperBound()] += float64(bucket.GetCumulativeCount())
		}
		q.count += float64(m.GetHistogram().GetSampleCount())
	}
}

// of is histogram_quantile of Prometheus: it takes values within a bucket as evenly spread.
func (q *quantiles) of(part float64) float64 {
	bounds := make([]float64, 0, len(q.buckets))
	for bound := range q.buckets {
		bounds = append(bounds, bound)
	}
	sort.Float64s(bounds)
	lower, before := 0.0, 0.0
	for _, bound := range bounds {
		if n := q.buckets[bound]; n >= part*q.count && n > before {
			if math.IsInf(bound, 1) {
				return lower
			}
			return lower + (bound-lower)*(part*q.count-before)/(n-before)
		}
		lower, before = bound, q.buckets[bound]
	}
	return lower
}
