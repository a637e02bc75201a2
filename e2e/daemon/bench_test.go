//go:build !nokernel

package daemon

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// The size at which commands are measured.
var benchServices = flag.Int("services", 10_000, "how many Services the daemon of a benchmark has, with 10 endpoints each")

const benchEndpoints = 10

// commandsToMeasure are all commands that read what a running daemon wrote. Those that list everything may take longer.
func commandsToMeasure(manifests string) map[string]string {
	return map[string]string{
		"list":             "list",
		"list-terse":       "list --terse",
		"list-problem":     "list --problem",
		"list-namespace":   "list team-05",
		"list-service":     "list team-05/service-05005",
		"list-address":     "list --address 10.100.19.141",
		"get-frontend":     "get frontend 10.100.19.141:80",
		"get-pool":         "get pool 0:1000",
		"get-endpoint":     "get endpoint 11.0.195.130:8080",
		"get-affinity":     "get affinity 10.0.1.1 10.100.0.1:80",
		"explain":          "explain 10.0.1.1 10.100.19.141:80",
		"explain-service":  "explain --service team-05/service-05005 --from 10.0.1.1",
		"diff":             "diff --hostname-override n1 --nodeport-addresses 192.168.0.0/16 --manifests " + manifests,
		"top-once":         "top --once --interval 100ms",
		"complete-service": "__complete list team-05/service-050",
	}
}

func newBenchDaemon(b *testing.B) *Daemon {
	b.Helper()
	w, dir := lab.New(b), b.TempDir()
	Fill(b, dir, *benchServices, benchEndpoints)
	sticky := Numbered(1, benchEndpoints)
	sticky.Name, sticky.ClusterIP = "shop/sticky", ClusterIP(65000)
	WriteFile(b, dir, "changing.yaml", sticky.Manifest())
	return Start(b, binary, w.Node, dir, "--ui")
}

// run runs a command on the node. An exit code of 1 is an answer as well.
func onNode(ctx context.Context, d *Daemon, command string) error {
	cmd := exec.CommandContext(ctx, binary, strings.Fields(command)...)
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &errs
	if err := d.Node.Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil && ctx.Err() == nil && cmd.ProcessState.ExitCode() != 1 {
		return fmt.Errorf("%s: %w: %s", command, err, errs.String())
	}
	return nil
}

// BenchmarkCommands measures each command as a process, from its start to its end.
//
//	go test ./e2e/daemon -run '^$' -bench BenchmarkCommands -benchtime 10x [-services 50000]
func BenchmarkCommands(b *testing.B) {
	d := newBenchDaemon(b)
	for _, name := range sortedNames(commandsToMeasure(d.Manifests)) {
		command := commandsToMeasure(d.Manifests)[name]
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				lab.Must(b, onNode(b.Context(), d, command))
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2].Seconds()*1000, "median-ms")
		})
	}
}

func sortedNames(m map[string]string) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// BenchmarkPassBeside measures passes of one changed endpoint while a command runs again and again, or while a browser
// tab shows the page. The times are those of the daemon.
//
//	go test ./e2e/daemon -run '^$' -bench BenchmarkPassBeside -benchtime 100x
func BenchmarkPassBeside(b *testing.B) {
	d := newBenchDaemon(b)
	beside := commandsToMeasure(d.Manifests)
	for _, name := range []string{
		"nothing", "busy", "list", "list-service", "get-frontend", "get-endpoint", "explain", "explain-service", "diff", "top-once", "page",
	} {
		b.Run(name, func(b *testing.B) {
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- again(ctx, d, name, beside[name]) }()
			took := passes(b, d)
			stop()
			if err := <-ended; err != nil {
				b.Error(err)
			}
			slices.Sort(took)
			b.ReportMetric(1000*took[len(took)/2], "median-ms")
			b.ReportMetric(1000*took[len(took)*99/100], "p99-ms")
		})
	}
}

// passes changes an endpoint again and again, and returns how long the passes took.
func passes(b *testing.B, d *Daemon) (seconds []float64) {
	b.Helper()
	s := Numbered(1, benchEndpoints)
	s.Name, s.ClusterIP = "shop/sticky", ClusterIP(65000)
	for b.Loop() {
		before, err := d.Status()
		lab.Must(b, err)
		s.Endpoints = Numbered(1+int(before.Passes), benchEndpoints).Endpoints
		d.Write(b, "changing.yaml", s.Manifest())
		d.WaitPass(b, before.Passes)
		list, err := d.Passes()
		lab.Must(b, err)
		seconds = append(seconds, list[0].Seconds)
	}
	return seconds
}

// again runs a command until the context ends.
func again(ctx context.Context, d *Daemon, name, command string) error {
	for ctx.Err() == nil {
		switch name {
		case "nothing":
			<-ctx.Done()
		case "busy": // what any other process costs that uses one processor
			_ = exec.CommandContext(ctx, "sha256sum", "/dev/zero").Run() // until the context ends
		case "page":
			if err := viewPage(ctx, d); err != nil && ctx.Err() == nil {
				return err
			}
		default:
			if err := onNode(ctx, d, command); err != nil {
				return err
			}
		}
	}
	return nil
}

// viewPage asks what a tab asks, without its pause of two seconds.
func viewPage(ctx context.Context, d *Daemon) error {
	for _, path := range []string{"overview", "services?q=5", "service?name=team-05/service-05005", "passes"} {
		if err := d.Get(ctx, "127.0.0.1:10249", "/ui/api/"+path); err != nil {
			return err
		}
	}
	return nil
}
