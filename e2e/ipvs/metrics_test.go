//go:build ipvs

package ipvs

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestMetrics compares what /metrics and "verdict top" say of IPVS with ipvsadm and with what clients did.
func TestMetrics(t *testing.T) {
	each(t, []test{{"beside ipvsadm", hybrid(), metricsBesideIpvsadm}, {"connections of service ports", hybrid(), connectionsBesideIpvsadm}, {"rates", hybrid(), ratesOfTop}})
}

// metric reads the values of a metric, by the value of its first label; "" without a label. Of a metric of Services it reads
// that of the test.
func (b *bed) metric(name string) map[string]float64 {
	b.Helper()
	page, err := b.World().Node.Get(context.Background(), "http://127.0.0.1:10249/metrics")
	b.must(err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page.Body))
	b.must(err)
	values := map[string]float64{}
	for _, m := range families[name].GetMetric() {
		isOther := func(l *dto.LabelPair) bool { return l.GetName() == "service" && l.GetValue() != "web" }
		if slices.ContainsFunc(m.GetLabel(), isOther) {
			continue
		}
		values[label(m)] = m.GetGauge().GetValue() + m.GetCounter().GetValue() // it is one of the two
	}
	return values
}

func label(m *dto.Metric) string {
	if len(m.GetLabel()) == 0 {
		return ""
	}
	return m.GetLabel()[0].GetValue()
}

func metricsBesideIpvsadm(b *bed) {
	b.must(b.Settle())
	if got := b.metric("verdict_ipvs_virtual_servers"); len(got) != 0 && got[""] != 0 {
		b.Errorf("virtual servers before there are any: %v", got)
	}
	b.foreign(b.vip.Next(), 80) // does not count
	b.serve("wlc", everyFrontend)
	b.settled("endpoints web a b c")
	for range 5 {
		b.hold("x", b.at(80))
	}
	for range 3 {
		b.once("x", b.at(80))
	}
	var servers int
	var states map[string]float64
	b.until(30*time.Second, "the metrics are those of ipvsadm", func() bool {
		servers, states = b.ipvsadm()
		got := b.metric("verdict_ipvs_connections")
		return b.metric("verdict_ipvs_virtual_servers")[""] == float64(servers) && got["active"] == states["active"] &&
			got["inactive"] == states["inactive"]
	})
	if servers != 3 || states["active"] < 5 {
		b.Errorf("ipvsadm has %d virtual servers and the connections %v; want 3, and 5 active connections", servers, states)
	}
}

// connectionsBesideIpvsadm: the connections of a service port are those of its virtual servers, also at a node port and
// after one more client.
func connectionsBesideIpvsadm(b *bed) {
	b.serve("wlc", everyFrontend)
	b.settled("endpoints web a b c")
	nodePort := b.at(80)
	nodePort.To = netip.AddrPortFrom(b.address("NODE"), 30080)
	metric := func() float64 { return b.metric("verdict_service_connections_total")[b.family.String()] }
	earlier := metric() // those of other tests with the same service port and daemon
	var counted, balanced float64
	defer func() { b.Logf("at the end, ipvsadm says %v, and the metric %v", balanced, counted) }()
	for n := range 3 {
		b.once("x", b.at(80))
		b.once("x", nodePort)
		b.until(30*time.Second, "the connections are those of ipvsadm", func() bool {
			balanced = b.balanced()
			counted = metric() - earlier
			return counted == balanced && balanced == float64(2*n+2)
		})
	}
}

// balanced sums up the connections that ipvsadm --stats has for virtual servers. The kernel sums its counters up when it is
// asked.
func (b *bed) balanced() (sum float64) {
	b.Helper()
	for line := range strings.Lines(b.node("ipvsadm", "-Ln", "--stats", "--exact")) {
		if w := strings.Fields(line); len(w) > 2 && w[0] == "TCP" {
			var n float64
			_, err := fmt.Sscan(w[2], &n)
			b.must(err)
			sum += n
		}
	}
	return sum
}

// ipvsadm counts virtual servers and their connections, without those of another tool.
func (b *bed) ipvsadm() (servers int, states map[string]float64) {
	b.Helper()
	states = map[string]float64{"active": 0, "inactive": 0}
	own := false
	for line := range strings.Lines(b.node("ipvsadm", "-Ln")) {
		w := strings.Fields(line)
		switch {
		case len(w) >= 3 && w[0] == "TCP":
			if own = w[1] != netip.AddrPortFrom(b.vip.Next(), 80).String(); own {
				servers++
			}
		case own && len(w) == 6 && w[0] == "->" && w[2] == "Masq":
			var active, inactive float64
			_, err := fmt.Sscan(w[4]+" "+w[5], &active, &inactive)
			b.must(err)
			states["active"] += active
			states["inactive"] += inactive
		}
	}
	return servers, states
}

// ratesOfTop: the rate of a Service that IPVS serves is that of its clients, and its endpoints share it. The clients, and each of
// the commands, measure at times of their own, so the test goes on until the machine is steady for that long.
func ratesOfTop(b *bed) {
	b.serve("rr", "ports: [{name: http, port: 80}]")
	b.settled("endpoints web b c")
	b.until(5*time.Minute, "top has the rates of the clients", b.topHasTheRates)
}

func (b *bed) topHasTheRates() bool {
	c := b.connecting("x", b.at(80))
	time.Sleep(3 * time.Second) // the kernel sums its counters up every two seconds
	began := time.Now()
	service := b.node(verdict().Binary, "top", "--once", "--interval", "4s", "default/web")
	took := time.Since(began)
	ends := b.node(verdict().Binary, "top", "--once", "--endpoints", "--interval", "4s", "default/web")
	close(c.stop)
	c.done.Wait()
	mean := float64(c.total) / time.Since(began.Add(-3*time.Second)).Seconds()
	b.Logf("%d connections, %.1f a second; top took %s\n%s\n%s", c.total, mean, took, service, ends)
	rate := rateOf(service, `default/web:http +([0-9.]+)`)
	right := mean/2 <= rate && rate <= 2*mean
	for _, pod := range []string{"b", "c"} {
		at := netip.AddrPortFrom(lab.PodAddress(b.family, pod), lab.Ports()[0]).String()
		rate := rateOf(ends, `default/web:http +`+regexp.QuoteMeta(at)+` +([0-9.]+) +ipvs`)
		right = right && mean/4 <= rate && rate <= mean
	}
	return right
}

// rateOf returns the number in a text; -1: it has none.
func rateOf(text, pattern string) float64 {
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	rate := -1.0
	if found != nil {
		_, _ = fmt.Sscan(found[1], &rate) // the pattern has made sure that it is a number
	}
	return rate
}
