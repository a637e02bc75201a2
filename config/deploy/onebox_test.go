//go:build e2e

package deploy

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// boot makes a root folder the root of new namespaces and runs its systemd there, which is process 1. It takes root.
const boot = `
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs dev
for device in null zero full random urandom tty; do touch dev/$device; mount --bind /dev/$device dev/$device; done
mkdir dev/pts
mount -t devpts devpts dev/pts -o newinstance,ptmxmode=0666
ln -s pts/ptmx dev/ptmx
mkdir -p old
pivot_root . old
umount -l old
exec env -i container=other /lib/systemd/systemd
`

// box is a host with a fresh Debian in a network namespace of the world.
type box struct {
	*testing.T
	*lab.World
	root    string // its root folder
	systemd int    // its process 1, as the test sees it
	ended   chan struct{}
}

// newBox boots a host. As on a fresh Debian, it forwards nothing.
func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{T: t, World: lab.New(t), root: debian(t)}
	b.Node.MustDo(t, func() error { return b.Node.Sysctl("net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0") })
	cmd := exec.Command("bash", "-c", boot, "boot", b.root)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
	}
	if err := b.Node.Start(cmd); err != nil {
		t.Fatal(err)
	}
	b.systemd, b.ended = cmd.Process.Pid, make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(b.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // with it, the kernel ends all processes of the host
		<-b.ended
	})
	for late := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		text, err := b.run("systemctl is-system-running --wait")
		if state := strings.TrimSpace(text); state == "running" || state == "degraded" { // it has no console
			return b
		}
		if time.Now().After(late) {
			t.Fatalf("systemd does not start: %v\n%s%s", err, text, out.String())
		}
	}
}

// debian makes a root folder with Debian's minimal system and systemd, and nothing else. The first one goes into the cache.
func debian(t *testing.T) string {
	t.Helper()
	cache, err := filepath.Abs("../../.cache/debian-bookworm-" + runtime.GOARCH + ".tar")
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "root")
	script := `mkdir -p "$1"; if [ -e "$2" ]; then exec tar -C "$1" -xf "$2"; fi
mkdir -p "$(dirname "$2")"
debootstrap --variant=minbase --include=systemd bookworm "$1" && tar -C "$1" -cf "$2.new" . && mv "$2.new" "$2"`
	if out, err := exec.Command("bash", "-c", script, "debian", root, cache).CombinedOutput(); err != nil {
		t.Fatalf("make a Debian: %v\n%s", err, out)
	}
	return root
}

// run runs commands on the host, as its root.
func (b *box) run(commands string) (string, error) {
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(b.systemd), "-a", "-r", "-w", "bash", "-ec", "cd /root; "+commands)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (b *box) must(commands string) string {
	b.Helper()
	out, err := b.run(commands)
	if err != nil {
		log, _ := b.run("journalctl --no-pager -u verdict | tail -30")
		b.Fatalf("%s: %v\n%s\n%s", commands, err, out, log)
	}
	return out
}

// serveWeb serves at port 8000 of a pod: its name, and its health.
func (b *box) serveWeb(pod string, sick *atomic.Bool) {
	b.Helper()
	var l net.Listener
	b.At(b.T, pod).MustDo(b.T, func() (err error) {
		l, err = net.Listen("tcp", ":8000")
		return err
	})
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, pod) })
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			http.Error(w, "sick", http.StatusInternalServerError)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	b.Cleanup(func() { _ = server.Close() })
}

// steps are the indented blocks of the chapter for a host without Kubernetes. A block is a command on the machine of the
// developer, or begins with "# on the host", "# on a client", or the path of a file of the host.
func steps(t *testing.T) (list []string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, _ := strings.Cut(string(text), "\n## A host without Kubernetes\n")
	chapter, _, _ = strings.Cut(chapter, "\n[examples]")
	const indent = "       "
	block := ""
	for line := range strings.Lines(chapter + "\n\n") {
		rest, inside := strings.CutPrefix(line, indent)
		if inside {
			block += rest
		} else if block != "" {
			list, block = append(list, block), ""
		}
	}
	return list
}

// TestSystemStopsAndStarts: Verdict serves while a part of the network still waits for an answer by DHCP, as ifupdown does for a minute.
// When the system stops, Verdict and the network stay until the connections through the host have ended; a stop or a restart of
// Verdict alone waits for none.
func TestSystemStopsAndStarts(t *testing.T) {
	b := newBox(t)
	var sick atomic.Bool
	b.serveWeb("a", &sick)
	build(t, "v1.0.0", filepath.Join(b.root, "root/packages"))
	b.must("apt-get install -y ./packages/*.deb 2>&1")
	for file, text := range map[string]string{
		"etc/default/verdict": "VERDICT_ARGS=--manage-addresses=" + lab.OutsideLink + "\n",
		"etc/verdict/web.yaml": "apiVersion: verdict-proxy.github.io/v1alpha1\nkind: LoadBalancer\nmetadata: {name: web}\n" +
			"spec: {addresses: [192.168.7.100], ports: [{port: 80, targetPort: 8000}], endpoints: [{address: 10.0.1.1}]}\n",
		"etc/systemd/system/dhcp.service": "[Unit]\nBefore=network.target\nWants=network.target\n[Service]\nType=oneshot\nRemainAfterExit=yes\n" +
			"ExecStart=cat /root/answer\nExecStop=touch /root/the-network-goes\n",
	} {
		if err := os.WriteFile(filepath.Join(b.root, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.must("mkfifo answer; systemctl daemon-reload; systemctl start --no-block dhcp")
	b.must("timeout 60 systemctl start verdict; [ $(systemctl show -P ActiveState dhcp) = activating ]")
	client := b.At(t, "x")
	conn, err := client.DialContext(t.Context(), "tcp", "192.168.7.100:80")
	lab.Must(t, err)
	defer conn.Close()
	b.must("echo >answer; systemctl start dhcp verdict-leave; timeout 30 systemctl restart verdict; timeout 30 systemctl stop verdict; systemctl start verdict")

	b.must("systemctl --no-block poweroff 2>&1")
	lab.Eventually(t, "verdict leave sees the connection", func() error {
		text, err := b.run("journalctl -q -u verdict-leave")
		if err == nil && !strings.Contains(text, "clients outside have 1 open connection through this node to others") {
			err = errors.New(text)
		}
		return err
	})
	request, err := http.NewRequest(http.MethodGet, "http://192.168.7.100/", http.NoBody)
	lab.Must(t, err)
	lab.Must(t, request.Write(conn))
	answer, err := http.ReadResponse(bufio.NewReader(conn), request)
	lab.Must(t, err)
	defer answer.Body.Close()
	if _, err := os.Stat(filepath.Join(b.root, "root/the-network-goes")); err == nil || answer.StatusCode != http.StatusOK {
		t.Errorf("while the system stops, the answer is %s, and the network goes: %v", answer.Status, err == nil)
	}
	lab.Must(t, conn.Close())
	lab.Eventually(t, "the system ends after its last connection", func() error {
		_, err := os.Stat(filepath.Join(b.root, "root/the-network-goes"))
		return err
	})
}

// TestOneBox does what a new user does: a fresh Debian, the package, a LoadBalancer, and clients get answers from all servers that
// pass their checks. The steps are those of README.md, and systemd runs the unit as it is.
func TestOneBox(t *testing.T) {
	b := newBox(t)
	var sick [2]atomic.Bool
	for i, pod := range []string{"a", "b"} {
		b.serveWeb(pod, &sick[i])
	}
	client, curl := b.At(t, "x"), ""
	for _, step := range steps(t) {
		step = strings.ReplaceAll(step, "eth0", lab.OutsideLink) // the device of this host
		first, rest, _ := strings.Cut(step, "\n")
		switch {
		case step == "make packages-os\n":
			cmd := exec.Command("bash", "packages.sh")
			cmd.Env = append(os.Environ(), "VERSION=v0.0.0-test", "OUT="+filepath.Join(b.root, "root/bin/packages"), "ARCHITECTURES="+runtime.GOARCH)
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
		case first == "# on the host":
			b.must(strings.ReplaceAll(rest, "_amd64", "_"+runtime.GOARCH))
		case first == "# on a client":
			curl = rest
		case strings.HasPrefix(first, "# /"):
			if err := os.WriteFile(filepath.Join(b.root, first[2:]), []byte(step), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("README.md has a step that this test does not know: %q", step)
		}
	}
	answers := func() (list []string) {
		for range 20 {
			list = append(list, strings.TrimSpace(client.Must(t, "", "bash", "-ec", curl)))
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	await := func(what string, want ...string) {
		t.Helper()
		got := answers()
		for late := time.Now().Add(time.Minute); !slices.Equal(got, want); got = answers() {
			if time.Now().After(late) {
				t.Fatalf("%s: answers come from %v, want %v\n%s", what, got, want, b.must("verdict list default/web"))
			}
		}
	}
	await("both servers are good", "a", "b")
	sick[1].Store(true)
	await("b fails its check", "a")
	sick[1].Store(false)
	await("b passes again", "a", "b")

	for property, want := range map[string]string{"ActiveState": "active", "StatusText": "serving 1 frontend with 2 endpoints", "NRestarts": "0"} {
		if got := strings.TrimSpace(b.must("systemctl show -P " + property + " verdict")); got != want {
			t.Errorf("systemd says %s=%q, want %q", property, got, want)
		}
	}
	if text := b.must("journalctl -q --no-pager -u verdict -p err"); text != "" {
		t.Errorf("the log has errors:\n%s", text)
	}
	b.must("cp /etc/verdict/web.yaml good; echo 'kind: [' >/etc/verdict/web.yaml")
	if text, err := b.run("systemctl reload verdict"); err == nil {
		t.Errorf("the reload of a broken file succeeds: %s", text)
	}
	if text := b.must("journalctl --no-pager -u verdict -p err"); !strings.Contains(text, "/etc/verdict/web.yaml:1: ") {
		t.Errorf("the errors of the journal do not name file and line:\n%s", text)
	}
	b.must("cp good /etc/verdict/web.yaml; systemctl reload verdict")
	b.must("systemctl stop verdict")
	await("without the process", "a", "b")
	b.must("mkdir -p /run/systemd/system/verdict.service.d; printf '[Service]\nWatchdogSec=2\nTimeoutAbortSec=1\n' >/run/systemd/system/verdict.service.d/fast.conf")
	b.must("systemctl daemon-reload; systemctl start verdict; systemctl kill --signal=SIGSTOP --kill-whom=main verdict")
	await("while the process is stuck", "a", "b")
	b.must("for attempt in {1..600}; do [ $(systemctl show -P NRestarts verdict) = 0 ] || break; sleep .1; done; [ $(systemctl show -P NRestarts verdict) = 1 ]")
	await("after the watchdog", "a", "b")
	b.must("rm -r /run/systemd/system/verdict.service.d; systemctl daemon-reload; systemctl restart verdict") // until it is ready
	b.must("verdict drain --settle=0s --timeout=10s; systemctl is-active verdict && exit 1; [ $(systemctl show -P Result verdict) = success ]")
	b.must("systemctl start verdict; echo VERDICT_ARGS=--no-such-flag >/etc/default/verdict")
	const restart = "/etc/default/verdict has changed since the start of the daemon: systemctl restart verdict"
	if text, err := b.run("verdict reload"); err == nil || !strings.Contains(text, restart) {
		t.Errorf("after a change of the flags, the reload says %q, %v", text, err)
	}
	if text, err := b.run("systemctl restart verdict"); err == nil {
		t.Errorf("the daemon starts with a wrong flag: %s", text)
	}
	if text := b.must("systemctl show -P ActiveState -P NRestarts verdict"); text != "0\nfailed\n" {
		t.Errorf("with a wrong flag, state and restarts are %q", text)
	}
}
