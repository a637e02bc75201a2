package benchupstream

import (
	"context"
	"errors"
	"flag"
	"math"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

var cases = flag.String("cases", "44000:440000,5006:250011", "clusters for BenchmarkSizes, SERVICES:ENDPOINTS, separated by commas")

// plotted are the figures in the plot of BenchmarkSizes.
func plotted() (names, figures []string) {
	return []string{"first sync", "first answer", "one change", "burst of 1,000", "restart", "nft waits"},
		[]string{"first-sync-ns", "start-to-answer-ns", "added-p50-ns", "burst-ns", "restart-to-sync-ns", "first-sync-nft-waits-ns"}
}

// BenchmarkSizes is for the sizes at which kube-proxy was reported to break (kubernetes/kubernetes 139513 and 135639). It
// measures what an operator notices: from a cold start until the first Service answers, changes, a restart, memory, and how
// long another program waits for nf_tables meanwhile.
func BenchmarkSizes(b *testing.B) {
	machine := sayMachine()
	names, figures := plotted()
	chart := measure.Plot{
		Title: "Large clusters (Services:endpoints); what is at the top did not end", Subtitle: machine.String(),
		Groups: names, Y: "milliseconds",
	}
	for text := range strings.SplitSeq(*cases, ",") {
		s, err := parseShape(text)
		lab.Must(b, err)
		b.Run("cluster="+text, func(b *testing.B) {
			p := newPlane(b, s)
			for _, k := range proxyKinds() {
				b.Run("proxy="+k.id, func(b *testing.B) {
					f := measure.Figures{}
					for b.Loop() {
						measureSizes(b, k, p, f)
					}
					line := measure.Line{Name: k.name + ", " + text}
					for i, figure := range figures {
						if value, ok := f[figure]; ok {
							line.Points = append(line.Points, measure.Point{X: float64(i), Y: min(value, float64(*patience)) / float64(time.Millisecond)})
						}
					}
					chart.Lines = append(chart.Lines, line)
					for unit, value := range f {
						b.ReportMetric(value, unit)
					}
					b.ReportMetric(0, "ns/op")
				})
			}
		})
	}
	if *plotFile != "" {
		lab.Must(b, os.WriteFile(*plotFile, []byte(chart.SVG()), 0o644))
	}
}

// sizesBed is one proxy on a node of its own.
type sizesBed struct {
	*running
	plane      *plane
	path       *measure.Path
	kubeconfig string
	figures    measure.Figures
}

// measureSizes measures one proxy. It ends at the first thing that takes too long, whose figure is +Inf.
func measureSizes(b *testing.B, k *proxyKind, p *plane, f measure.Figures) {
	b.Helper()
	kubeconfig, err := p.control.Kubeconfig(apiserver.KubeProxy)
	lab.Must(b, err)
	bed := &sizesBed{plane: p, path: measure.NewPath(b), kubeconfig: kubeconfig, figures: f}
	var accepting sync.WaitGroup
	accepting.Go(bed.path.Accept)
	b.Cleanup(func() { lab.Must(b, bed.path.EndAccept()); accepting.Wait() })
	p.connect(b, bed.path.Node)
	lab.Must(b, bed.path.Node.Load("table inet "+neighborTable+" { chain c { }; }"))
	defer func() { lab.Must(b, bed.process.Kill()) }()
	changes := newChanger(p)
	for _, step := range []struct {
		name, figure string
		run          func() error
	}{
		{"first-sync", "first-sync-ns", func() error { return bed.firstStart(b, k) }},
		{"change", "added-p50-ns", func() error { return bed.change(b, changes) }},
		{"burst", "burst-ns", func() error { return bed.burst(b, changes) }},
		{"restart", "restart-to-sync-ns", func() error { return bed.restart(b, *k) }},
	} {
		stop := neighbor(b, bed.path.Node)
		err := step.run()
		f[step.name+"-nft-waits-ns"] = float64(stop())
		if errors.Is(err, context.DeadlineExceeded) {
			b.Logf("%s: %v", k.name, err)
			f[step.figure] = math.Inf(1)
			return
		}
		lab.Must(b, err)
	}
}

// firstStart starts the proxy on an empty node.
func (s *sizesBed) firstStart(b testing.TB, k *proxyKind) error {
	b.Helper()
	kernel, err := measure.SettledKernelMemory()
	lab.Must(b, err)
	stop := s.connect(b)
	s.running = start(b, k, s.path.Node, s.plane.dir, s.kubeconfig)
	err = s.firstSync(b, kernel, s.figures)
	first, _ := stop()
	if s.figures["start-to-answer-ns"] = float64(first.Sub(s.started)); first.IsZero() {
		s.figures["start-to-answer-ns"] = math.Inf(1)
	}
	return err
}

// change measures single changes.
func (s *sizesBed) change(b testing.TB, c *changer) error {
	w, err := s.watch(s.path.Node)
	lab.Must(b, err)
	defer func() { lab.Must(b, w.close()) }()
	took, _, err := c.isolated(w, *single, s.kind.quiet)
	took.Report(s.figures, "added-")
	return err
}

// burst changes a thousand Services as fast as the API server takes it. Changes of iptables cannot be told apart.
func (s *sizesBed) burst(b testing.TB, c *changer) error {
	if s.kind.legacy {
		return nil
	}
	w, err := s.watch(s.path.Node)
	lab.Must(b, err)
	defer func() { lab.Must(b, w.close()) }()
	_, all, err := c.stream(w, min(1000, c.services/2), 1)
	s.figures["burst-ns"] = float64(all)
	return err
}

// restart ends the proxy as a kubelet does, and starts it again over its rules.
func (s *sizesBed) restart(b testing.TB, k proxyKind) error {
	k.id += "-again" // it has a log of its own
	stop, began := s.connect(b), time.Now()
	_ = s.process.Stop() // kube-proxy does not handle the signal
	s.running = start(b, &k, s.path.Node, s.plane.dir, s.kubeconfig)
	_, err := s.waitSynced(func() {})
	s.figures["restart-to-sync-ns"] = float64(time.Since(began))
	_, failed := stop()
	s.figures["restart-failed-connections"] = float64(failed)
	return err
}

// connect connects to the first Service again and again. What it returns ends that, not before the first answer, and returns
// when that came, and how many connections failed after it.
func (s *sizesBed) connect(b testing.TB) (stop func() (first time.Time, failed int)) {
	var first time.Time
	failed := 0
	ended, done := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for late := time.Now().Add(*patience); time.Now().Before(late); time.Sleep(5 * time.Millisecond) {
			wait := 100 * time.Millisecond // before the rules are there, packets may vanish
			if !first.IsZero() {
				wait = time.Second
			}
			ctx, cancel := context.WithTimeout(b.Context(), wait)
			conn, err := s.path.Client.DialContext(ctx, "tcp", netip.AddrPortFrom(serviceIP(0), 80).String())
			cancel()
			if err == nil {
				_ = conn.(*net.TCPConn).SetLinger(0) // no port stays in use
				_ = conn.Close()
			}
			switch {
			case err == nil && first.IsZero():
				first = time.Now()
			case err != nil && !first.IsZero():
				failed++
			}
			if ended.Err() != nil && !first.IsZero() {
				return
			}
		}
	})
	return func() (time.Time, int) { done(); running.Wait(); return first, failed }
}

const neighborTable = "neighbor"

// neighbor adds rules to a table of its own, as CNI plugins and firewalls do while the proxy works: with the program nft.
// What it returns ends that, and returns the longest time that one took.
func neighbor(b testing.TB, node *lab.Namespace) (stop func() time.Duration) {
	var longest time.Duration
	ended := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		for {
			began := time.Now()
			_, err := node.Command("nft", "add", "rule", "inet", neighborTable, "c", "counter")
			longest = max(longest, time.Since(began))
			if err == nil {
				_, err = node.Command("nft", "flush", "chain", "inet", neighborTable, "c")
			}
			select {
			case <-ended:
				done <- err
				return
			case <-time.After(20 * time.Millisecond):
			}
			if err != nil {
				<-ended
				done <- err
				return
			}
		}
	}()
	return func() time.Duration { close(ended); lab.Must(b, <-done); return longest }
}
