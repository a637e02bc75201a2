package benchupstream

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// The flags of the benchmark.
var (
	sizes = flag.String("sizes", "100,1000,5000,10000,50000",
		"numbers of Services, separated by commas; a proxy that would take too long at a size is left out")
	binary   = flag.String("verdict", "", "the `FILE` of Verdict")
	binaries = flag.String("upstream", "", "`DIR` with etcd, kube-apiserver and kube-proxy (e2e/controlplane/build.sh prints it)")
	single   = flag.Int("changes", 15, "`N` single changes for each proxy at each size")
	seconds  = flag.Int("seconds", 10, "each stream of changes lasts `N` seconds")
	patience = flag.Duration("patience", 20*time.Minute, "how long a proxy may take for one thing; what takes longer is not measured")
	savedIn  = flag.String("saved", "", "keep the etcd of each cluster in `DIR`, and start from it next time")
	plotFile = flag.String("plot", "", "draw the latency of one change into `FILE` (SVG)")
	profile  = flag.String("profile", "", "write what Verdict's processor does under the busy stream into `FILE` (\"go tool pprof\")")
)

// BenchmarkProxy measures each proxy at each size. Each size has its own control plane, and each proxy its own node. It
// measures once, so it is for -benchtime 1x.
func BenchmarkProxy(b *testing.B) {
	if *binary == "" || *binaries == "" {
		b.Fatal("-verdict or -upstream is missing")
	}
	latency, machine := map[string][]measure.Point{}, sayMachine()
	for text := range strings.SplitSeq(*sizes, ",") {
		services, err := strconv.Atoi(text)
		lab.Must(b, err)
		b.Run("services="+text, func(b *testing.B) {
			p := newPlane(b, tenEach(services))
			for _, k := range proxyKinds() {
				if services > k.most {
					continue
				}
				b.Run("proxy="+k.id, func(b *testing.B) {
					f := measure.Figures{}
					for b.Loop() {
						measureProxy(b, k, p, f)
					}
					for unit, value := range f {
						b.ReportMetric(value, unit)
					}
					b.ReportMetric(0, "ns/op") // of everything together, it says nothing
					milliseconds := f["added-p50-ns"] / float64(time.Millisecond)
					latency[k.name] = append(latency[k.name], measure.Point{X: float64(services), Y: milliseconds})
				})
			}
		})
	}
	if *plotFile != "" {
		lab.Must(b, os.WriteFile(*plotFile, []byte(plot(latency, machine)), 0o644))
	}
}

// sayMachine prints the machine among the lines of the benchmark: figures mean nothing without it.
func sayMachine() measure.Machine {
	m := measure.ThisMachine()
	fmt.Println("machine:", m)
	return m
}

// plot draws the latency of one change.
func plot(latency map[string][]measure.Point, m measure.Machine) string {
	p := measure.Plot{
		Title:    "One endpoint added: from the PUT to the API server until the kernel has it",
		Subtitle: "10 endpoints per Service; " + m.String(),
		X:        "Services", Y: "milliseconds (median)",
	}
	for _, k := range proxyKinds() {
		p.Lines = append(p.Lines, measure.Line{Name: k.name, Points: latency[k.name]})
	}
	return p.SVG()
}

// rest is the pause between the first synchronization of a proxy and the measurement of its memory.
const rest = 3 * time.Second

// measureProxy measures one proxy on a node of its own.
func measureProxy(b *testing.B, k *proxyKind, p *plane, f measure.Figures) {
	b.Helper()
	path := measure.NewPath(b)
	p.connect(b, path.Node)
	kubeconfig, err := p.control.Kubeconfig(apiserver.KubeProxy)
	lab.Must(b, err)
	kernel, err := measure.SettledKernelMemory()
	lab.Must(b, err)
	r := start(b, k, path.Node, p.dir, kubeconfig)
	defer func() { lab.Must(b, r.process.Kill()) }()
	lab.Must(b, r.firstSync(b, kernel, f))
	countRules(b, path.Node, k.legacy, f)
	c := newChanger(p)
	r.changes(b, c, path.Node, f)
	r.busy(b, c, path.Node, f)
	measure.Compare(b, path, netip.AddrPortFrom(serviceIP(0), 80))(f)
}

// firstSync waits for the first synchronization and measures its cost, also that of one that does not end in time.
func (r *running) firstSync(b testing.TB, kernelBefore int64, f measure.Figures) error {
	b.Helper()
	var largest int64
	took, late := r.waitSynced(func() {
		if _, child, err := r.usage(); err == nil { // an error means that the process is exiting, which waitSynced reports
			largest = max(largest, child)
		}
	})
	if late == nil {
		f["first-sync-ns"], f["start-to-sync-ns"] = float64(took), float64(time.Since(r.started))
	}
	used, _, err := r.usage()
	lab.Must(b, err)
	f["cpu-to-sync-ns"], f["cpu-in-kernel-to-sync-ns"] = float64(used.CPU+used.ChildrenCPU), float64(used.SystemCPU)
	time.Sleep(rest)
	used, _, err = r.usage()
	lab.Must(b, err)
	kernel, err := measure.KernelMemory()
	lab.Must(b, err)
	f["resident-B"], f["peak-B"] = float64(used.RSS), float64(used.Peak)
	f["largest-child-B"], f["kernel-B"] = float64(largest), float64(kernel-kernelBefore)
	return late
}

// watch watches the kernel's rules.
func (r *running) watch(node *lab.Namespace) (watcher, error) {
	if r.kind.legacy {
		return watchEntries(node)
	}
	return watchNotifications(node)
}

// changes measures single changes, then a stream of them.
func (r *running) changes(b testing.TB, c *changer, node *lab.Namespace, f measure.Figures) {
	b.Helper()
	w, err := r.watch(node)
	lab.Must(b, err)
	defer func() { lab.Must(b, w.close()) }()
	change, puts, err := c.isolated(w, *single, r.kind.quiet)
	lab.Must(b, err)
	change.Report(f, "added-")
	f["put-p50-ns"] = float64(puts.Median())
	streamed := w
	if r.kind.legacy {
		streamed = nil // changes of iptables cannot be told apart
	}
	var sample measure.Sample
	f["stream-cpu-%"] = r.cost(b, func() (err error) {
		sample, _, err = c.stream(streamed, streamPerSecond, *seconds)
		return err
	})
	if len(sample) > 0 {
		sample.Report(f, "stream-")
	}
}

// busy measures the cost of a stream of many changes. Nothing watches the kernel during it.
func (r *running) busy(b testing.TB, c *changer, node *lab.Namespace, f measure.Figures) {
	b.Helper()
	if *profile != "" && r.kind.id == "verdict" {
		written := make(chan error, 1)
		go func() {
			page, err := node.Get(b.Context(), fmt.Sprintf("http://127.0.0.1:10249/debug/pprof/profile?seconds=%d", *seconds))
			written <- errors.Join(err, os.WriteFile(*profile, []byte(page.Body), 0o644))
		}()
		defer func() { lab.Must(b, <-written) }()
	}
	begin := time.Now()
	f["busy-cpu-%"] = r.cost(b, func() error {
		_, _, err := c.stream(nil, busyPerSecond, *seconds)
		return err
	})
	f["busy-changes/sec"] = float64(*seconds*busyPerSecond) / time.Since(begin).Seconds()
}

// cost does work and returns the CPU time that the proxy and its children used during it, in percent of a core.
func (r *running) cost(b testing.TB, work func() error) float64 {
	b.Helper()
	before, _, err := r.usage()
	lab.Must(b, err)
	begin := time.Now()
	lab.Must(b, work())
	elapsed := time.Since(begin)
	after, _, err := r.usage()
	lab.Must(b, err)
	used := after.CPU + after.ChildrenCPU - before.CPU - before.ChildrenCPU
	return 100 * used.Seconds() / elapsed.Seconds()
}
