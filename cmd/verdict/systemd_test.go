//go:build !nokernel

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// manager is what a test plays of systemd: the socket for notifications, which are read at once. The kernel keeps few of them.
type manager struct {
	texts chan string
	env   []string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	name := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	m := &manager{make(chan string, 10_000), append(os.Environ(), "NOTIFY_SOCKET="+name, "WATCHDOG_USEC=400000")}
	go func() {
		for buffer := make([]byte, 4096); ; {
			n, err := c.Read(buffer)
			if err != nil {
				return // the test has ended
			}
			m.texts <- "\n" + string(buffer[:n]) + "\n"
		}
	}()
	return m
}

// start starts the daemon as a unit.
func (m *manager) start(t *testing.T, ns *netns.Namespace, dir string, flags ...string) *daemonProcess {
	t.Helper()
	d := &daemonProcess{Namespace: ns, log: &syncBuffer{}}
	d.cmd = exec.Command(binary, append([]string{"run", "--manifests", dir, "--backend=nft", "--healthz-bind-address=", "--metrics-bind-address="}, flags...)...)
	d.cmd.Stderr, d.cmd.Env = d.log, m.env
	if err := ns.Start(d.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.kill)
	return d
}

// next returns the next notification.
func (m *manager) next(patience time.Duration) (text string, ok bool) {
	select {
	case text = <-m.texts:
		return text, true
	case <-time.After(patience):
		return "", false
	}
}

// await returns the first notification with a part, and what came before.
func (m *manager) await(t *testing.T, part string) (found, before string) {
	t.Helper()
	for late := time.Now().Add(3 * time.Minute); ; before += found {
		text, ok := m.next(time.Until(late))
		if !ok {
			t.Fatalf("no notification has %q; those that came: %q", part, before)
		}
		if found = text; strings.Contains(text, part) {
			return found, before
		}
	}
}

// end ends the daemon, and returns its log.
func (d *daemonProcess) end(s syscall.Signal) string {
	_ = d.cmd.Process.Signal(s)
	_ = d.cmd.Wait() // its error is the signal
	return d.log.String()
}

func frontendOf(t *testing.T, ns *netns.Namespace, address string) bool {
	t.Helper()
	_, err := ns.Command("nft", "get", "element", "ip", "verdict", "services", "{ "+address+" . tcp . 80 }")
	return err == nil
}

// TestNotify: a unit of Type=notify is ready when its first rules are in the kernel. Then it serves the watchdog, reads its
// files again when somebody asks, and reports what became of it.
func TestNotify(t *testing.T) {
	ns, dir, m := netns.New(t), t.TempDir(), newManager(t)
	writeManifest(t, dir, "web.yaml", diffService("web", "10.96.0.1", "type: ClusterIP", "", "10.244.0.1", "10.244.0.2"))
	d := m.start(t, ns, dir)
	ready, before := m.await(t, "\nREADY=1\n") // which may be the first message
	if !frontendOf(t, ns, "10.96.0.1") {
		t.Error("ready, but the kernel has no rules")
	}
	if !strings.Contains(before+ready, "\nSTATUS=") {
		t.Errorf("no status with or before %q: %q", ready, before)
	}
	for range 3 {
		m.await(t, "\nWATCHDOG=1\n")
	}

	writeManifest(t, dir, "more.yaml", diffService("more", "10.96.0.2", "type: ClusterIP", "", "10.244.0.3"))
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if text, _ := m.await(t, "\nRELOADING=1\n"); !strings.Contains(text, "\nMONOTONIC_USEC=") {
		t.Errorf("systemd needs the time with %q", text)
	}
	if text, _ := m.await(t, "\nREADY=1\n"); !strings.Contains(text, "STATUS=serving 4 frontends with 3 endpoints\n") || !frontendOf(t, ns, "10.96.0.2") {
		t.Errorf("after a reload: %q, and the kernel has the new Service: %v", text, frontendOf(t, ns, "10.96.0.2"))
	}

	writeManifest(t, dir, "more.yaml", "apiVersion: v1\nkind: [\n")
	exit, _, stderr := inside(t, ns, "reload")
	if want := "verdict: reload: " + filepath.Join(dir, "more.yaml") + ":2: "; exit != 1 || !strings.HasPrefix(stderr, want) {
		t.Errorf("the reload of a broken file ends with %d and says %q, want %q", exit, stderr, want)
	}
	if text, _ := m.await(t, "\nREADY=1\n"); !strings.Contains(text, "; of the files, not all can be used: "+dir) || !frontendOf(t, ns, "10.96.0.2") {
		t.Errorf("after the reload of a broken file: %q, and the kernel has the Service: %v", text, frontendOf(t, ns, "10.96.0.2"))
	}
	writeManifest(t, dir, "more.yaml", diffService("more", "10.96.0.3", "type: ClusterIP", "", "10.244.0.3"))
	writeManifest(t, dir, "app.txt", diffService("app", "10.96.0.4", "type: ClusterIP", "", "10.244.0.3"))
	ignored := "verdict: " + filepath.Join(dir, "app.txt") + " is no manifest, because its name does not end in .yaml, .yml or .json\n"
	for _, args := range [][]string{{"validate", dir}, {"validate", filepath.Join(dir, "app.txt")}} {
		if exit, _, stderr := inside(t, ns, args...); exit != 0 || stderr != ignored {
			t.Errorf("%q ends with %d and says %q, want %q", args, exit, stderr, ignored)
		}
	}
	if exit, _, stderr := inside(t, ns, "reload"); exit != 0 || stderr != ignored || !frontendOf(t, ns, "10.96.0.3") {
		t.Errorf("the reload ends with %d and says %q; the kernel has it: %v", exit, stderr, frontendOf(t, ns, "10.96.0.3"))
	}
	d.end(syscall.SIGTERM)
	m.await(t, "\nSTOPPING=1\n")
	if !frontendOf(t, ns, "10.96.0.1") {
		t.Error("the rules are gone with the daemon")
	}
	if exit, _, stderr := inside(t, ns, "reload"); exit != 1 || !strings.Contains(stderr, "no daemon of Verdict answers") {
		t.Errorf("the reload without a daemon ends with %d and says %q", exit, stderr)
	}
}

// balancer is one in the short form at an address.
func balancer(name, address, more string) string {
	return `apiVersion: verdict-proxy.github.io/v1alpha1
kind: LoadBalancer
metadata:
  name: ` + name + `
spec:
  ports: [{port: 80}]
  addresses:
  - ` + address + `
  endpoints: [{address: 10.244.0.9}]
` + more
}

// TestReloadNamesProblems: a reload fails if something in a file is not honored, and names it as the file has it. It does not matter
// that the file was read before.
func TestReloadNamesProblems(t *testing.T) {
	ns, dir := netns.New(t), t.TempDir()
	writeManifest(t, dir, "a.yaml", balancer("a", "192.0.2.10", ""))
	writeManifest(t, dir, "web.yaml", balancer("web", "192.0.2.10", "  scheduler: wlc\n"))
	writeManifest(t, dir, "z.yaml", diffService("z", "10.96.0.1", "externalIPs: [192.0.2.10]", "", "10.244.0.1"))
	d := runDaemon(t, ns, dir, "--backend=nft")
	for _, when := range []string{"after the start", "once more"} {
		exit, _, stderr := inside(t, ns, "reload")
		if exit != 1 {
			t.Errorf("%s, the reload ends with %d", when, exit)
		}
		for _, want := range []string{
			"web.yaml:7: LoadBalancer default/web: spec.addresses: frontend 192.0.2.10:80/tcp is taken by default/a",
			"web.yaml:10: LoadBalancer default/web: spec.scheduler: scheduler wlc needs IPVS",
			"z.yaml:4: Service default/z: spec.externalIPs: frontend 192.0.2.10:80/tcp is taken by default/a",
		} {
			if !strings.Contains(stderr, dir+"/"+want) {
				t.Errorf("%s, the reload does not say %q:\n%s", when, want, stderr)
			}
		}
	}
	if log := d.log.String(); !strings.Contains(log, "field=spec.addresses") || strings.Contains(log, "field=status") {
		t.Errorf("the log has fields that nobody wrote:\n%s", log)
	}
	writeManifest(t, dir, "web.yaml", balancer("web", "192.0.2.10", "  scheduler: nosuch\n"))
	_, _, stderr := inside(t, ns, "reload")
	for _, want := range []string{dir + "/web.yaml:10: LoadBalancer default/web: spec.scheduler: the text \"nosuch\"", " Service default/web in its previous form: spec.scheduler: scheduler wlc needs IPVS"} {
		if !strings.Contains(stderr, want) || strings.Contains(stderr, ":0:") {
			t.Errorf("after a typing error, the reload does not say %q:\n%s", want, stderr)
		}
	}
	for i := range 8 { // a Service each, so that the next reload would find the problems of the last one if it looked too early
		writeManifest(t, dir, "web.yaml", balancer("web", fmt.Sprint("192.0.2.", 20+i), ""))
		writeManifest(t, dir, "z.yaml", diffService("z", "10.96.0.1", fmt.Sprintf("externalIPs: [192.0.2.%d]", 40+i), "", "10.244.0.1"))
		if exit, _, stderr := inside(t, ns, "reload"); exit != 0 {
			t.Errorf("the reload of good files ends with %d: %s", exit, stderr)
		}
		writeManifest(t, dir, "web.yaml", balancer("web", "192.0.2.10", ""))
		if exit, _, stderr := inside(t, ns, "reload"); exit != 1 || !strings.Contains(stderr, "taken by default/a") {
			t.Errorf("the reload of a clash ends with %d: %s", exit, stderr)
		}
	}
}

// TestSuccessorIsReadyLater: a process that waits for the one before is not ready, however long that takes. SIGHUP does not
// end it.
func TestSuccessorIsReadyLater(t *testing.T) {
	ns, dir, old, next := netns.New(t), t.TempDir(), newManager(t), newManager(t)
	writeManifest(t, dir, "web.yaml", diffService("web", "10.96.0.1", "type: ClusterIP", "", "10.244.0.1"))
	first := old.start(t, ns, dir)
	old.await(t, "\nREADY=1\n")
	second := next.start(t, ns, dir)
	second.wait(t, "waiting for it to end")
	if err := second.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if text, came := next.next(time.Millisecond); came {
		t.Errorf("the successor notified %q", text)
	}
	first.end(syscall.SIGTERM)
	next.await(t, "\nREADY=1\n")
	old.await(t, "\nSTOPPING=1\n")
	next.await(t, "\nWATCHDOG=1\n")
	second.wait(t, "the files were read again")
}

// TestCleanupOnExit: what SIGTERM leaves depends on the flag. A crash leaves everything in either case.
func TestCleanupOnExit(t *testing.T) {
	dir := t.TempDir()
	writeManifest(t, dir, "web.yaml", diffService("web", "10.96.0.1", "type: ClusterIP", "", "10.244.0.1"))
	for _, tt := range []struct {
		signal syscall.Signal
		flags  []string
		stays  bool
	}{
		{syscall.SIGTERM, nil, true},
		{syscall.SIGTERM, []string{"--cleanup-on-exit"}, false},
		{syscall.SIGKILL, []string{"--cleanup-on-exit"}, true},
	} {
		t.Run(fmt.Sprint(tt.signal, tt.flags), func(t *testing.T) {
			ns := netns.New(t)
			d := runDaemon(t, ns, dir, tt.flags...)
			log := d.end(tt.signal)
			if _, err := ns.Command("nft", "list", "table", "ip", "verdict"); (err == nil) != tt.stays {
				t.Errorf("the rules stay: %v, want %v\n%s", err == nil, tt.stays, log)
			}
		})
	}
}

// TestJournal: lines for the journal have a priority, and no time of their own.
func TestJournal(t *testing.T) {
	for _, tt := range []struct{ flag, info, err string }{
		{"--log-format=text", "<6>msg=starting version=", "<3>verdict: read manifest directory"},
		{"--log-format=json", `<6>{"time":`, "<3>verdict: read manifest directory"},
	} {
		t.Run(tt.flag, func(t *testing.T) {
			from, to, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			var stat unix.Stat_t
			if err := unix.Fstat(int(to.Fd()), &stat); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(binary, "run", "--manifests=/does/not/exist", "--healthz-bind-address=", "--metrics-bind-address=", tt.flag)
			cmd.Env = append(os.Environ(), fmt.Sprintf("JOURNAL_STREAM=%d:%d", stat.Dev, stat.Ino))
			cmd.Stderr = to
			if err := netns.New(t).Start(cmd); err != nil {
				t.Fatal(err)
			}
			_ = to.Close()
			out, err := io.ReadAll(from)
			if err != nil || cmd.Wait() == nil {
				t.Fatalf("%v, or the daemon runs without manifests", err)
			}
			if text := string(out); !strings.HasPrefix(text, tt.info) || !strings.Contains(text, "\n"+tt.err) {
				t.Errorf("the log is\n%s", text)
			}
		})
	}
}
