//go:build !nokernel

package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/claim"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

// syncBuffer is written by a process and read by the test.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// daemonProcess is "verdict run" in a namespace of its own.
type daemonProcess struct {
	*netns.Namespace
	cmd *exec.Cmd
	log *syncBuffer
}

// runDaemon starts it and waits for the first pass.
func runDaemon(t *testing.T, ns *netns.Namespace, manifests string, flags ...string) *daemonProcess {
	t.Helper()
	d := startDaemon(t, ns, manifests, flags...)
	d.wait(t, "tables written")
	return d
}

func startDaemon(t *testing.T, ns *netns.Namespace, manifests string, flags ...string) *daemonProcess {
	t.Helper()
	d := &daemonProcess{Namespace: ns, log: &syncBuffer{}}
	args := append([]string{"run", "--manifests", manifests, "--backend=nft", "--healthz-bind-address=", "--metrics-bind-address="}, flags...)
	d.cmd = exec.Command(binary, args...)
	d.cmd.Stderr = d.log
	if err := ns.Start(d.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.kill)
	return d
}

func (d *daemonProcess) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// wait waits for a text in the log.
func (d *daemonProcess) wait(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(lab.Limit); !strings.Contains(d.log.String(), text); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log does not say %q:\n%s", text, d.log)
		}
	}
}

func writeManifest(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := lab.WriteFile(dir, name, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// TestOtherProcessesChangeTheTables: what they do is undone and logged with their name, and later changes of a Service
// stay in its own pool: also when somebody restores the ruleset of the process before.
func TestOtherProcessesChangeTheTables(t *testing.T) {
	ns, dir := netns.New(t), t.TempDir()
	busy := strings.Replace(balanced, "{verdict-proxy.github.io/scheduler: wlc}", "{}", 1)
	calm := strings.NewReplacer("busy", "calm", "10.96.0.80", "10.96.0.81", "203.0.113.80", "203.0.113.81", "30080", "30081",
		"10.244.0.5", "10.244.0.7", "10.244.0.6", "10.244.0.8").Replace(busy)
	writeManifest(t, dir, "busy.yaml", busy)
	d := runDaemon(t, ns, dir, "--table-owner=off")
	writeManifest(t, dir, "calm.yaml", calm)
	listed(t, ns, "10.244.0.8 . 8080")
	saved := "flush ruleset\n" + ns.Must(t, "", "nft", "list", "ruleset")
	d.kill()

	writeManifest(t, dir, "ahead.yaml", strings.NewReplacer("busy", "ahead", "10.96.0.80", "10.96.0.79", "203.0.113.80", "203.0.113.79",
		"30080", "30079", "10.244.0.5", "10.244.0.3", "10.244.0.6", "10.244.0.4").Replace(busy))
	d = runDaemon(t, ns, dir, "--table-owner=off")
	want := listed(t, ns, "10.244.0.4 . 8080")
	ns.Must(t, saved, "nft", "-f", "-")
	d.wait(t, "the tables are as they should be again")
	if got := ruleset(t, ns); got != want {
		t.Errorf("the saved ruleset is still in force:\n%s", got)
	}
	d.wait(t, `msg="another process changed the tables of Verdict" process=nft`)

	began := time.Now()
	ns.Must(t, "", "nft", "flush", "map", "ip", "verdict", "endpoints")
	if got := listed(t, ns, "10.244.0.4 . 8080"); got != want {
		t.Errorf("not as before:\n%s", got)
	}
	t.Logf("a flushed map was filled again after %s, with the time that nft takes", time.Since(began))

	writeManifest(t, dir, "busy.yaml", strings.Replace(busy, "10.244.0.6", "10.244.0.66", 1))
	text := listed(t, ns, "10.244.0.66 . 8080")
	for _, endpoint := range []string{"10.244.0.3", "10.244.0.4", "10.244.0.5", "10.244.0.7", "10.244.0.8"} {
		if strings.Count(text, " : "+endpoint+" . 8080") != 1 {
			t.Errorf("a change of one Service touched the endpoint %s of another:\n%s", endpoint, text)
		}
	}
}

// listed waits until the ruleset has a text, and returns the ruleset.
func listed(t *testing.T, ns *netns.Namespace, text string) string {
	t.Helper()
	for deadline := time.Now().Add(lab.Limit); ; time.Sleep(2 * time.Millisecond) {
		list := ruleset(t, ns)
		if strings.Contains(list, text) {
			return list
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q in\n%s", text, list)
		}
	}
}

// ruleset lists all tables, without the stamps of transactions.
func ruleset(t *testing.T, ns *netns.Namespace) string {
	t.Helper()
	return stampElement.ReplaceAllString(ns.Must(t, "", "nft", "list", "ruleset"), "")
}

// TestInterferenceIsOnlyReported with --repair=false.
func TestInterferenceIsOnlyReported(t *testing.T) {
	ns, dir := netns.New(t), t.TempDir()
	writeManifest(t, dir, "busy.yaml", strings.Replace(balanced, "{verdict-proxy.github.io/scheduler: wlc}", "{}", 1))
	d := runDaemon(t, ns, dir, "--repair=false", "--table-owner=off")
	listed(t, ns, "10.244.0.6 . 8080")
	ns.Must(t, "", "nft", "delete", "table", "ip", "verdict")
	d.wait(t, "another process changed the tables of Verdict")
	time.Sleep(checkPeriod + time.Second)
	if list := ns.Must(t, "", "nft", "list", "ruleset"); strings.Contains(list, "table ip verdict {") {
		t.Errorf("the table was written again:\n%s", list)
	}
}

// TestOwnerOfTheTables: other processes cannot change the tables while the proxy runs, and its successor adopts them.
func TestOwnerOfTheTables(t *testing.T) {
	ns, dir := netns.New(t), t.TempDir()
	if err := ns.Sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"); err != nil { // Verdict records no others
		t.Fatal(err)
	}
	writeManifest(t, dir, "busy.yaml", strings.Replace(balanced, "{verdict-proxy.github.io/scheduler: wlc}", "{}", 1))
	for range 2 {
		d := runDaemon(t, ns, dir)
		if strings.Contains(d.log.String(), "cannot keep other processes from changing the tables") {
			netns.SkipBefore(t, 6, 9, "tables that have an owner and persist")
		}
		want := listed(t, ns, "10.244.0.6 . 8080")
		ns.Must(t, "", "nft", "flush", "ruleset")
		if got := ruleset(t, ns); got != want {
			t.Errorf("another process flushed the tables:\n%s", got)
		}
		if _, err := ns.Command("nft", "flush", "map", "ip", "verdict", "services"); err == nil {
			t.Error("another process could flush a map")
		}
		d.kill()
		if got := ruleset(t, ns); withoutOwner(got) != withoutOwner(want) {
			t.Errorf("the end of the proxy changed the tables:\n%s", got)
		}
	}
}

// withoutOwner leaves out the flags of the tables, and the name of their owner.
func withoutOwner(list string) string {
	return regexp.MustCompile(`(?m)^\tflags .*\n| # progname .*`).ReplaceAllString(list, "")
}

// checkPeriod is how often the loop compares the tables with what it wrote.
const checkPeriod = 5 * time.Second

// TestOneProcessForEachNamespace: a second process waits for the first one to end, and gives up with a clear error.
func TestOneProcessForEachNamespace(t *testing.T) {
	ns, dir := netns.New(t), t.TempDir()
	writeManifest(t, dir, "busy.yaml", strings.Replace(balanced, "{verdict-proxy.github.io/scheduler: wlc}", "{}", 1))
	first := runDaemon(t, ns, dir)
	ns.MustDo(t, func() error {
		_, err := claim.Take(t.Context(), 0, slog.New(slog.DiscardHandler))
		if want := fmt.Sprintf("another process of Verdict (pid %d)", first.cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		return nil
	})
	second := startDaemon(t, ns, dir)
	second.wait(t, "waiting for it to end")
	first.kill()
	second.wait(t, "tables written")
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(lab.Limit); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within three minutes: %s", what)
		}
	}
}
