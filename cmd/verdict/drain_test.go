//go:build !nokernel

package main

import (
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// routed is an address of the Service that clients reach by a route: it needs no device.
var routed = netip.MustParseAddrPort("10.96.0.11:80")

// ready is the code of /readyz.
func (l *link) ready() int {
	l.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: l.Node.DialContext, DisableKeepAlives: true}}
	r, err := client.Get("http://127.0.0.1:10256/readyz")
	if err != nil {
		l.Fatal(err)
	}
	defer r.Body.Close()
	return r.StatusCode
}

// drain begins a drain, and returns a function that waits for its end and returns what it printed.
func (l *link) drain(flags ...string) (end func() string) {
	l.Helper()
	begun := l.begin(flags...)
	return func() string {
		l.Helper()
		text, err := begun()
		if err != nil {
			l.Errorf("verdict drain: %v", err)
		}
		return text
	}
}

func (l *link) begin(flags ...string) (end func() (string, error)) {
	l.Helper()
	out := &syncBuffer{}
	cmd := exec.Command(binary, append([]string{"drain"}, flags...)...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := l.Node.Start(cmd); err != nil {
		l.Fatal(err)
	}
	return func() (string, error) {
		err := cmd.Wait()
		return out.String(), err
	}
}

// TestDrain: the addresses leave first, while new connections are served. Then those are dropped, and open ones go on. The
// daemon ends with the last of them. What it leaves in the kernel takes no connections until it starts again.
func TestDrain(t *testing.T) {
	l, dir := newLink(t), t.TempDir()
	writeManifest(t, dir, "web.yaml", linked(onLink...))
	flags := []string{"--manage-addresses=outside", "--healthz-bind-address=127.0.0.1:10256"}
	d := runDaemon(t, l.Node.Namespace, dir, flags...)
	l.await("running", onLink...)
	question := lab.Question{Protocol: lab.TCP, To: routed, Patience: 3 * time.Second}
	flow, _ := l.x.Hold(t, question)
	await(t, "before the drain, /readyz answers 200", func() bool { return l.ready() == http.StatusOK })

	end := l.drain("--settle=6s")
	d.wait(t, `step="no address is announced`)
	l.await("withdrawn")
	if code := l.ready(); code != http.StatusServiceUnavailable {
		t.Errorf("withdrawn, /readyz answers %d", code)
	}
	if r := l.x.Ask(question); r.Outcome != lab.Answered && !strings.Contains(d.log.String(), "nothing new is served") {
		t.Errorf("withdrawn, a new connection is %s", r)
	}
	d.wait(t, `step="nothing new is served; open connections: 1"`)
	short := question
	short.Patience = time.Second
	if r := l.x.Ask(short); r.Outcome != lab.Dropped {
		t.Errorf("draining, a new connection is %s, want dropped", r)
	}
	_, text, _ := inside(t, l.Node.Namespace, "explain", "198.51.100.9", routed.String())
	if !strings.Contains(text, "dropped: this node drains") || strings.Contains(text, "policy") || strings.Contains(text, "left out") {
		t.Errorf("draining, explain says\n%s", text)
	}
	if r := flow.Send(3 * time.Second); r.Outcome != lab.Answered {
		t.Errorf("draining, the open connection is %s", r)
	}
	flow.Close()
	text = end()
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("the daemon ended with an error: %v\n%s", err, d.log)
	}
	for _, step := range []string{"no address is announced; new connections are served for 6s more\n", "nothing new is served; open connections: 1\n", "the daemon has ended\n"} {
		if !strings.Contains(text, step) {
			t.Errorf("verdict drain does not print %q:\n%s", step, text)
		}
	}
	if r := l.x.Ask(short); r.Outcome != lab.Dropped {
		t.Errorf("without the daemon, a new connection is %s, want dropped", r)
	}
	if _, text, _ := inside(t, l.Node.Namespace, "explain", "198.51.100.9", routed.String()); !strings.Contains(text, "or the node has drained") {
		t.Errorf("without the daemon, explain says\n%s", text)
	}

	d = runDaemon(t, l.Node.Namespace, dir, flags...)
	l.await("started again", onLink...)
	last, _ := l.x.Hold(t, question)
	if text := l.drain("--settle=0s", "--timeout=1s")(); !strings.HasSuffix(text, "the daemon has ended\n") {
		t.Errorf("the time is over, and verdict drain prints\n%s", text)
	}
	if err := d.cmd.Wait(); err != nil || !strings.Contains(d.log.String(), "the time is over") {
		t.Errorf("the daemon ended with %v\n%s", err, d.log)
	}
	if r := last.Send(3 * time.Second); r.Outcome != lab.Answered {
		t.Errorf("without the daemon, the open connection is %s", r)
	}

	for signal, want := range map[syscall.Signal]string{
		syscall.SIGKILL: "verdict: drain: the daemon has not drained: ask the daemon: ",
		syscall.SIGTERM: "verdict: drain: the daemon has not drained: the daemon was told to stop before it had drained\n",
	} {
		d = runDaemon(t, l.Node.Namespace, dir, flags...)
		l.await("before "+signal.String(), onLink...)
		end := l.begin("--settle=1m")
		d.wait(t, `step="no address is announced`)
		d.end(signal)
		if text, err := end(); err == nil || !strings.Contains(text, want) || strings.Contains(text, "has ended") {
			t.Errorf("after %s, verdict drain ends with %v: %s", signal, err, text)
		}
	}
	if exit, _, stderr := inside(t, l.Node.Namespace, "drain"); exit != 1 || !strings.Contains(stderr, "no daemon of Verdict answers") {
		t.Errorf("a drain without a daemon ends with %d: %s", exit, stderr)
	}
}
