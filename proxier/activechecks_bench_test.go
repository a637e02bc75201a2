//go:build !nokernel

package proxier

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/activecheck"
	"github.com/verdict-proxy/verdict/proxier/prober"
	"github.com/verdict-proxy/verdict/proxier/state"
)

const serveForBenchmark = "VERDICT_TEST_SERVE"

// serveChecks is the server of BenchmarkActiveChecks, in a process of its own, so that its work is not counted.
func serveChecks() {
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		panic(err) // ends the child; the benchmark sees no address
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the benchmark closes it when it ends
		os.Exit(0)
	}()
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })) // until then
}

// BenchmarkActiveChecks asks 5,000 endpoints every 5 seconds, over loopback, and reports how much of a core this takes.
// The endpoints are addresses of a server in another process. What the kernel does for the server's side of a connection
// is counted, too: over loopback, the client's process does it.
func BenchmarkActiveChecks(b *testing.B) {
	for _, text := range []string{"tcp", "http"} {
		b.Run(text, func(b *testing.B) {
			port := serve(b)
			check, err := state.ParseHealthCheck(text)
			if err != nil {
				b.Fatal(err)
			}
			r := newCheckedRig(shop(func(s *state.Service) { s.Check = &check }), 5000, 0, OutlierOptions{
				Check: func(ctx context.Context, t activecheck.Target, c *state.HealthCheck) activecheck.Result {
					a := t.At.Addr().As4()
					t.At = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, a[2], a[3] | 1}), port)
					return prober.Check(ctx, t, c)
				},
			})
			r.plan()
			ctx, stop := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			time.Sleep(check.Interval) // the first questions
			before, began := cpuTime(b), time.Now()
			for b.Loop() {
				time.Sleep(check.Interval)
			}
			b.ReportMetric(100*(cpuTime(b)-before).Seconds()/time.Since(began).Seconds(), "%-of-a-core")
			stop()
			<-done
			all, failing := r.checker.Counts()
			if b.ReportMetric(0, "ns/op"); all != 5000 || failing > 0 {
				b.Fatalf("%d of %d checks fail", failing, all)
			}
		})
	}
}

// serve starts the server of TestMain, and returns its port.
func serve(b *testing.B) (port uint16) {
	b.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), serveForBenchmark+"=1")
	in, err := child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = child.Wait() // it has done its work
	})
	if _, err := fmt.Fscan(out, &port); err != nil {
		b.Fatal(err)
	}
	return port
}

// cpuTime is the time that this process has worked.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
