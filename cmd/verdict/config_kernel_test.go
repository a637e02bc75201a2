//go:build !nokernel

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

const configHeader = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// mount writes files as the kubelet mounts a ConfigMap: the files are symbolic links into a folder, which is a symbolic
// link as well and is replaced as a whole.
func mount(t *testing.T, dir, version string, files map[string]string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, version), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, version, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		_ = os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)) // it exists after the first time
	}
	if err := os.Symlink(version, filepath.Join(dir, "..tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

// TestConfigMapsOfKubeadmStart: the daemon starts with the files that kubeadm writes for kube-proxy, as they are.
func TestConfigMapsOfKubeadmStart(t *testing.T) {
	for _, name := range []string{"kubeadm-1.37-configmap.yaml", "kubeadm-1.37-ipvs-configmap.yaml"} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile("kubeproxyconfig/testdata/" + name)
			if err != nil {
				t.Fatal(err)
			}
			var m corev1.ConfigMap
			if err := yaml.Unmarshal(data, &m); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			mount(t, dir, "..1", m.Data)
			d := startDaemon(t, netns.New(t), t.TempDir(), "--config="+filepath.Join(dir, "config.conf"))
			d.wait(t, "tables written")
			if log := d.log.String(); strings.Contains(log, "have no effect") {
				t.Errorf("fields without effect:\n%s", log)
			}
		})
	}
}

// TestWrongConfig: the daemon does not start, and the error names file and field.
func TestWrongConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.conf")
	for content, want := range map[string]string{
		"conntrack: {maxPerCore: many}":          "field conntrack.maxPerCore",
		"conntrack: {min: -1}":                   "field conntrack.min: --conntrack-min=-1: must not be negative",
		"mode: kernelspace":                      "field mode: --proxy-mode=kernelspace: must be iptables",
		"clusterCIDR: 10.0.0.0":                  `field clusterCIDR: --cluster-cidr: "10.0.0.0" is not a CIDR`,
		"configSyncPeriod: one minute":           "field configSyncPeriod: ",
		"detectLocalMode: Guess":                 "field detectLocalMode: --detect-local-mode=Guess",
		"mode: ipvs\nipvs: {scheduler: fastest}": "--default-scheduler=fastest: must be",
	} {
		if err := os.WriteFile(file, []byte(configHeader+content), 0o644); err != nil {
			t.Fatal(err)
		}
		exit, _, stderr := inNamespace(t, "run", "--config", file, "--manifests", t.TempDir(), "--healthz-bind-address=", "--metrics-bind-address=")
		if exit != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, %s, want %d and %q", content, exit, stderr, exitUsage, want)
		}
	}
	exit, _, stderr := inNamespace(t, "run", "--config", "/does/not/exist")
	if exit != exitUsage || !strings.Contains(stderr, "/does/not/exist") {
		t.Errorf("without a file: exit %d, %s", exit, stderr)
	}
}

// TestConfigIsFollowed: verbosity takes effect at once, a wrong file changes nothing, and a change that cannot be applied
// ends the process. TestLiveSettings has the others that take effect at once.
func TestConfigIsFollowed(t *testing.T) {
	dir := t.TempDir()
	file := func(content string) map[string]string {
		return map[string]string{"config.conf": configHeader + content}
	}
	mount(t, dir, "..1", file("mode: nftables\nlogging: {verbosity: 2}"))
	d := startDaemon(t, netns.New(t), t.TempDir(), "--config="+filepath.Join(dir, "config.conf"), "--masquerade-all")
	d.wait(t, "tables written")
	mount(t, dir, "..2", file("mode: nftables\nlogging: {verbosity: 4}"))
	d.wait(t, `logging.verbosity (--v from \"2\" to \"4\")`)
	mount(t, dir, "..3", file("mode: nftables\nlogging: {verbosity: 4}\nnftabels: {}\nnftables: wrong"))
	d.wait(t, "field nftables: ")
	// masqueradeAll is on the command line, which wins, so it is no change.
	mount(t, dir, "..4", file("mode: nftables\nclusterCIDR: 10.0.0.0/8\nclientConnection: {qps: 7}\nnftables: {masqueradeAll: true}\nlogging: {verbosity: 4}"))
	d.wait(t, "stopped; the rules stay in the kernel")
	err := d.cmd.Wait()
	log := d.log.String()
	if d.cmd.ProcessState.ExitCode() != exitFailure {
		t.Errorf("the process ended with %v:\n%s", err, log)
	}
	if want := `changes="clientConnection.qps (--kube-api-qps from \"50\" to \"7\")"`; !strings.Contains(log, want) {
		t.Errorf("the log does not say %q:\n%s", want, log)
	}
}
