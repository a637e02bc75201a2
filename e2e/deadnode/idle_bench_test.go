//go:build e2e

package deadnode

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// BenchmarkIdle is the work of a daemon that observes 10,000 Services while nothing is wrong, and of one that does not
// look: how much of a core each takes.
func BenchmarkIdle(b *testing.B) {
	for _, mode := range []string{"observe", "off"} {
		b.Run(mode, func(b *testing.B) {
			p := startIdle(b, mode)
			before, began := workOf(b, p), time.Now()
			for b.Loop() {
				time.Sleep(10 * time.Second)
			}
			b.ReportMetric(100*(workOf(b, p)-before).Seconds()/time.Since(began).Seconds(), "%-of-a-core")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// startIdle starts a daemon with many Services, and waits until it has nothing to do.
func startIdle(b *testing.B, mode string) *lab.Process {
	b.Helper()
	dir, node := b.TempDir(), space(b, "node")
	if err := os.WriteFile(filepath.Join(dir, "cluster.json"), []byte(manyServices(10_000)), 0o644); err != nil {
		b.Fatal(err)
	}
	d := daemon.Run(b, node, b.TempDir(), binary, "run", "--manifests="+dir, "--hostname-override="+lab.NodeName,
		"--outlier-detection="+mode, "--healthz-bind-address=", "--metrics-bind-address=")
	time.Sleep(5 * time.Second) // garbage of the first pass
	return d.Process
}

func manyServices(n int) string {
	var items []string
	for i := range n {
		name := fmt.Sprint("svc-", i)
		items = append(items, fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"shop","name":%q},
"spec":{"clusterIP":"10.96.%d.%d","ports":[{"port":80}]}}`, name, 1+i/250, 1+i%250),
			fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","addressType":"IPv4",
"metadata":{"namespace":"shop","name":"%s-1","labels":{"kubernetes.io/service-name":%q}},"ports":[{"port":8080}],
"endpoints":[{"addresses":["10.0.%d.%d"]},{"addresses":["10.1.%d.%d"]}]}`, name, name, i/250, 1+i%250, i/250, 1+i%250))
	}
	return `{"apiVersion":"v1","kind":"List","items":[` + strings.Join(items, ",\n") + "]}"
}

// workOf is the time that a process has worked.
func workOf(b *testing.B, p *lab.Process) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		b.Fatal(err)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on all architectures that Verdict runs on
	return time.Duration(user+system) * tick
}
