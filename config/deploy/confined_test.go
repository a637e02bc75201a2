//go:build !nokernel

package deploy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// sandbox starts a program like a container runtime or systemd: with a few capabilities, with a read-only root and
// /proc/sys, and without a way to gain privileges. When the frontend is in the kernel, or the program has ended, it
// prints the map of frontends and the capabilities of the program, and stops the program.
const sandbox = `
set -e
capabilities=$1; frontend=$2; shift 2
ip link set lo up
mount --bind /proc/sys /proc/sys
mount -o remount,ro,bind /proc/sys
mount -o remount,ro,bind /
setpriv --bounding-set="$capabilities" --inh-caps=-all --no-new-privs "$@" >&2 &
pid=$!
for i in $(seq 1200); do
	nft list map ip verdict services 2>/dev/null | grep -qF "$frontend" && break
	kill -0 $pid 2>/dev/null || break
	sleep .1
done
nft list map ip verdict services 2>&1 || true
grep CapEff /proc/$pid/status || true
kill $pid || true
wait $pid
`

// frontend is the frontend of the Service in manifests.
const frontend = "10.96.0.80 . tcp . 80"

const manifests = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.96.0.80
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.0.5]}]
`

// confined runs the binary in the sandbox, as root of new namespaces.
func confined(t *testing.T, capabilities []string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return confinedAfter(t, "", capabilities, args...)
}

// confinedAfter does the same, but first runs a script in the same namespaces.
func confinedAfter(t *testing.T, before string, capabilities []string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return sandboxed(t, before, capabilities, append([]string{binary}, args...))
}

// confinedBy runs another program in the sandbox.
func confinedBy(t *testing.T, program string, capabilities []string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return sandboxed(t, "", capabilities, append([]string{program}, args...))
}

func sandboxed(t *testing.T, before string, capabilities, command []string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := inSandbox(before, capabilities, command)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func inSandbox(before string, capabilities, command []string) *exec.Cmd {
	set := "-all"
	for _, c := range capabilities {
		set += ",+" + strings.ToLower(strings.TrimPrefix(c, "CAP_"))
	}
	cmd := exec.Command("sh", append([]string{"-c", before + sandbox, "sandbox", set, frontend}, command...)...)
	cmd.SysProcAttr = netns.AsRoot(unix.CLONE_NEWNET | unix.CLONE_NEWNS)
	return cmd
}

// folder writes manifests into a folder. The tests use it instead of the folder or API server in the arguments.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(manifests), 0o644); err != nil {
		t.Fatal(err)
	}
	return "--manifests=" + dir
}

func TestCapabilitiesSuffice(t *testing.T) {
	allowed := load(t).container().SecurityContext.Capabilities
	if !slices.Equal(allowed.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("the container keeps capabilities that it does not need: it drops only %v", allowed.Drop)
	}
	var container []string
	for _, c := range allowed.Add {
		container = append(container, string(c))
	}
	service := unit(t)
	const netAdmin, netRaw = 1 << 12, 1 << 13
	for _, tt := range []struct {
		name         string
		capabilities []string
		args         []string
		effective    int
	}{
		{"DaemonSet", container, load(t).arguments(t), netAdmin},
		{"unit", strings.Fields(service["Service"]["CapabilityBoundingSet"]), command(service)[1:], netAdmin | netRaw},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := slices.DeleteFunc(slices.Clone(tt.args), func(a string) bool { return strings.HasPrefix(a, "--manifests=") })
			stdout, stderr, err := confined(t, tt.capabilities, append(args, folder(t))...)
			if err != nil || !strings.Contains(stdout, frontend) {
				t.Errorf("with %v: %v\n%s%s", tt.capabilities, err, stdout, stderr)
			}
			if want := fmt.Sprintf("CapEff:\t%016x", tt.effective); !strings.Contains(stdout, want) {
				t.Errorf("the proxy has other capabilities than %q:\n%s", want, stdout)
			}
		})
	}
}

// TestNetAdminIsNeeded: the sandbox removes capabilities, so that the proxy fails without NET_ADMIN.
func TestNetAdminIsNeeded(t *testing.T) {
	stdout, stderr, err := confined(t, nil, "run", folder(t))
	if err == nil || strings.Contains(stdout, frontend) {
		t.Errorf("the proxy works without any capability: %v\n%s", err, stdout)
	}
	if !strings.Contains(stderr, "operation not permitted") {
		t.Errorf("the error does not name the cause:\n%s", stderr)
	}
}

// initialized runs the command of the init container before /proc/sys becomes read-only.
const initialized = `
set -e
mount -o remount,rw /proc/sys 2>/dev/null || true
"$3" run --init-only --nodeport-addresses=primary,localhost
`

// TestInitOnly: --init-only sets the sysctl that the proxy itself cannot set.
func TestInitOnly(t *testing.T) {
	stdout, stderr, err := confinedAfter(t, initialized, []string{"NET_ADMIN"}, "run", folder(t), "--nodeport-addresses=primary,localhost")
	if err != nil || !strings.Contains(stdout, frontend) {
		t.Errorf("%v\n%s%s", err, stdout, stderr)
	}
	if !strings.Contains(stderr, "route_localnet") {
		t.Errorf("the log does not show the change:\n%s", stderr)
	}
}

// TestLoopbackNodePortsWithReadOnlySysctls: without --init-only, the proxy reports that it cannot set the sysctl.
func TestLoopbackNodePortsWithReadOnlySysctls(t *testing.T) {
	stdout, stderr, err := confined(t, []string{"NET_ADMIN"}, "run", folder(t), "--nodeport-addresses=primary,localhost")
	if err == nil || strings.Contains(stdout, frontend) {
		t.Errorf("%v\n%s", err, stdout)
	}
	if !strings.Contains(stderr, "set sysctl net.ipv4.conf.all.route_localnet=1") {
		t.Errorf("the error does not name the cause:\n%s", stderr)
	}
}

// TestAddressFamiliesSuffice runs the daemon with the address families of the unit.
func TestAddressFamiliesSuffice(t *testing.T) {
	service := unit(t)
	families := service["Service"]["RestrictAddressFamilies"]
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		families string
		works    bool
	}{{families, true}, {strings.Replace(families, "AF_UNIX", "", 1), false}} {
		t.Setenv(familiesVariable, tt.families)
		stdout, stderr, err := confinedBy(t, self, strings.Fields(service["Service"]["CapabilityBoundingSet"]), binary, "run", folder(t))
		if works := err == nil && strings.Contains(stdout, frontend); works != tt.works {
			t.Errorf("with %q it works: %t, want %t\n%v\n%s%s", tt.families, works, tt.works, err, stdout, stderr)
		}
	}
}
