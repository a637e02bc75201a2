//go:build e2e

package deploy

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/exposition"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

var update = flag.Bool("update", false, "write what upstream's kube-proxy shows into testdata")

// recorded is what TestMetricsOfUpstream of package metrics compares Verdict with.
const recorded = "../../proxier/metrics/testdata/kube-proxy.txt"

// TestRecordedMetrics runs upstream's kube-proxy in two modes and compares its metrics with those that are recorded.
func TestRecordedMetrics(t *testing.T) {
	c := start(t)
	binaries, err := apiserver.Build("kube-proxy")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := c.plane.Kubeconfig(apiserver.KubeProxy)
	if err != nil {
		t.Fatal(err)
	}
	c.populate(t)
	found := map[string]exposition.Metric{}
	for _, mode := range []string{"nftables", "iptables"} {
		for _, m := range c.upstream(t, filepath.Join(binaries, "kube-proxy"), mode, kubeconfig) {
			if of, _, _ := strings.Cut(m.Name, "_"); of == "kubeproxy" || of == "rest" {
				found[m.Name] = m
			}
		}
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintln(&text, found[name])
	}
	if *update {
		if err := os.WriteFile(recorded, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text.String(), "\n")); diff != "" {
		t.Errorf("upstream's metrics are not those of %s (- recorded, + seen)\n%s", recorded, diff)
	}
}

// populate creates the Node, and a Service, so that kube-proxy writes rules.
func (c *cluster) populate(t *testing.T) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	if _, err := c.plane.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.252.0.1"}}
	node.ResourceVersion = ""
	if _, err := c.plane.Client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.write(t)
}

// upstream runs kube-proxy, asks it for its health, and returns its metrics.
func (c *cluster) upstream(t *testing.T, binary, mode, kubeconfig string) (found []exposition.Metric) {
	t.Helper()
	process, err := lab.NewProcess(lab.ProcessOptions{Name: "kube-proxy", Namespace: c.ns, Dir: c.dir, Command: []string{
		binary, "--proxy-mode=" + mode, "--kubeconfig=" + kubeconfig, "--hostname-override=node", "--cluster-cidr=10.244.0.0/16",
		"--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249",
		"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = process.Stop() // kube-proxy has no handler for SIGTERM, so its exit code says nothing
		if t.Failed() {
			t.Log(process.Log(20))
		}
	}()
	client := http.Client{Transport: &http.Transport{DialContext: c.ns.DialContext, DisableKeepAlives: true}}
	for _, path := range []string{"healthz", "livez"} {
		c.await(t, path, func() (bool, error) {
			r, err := client.Get("http://127.0.0.1:10256/" + path)
			if err != nil {
				return false, err
			}
			return r.StatusCode == http.StatusOK, r.Body.Close()
		})
	}
	c.await(t, "metrics of a synchronization", func() (bool, error) {
		r, err := client.Get("http://127.0.0.1:10249/metrics")
		if err != nil {
			return false, err
		}
		defer r.Body.Close()
		found, err = exposition.Read(r.Body)
		return slices.ContainsFunc(found, func(m exposition.Metric) bool {
			return m.Name == "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
		}), err
	})
	return found
}

// TestRecordedMetricsAreComplete compares the names of what is recorded with those in the source of upstream: a metric
// that shows nothing until something happens is not in the answer of a kube-proxy that has just started.
func TestRecordedMetricsAreComplete(t *testing.T) {
	const kubeProxyUnseen = "../../proxier/metrics/testdata/kube-proxy-unseen.txt"
	want, err := exposition.Recorded("", recorded, kubeProxyUnseen)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	for module, folder := range map[string]string{
		"k8s.io/kubernetes": "pkg/proxy/metrics", "k8s.io/component-base": "metrics/prometheus/restclient",
	} {
		text := source(t, module, folder)
		for _, name := range registeredIn(text) {
			declared[name] = true
		}
	}
	for name := range declared {
		if want[name] == "" {
			t.Errorf("upstream's source has %s: add it to %s", name, kubeProxyUnseen)
		}
	}
	for name := range want {
		if !declared[name] {
			t.Errorf("upstream's source does not have %s, which is recorded", name)
		}
	}
}

// source returns the Go files in a folder of a module of upstream, without tests.
func source(t *testing.T, module, folder string) string {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = "../../e2e/controlplane"
	out, err := cmd.Output()
	var answer struct{ Dir string }
	if err := errors.Join(err, json.Unmarshal(out, &answer)); err != nil {
		t.Fatalf("download %s: %v\n%s", module, err, out)
	}
	files, err := filepath.Glob(filepath.Join(answer.Dir, folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s of %s: %v", folder, module, err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") {
			all.Write(text)
		}
	}
	return all.String()
}

// registeredIn returns the names of the metrics that Go code declares and registers. Those of Windows are left out.
func registeredIn(text string) (names []string) {
	declaration := regexp.MustCompile(`(\w+) += \w+\.New(?:Gauge|Counter|Histogram)\w*\(\s*&\w+\.\w+\{((?s:.*?))Name: +"(\w+)"`)
	for _, match := range declaration.FindAllStringSubmatch(text, -1) {
		name := match[3]
		if strings.Contains(match[2], "kubeProxySubsystem") {
			name = "kubeproxy_" + name
		}
		if strings.Contains(text, "Register("+match[1]+")") && !strings.Contains(name, "winkernel") {
			names = append(names, name)
		}
	}
	for _, match := range regexp.MustCompile(`NewDesc\(\s*"(\w+)"`).FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	return names
}
