//go:build e2e

package flood

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

const convertedServices, convertedEndpoints, convertedParts = 2000, 5, 5

// convertedInterval is the mean of the seconds between two checks of an endpoint: up to a tenth more than the configuration says.
const convertedInterval = 5.25

// keepalivedConfig has virtual servers whose real servers are on a farm, each with a check every five seconds.
func keepalivedConfig() string {
	var text strings.Builder
	for i := range convertedServices {
		fmt.Fprintf(&text, "virtual_server 10.97.%d.%d 80 {\n  delay_loop 5\n  lb_algo rr\n  lb_kind NAT\n  protocol TCP\n", i>>8, i&0xff)
		for j := range convertedEndpoints {
			k := i*convertedEndpoints + j
			a := netip.AddrFrom4([4]byte{10, 50, byte(k >> 8), byte(k)})
			fmt.Fprintf(&text, "  real_server %s %d {\n    HTTP_GET {\n      url {\n        path /\n        status_code 200\n      }\n    }\n  }\n", a, othersPort)
		}
		text.WriteString("}\n")
	}
	return text.String()
}

// BenchmarkConverted runs the daemon with what "verdict convert" makes of a configuration of keepalived. Each iteration takes a
// second. The checks must be on time. Memory and descriptors must not grow from the second fifth of the time to the last one: in the first, caches fill.
func BenchmarkConverted(b *testing.B) {
	bed := &bed{World: lab.New(b), dir: b.TempDir()}
	farm := bed.newFarm(b)
	bed.startConverted(b)
	began := time.Now()
	values := map[string][]float64{}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := bed.memory(b)
	for b.Loop() {
		<-tick.C
		now := bed.memory(b)
		descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", bed.daemon.PID()))
		lab.Must(b, err)
		values[memory] = append(values[memory], float64(now.RSS)/(1<<20))
		values[cpu] = append(values[cpu], float64(now.CPU-last.CPU)/float64(time.Second)*100)
		values[fds] = append(values[fds], float64(len(descriptors)))
		last = now
	}
	b.ReportMetric(0, "ns/op")
	rate := float64(len(farm.pauses(began))) / time.Since(began).Seconds()
	if b.ReportMetric(rate, "checks/s"); rate < 0.95*convertedServices*convertedEndpoints/convertedInterval {
		b.Errorf("%.0f checks a second: they are late", rate)
	}
	bed.Node.MustDo(b, func() error {
		failing, err := socket.NewClient().Outliers()
		if len(failing) > 0 {
			b.Errorf("%d endpoints do not pass their checks", len(failing))
		}
		return err
	})
	flat(b, values)
}

const memory, cpu, fds = "resident memory, MiB", "processor time, % of a core", "open descriptors"

// startConverted converts the configuration and starts the daemon.
func (b *bed) startConverted(t testing.TB) {
	t.Helper()
	manifests := filepath.Join(b.dir, "manifests")
	err := errors.Join(os.Mkdir(manifests, 0o755), lab.WriteFile(b.dir, "keepalived.conf", []byte(keepalivedConfig())))
	lab.Must(t, err)
	text, err := b.Node.Command(verdict, "convert", filepath.Join(b.dir, "keepalived.conf"))
	if err == nil {
		err = lab.WriteFile(manifests, "balancers.yaml", []byte(text))
	}
	lab.Must(t, err)
	p, err := lab.NewProcess(lab.ProcessOptions{Name: "verdict", Namespace: b.Node, Dir: b.dir, Command: []string{
		verdict, "run", "--manifests=" + manifests, "--hostname-override=" + lab.NodeName, "--backend=nft", "--healthz-bind-address=", "--metrics-bind-address=",
	}})
	lab.Must(t, err)
	t.Cleanup(func() { _ = p.Stop() })
	b.daemon = &daemon.Daemon{Process: p, Node: b.Node}
	b.daemon.WaitFor(t, "all balancers", func(s *socket.Status) bool {
		return s.Synced && s.Frontends == convertedServices && s.Endpoints == convertedServices*convertedEndpoints
	})
}

// flat prints the medians of the parts, and reports what has grown.
func flat(b *testing.B, values map[string][]float64) {
	b.Helper()
	table := measure.Table{Head: []string{"median of each fifth", "1", "2", "3", "4", "5"}}
	for _, name := range []string{memory, cpu, fds} {
		row, medians := []string{name}, []float64{}
		for part := range convertedParts {
			n := len(values[name])
			medians = append(medians, measure.MedianOf(values[name][part*n/convertedParts:(part+1)*n/convertedParts]))
			row = append(row, fmt.Sprintf("%.1f", medians[part]))
		}
		if now := medians[convertedParts-1]; now > medians[1]*1.1+1 {
			b.Errorf("%s: from %.1f to %.1f", name, medians[1], now)
		}
		table.Add(row...)
	}
	fmt.Printf("%v\n\n%v", measure.ThisMachine(), &table)
}
