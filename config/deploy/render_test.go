//go:build !nokernel

package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// variants are the ways to install Verdict: a kustomization, and the same with the chart.
func variants() map[string][]string {
	return map[string][]string{
		"base":              nil,
		"overlays/kubeadm":  {"kubeProxyConfigMap=kube-proxy"},
		"overlays/k3s":      {"apiServer.host=127.0.0.1", "apiServer.port=6444", "clusterCIDR=10.42.0.0/16", "extraArgs={--take-over}"},
		"overlays/nft-only": {"initContainer=false", "extraArgs={--backend=nft}"},
		"monitoring":        {"monitoring.enabled=true"},
	}
}

// kustomized returns the objects of a variant. The monitoring component needs a kustomization that uses it.
func kustomized(t *testing.T, variant string) string {
	t.Helper()
	if variant != "monitoring" {
		return tool(t, "", "kustomize", variant)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	relative, err := filepath.Rel(dir, here)
	if err != nil {
		t.Fatal(err)
	}
	text := "resources: [" + relative + "/base]\ncomponents: [" + relative + "/monitoring]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return tool(t, "", "kustomize", dir)
}

// objects parses YAML documents, by kind and name.
func objects(t *testing.T, text string) map[string]any {
	t.Helper()
	found := map[string]any{}
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if len(o) == 0 {
			continue
		}
		meta, _ := o["metadata"].(map[string]any)
		found[o["kind"].(string)+" "+meta["name"].(string)] = o
	}
	return found
}

// TestChartEqualsKustomize compares all objects of each variant.
func TestChartEqualsKustomize(t *testing.T) {
	for variant, values := range variants() {
		t.Run(variant, func(t *testing.T) {
			want, got := objects(t, kustomized(t, variant)), objects(t, tool(t, "", append([]string{"helm", "chart", "image.tag=latest"}, values...)...))
			for _, o := range got {
				checkHelmsOwn(t, o.(map[string]any))
			}
			if len(want) < 4 {
				t.Errorf("only %d objects", len(want))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the chart differs (- kustomize, + chart)\n%s", diff)
			}
		})
	}
}

// checkHelmsOwn looks for the labels that Helm's conventions ask for, and takes away what kustomize does not have.
func checkHelmsOwn(t *testing.T, o map[string]any) {
	t.Helper()
	metas := []map[string]any{o["metadata"].(map[string]any)}
	if o["kind"] == "DaemonSet" {
		metas = append(metas, o["spec"].(map[string]any)["template"].(map[string]any)["metadata"].(map[string]any))
		if annotations := metas[1]["annotations"].(map[string]any); len(annotations["checksum/config"].(string)) != 64 {
			t.Errorf("the pods have the annotations %v", annotations)
		}
		delete(metas[1], "annotations")
	}
	for _, meta := range metas {
		labels := meta["labels"].(map[string]any)
		for _, name := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"} {
			if labels[name] == nil {
				t.Errorf("%s %s has no label %s", o["kind"], meta["name"], name)
			}
			delete(labels, name)
		}
		switch o["kind"] {
		case "ServiceAccount", "ConfigMap", "ClusterRole", "ClusterRoleBinding": // kustomize labels only what selects pods or monitors
			delete(meta, "labels")
		}
	}
}

// TestChartLint: "helm lint --strict" finds nothing, and the schema refuses values that are none.
func TestChartLint(t *testing.T) {
	for _, values := range variants() {
		tool(t, "", append([]string{"lint", "chart"}, values...)...)
	}
	path, err := buildTools()
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"image=verdict:v1", "imagePullPolicy=Always", "extraArgs={v=4}", "monitoring=true", "image.digest=abc", "initContainer=no"} {
		if out, err := exec.Command(path, "helm", "chart", wrong).CombinedOutput(); err == nil {
			t.Errorf("the chart takes %s:\n%s", wrong, out)
		}
	}
}

// TestChartClaimsWhatIsTested: the chart asks for the oldest version that "make e2e-skew" tests, which CI tests as well.
func TestChartClaimsWhatIsTested(t *testing.T) {
	first := func(file, pattern string) string {
		t.Helper()
		text, err := os.ReadFile(file)
		found := regexp.MustCompile(pattern).FindStringSubmatch(string(text))
		if err != nil || found == nil {
			t.Fatalf("%s: %v, no %s", file, err, pattern)
		}
		return found[1]
	}
	oldest := first("../../Makefile", `(?m)^KUBERNETES +\?= (1\.\d+)\.\d+ `)
	if claimed := first("chart/Chart.yaml", `(?m)^kubeVersion: ">=(1\.\d+)\.0-0"$`); claimed != oldest {
		t.Errorf("the chart claims %s, and the oldest version with tests is %s", claimed, oldest)
	}
	if inCI := first("../../.ci/run", `make e2e-skew KUBERNETES=(1\.\d+)\.`); inCI != oldest {
		t.Errorf("CI tests %s, and the oldest version is %s", inCI, oldest)
	}
	newest := first("../../Makefile", `(?m)^KUBERNETES +\?= .* (\S+)$`)
	if ours := first("../../e2e/controlplane/build.sh", `(?m)^ours=(\S+)`); ours != newest {
		t.Errorf("%s is upgraded to, and the newest version is %s", ours, newest)
	}
}

// TestChartValues: each value does what its comment says.
func TestChartValues(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	text := tool(t, "", "helm", "chart", "image.repository=registry.example/verdict", "image.tag=v2", "image.digest="+digest, "imagePullSecrets[0].name=registry",
		"podAnnotations.team=net", "affinity.nodeAffinity.x=y", "monitoring.enabled=true", "monitoring.labels.release=prometheus", "monitoring.job=kube-proxy")
	for want, n := range map[string]int{
		"image: registry.example/verdict:v2@" + digest: 2, "- name: registry": 1, "team: net": 1, "nodeAffinity:": 1, "release: prometheus": 2,
		"replacement: kube-proxy": 1,
	} {
		if got := strings.Count(text, want); got != n {
			t.Errorf("%q is there %d times, want %d:\n%s", want, got, n, text)
		}
	}
	if strings.Contains(text, "verdict.*") || !strings.Contains(text, `job="kube-proxy"`) {
		t.Errorf("alerts select another job than the monitor sets:\n%s", text)
	}
	checksum := regexp.MustCompile("checksum/config: .*")
	changed := tool(t, "", "helm", "chart", "config.nodePortAddresses={all}")
	if same := tool(t, "", "helm", "chart"); checksum.FindString(changed) == checksum.FindString(same) {
		t.Error("another configuration has the same checksum")
	}
}

// TestChartInAnotherNamespace: everything is in the namespace of the release, so that the monitor finds the pods.
func TestChartInAnotherNamespace(t *testing.T) {
	text := tool(t, "", "helm", "chart", "namespace=networking", "monitoring.enabled=true")
	if strings.Contains(text, "kube-system") {
		t.Errorf("something is in kube-system:\n%s", text)
	}
	for name, o := range objects(t, text) {
		meta, _ := o.(map[string]any)["metadata"].(map[string]any)
		if in := meta["namespace"]; in != "networking" && !strings.HasPrefix(name, "ClusterRole") {
			t.Errorf("%s is in the namespace %v", name, in)
		}
	}
}

// daemonSets returns those of a text. The test fails if a field of any object is unknown to the API.
func daemonSets(t *testing.T, text string) (list []appsv1.DaemonSet) {
	t.Helper()
	types := map[string]func() any{
		"ServiceAccount": func() any { return &corev1.ServiceAccount{} }, "DaemonSet": func() any { return &appsv1.DaemonSet{} },
		"ConfigMap":   func() any { return &corev1.ConfigMap{} },
		"ClusterRole": func() any { return &rbacv1.ClusterRole{} }, "ClusterRoleBinding": func() any { return &rbacv1.ClusterRoleBinding{} },
	}
	for name, o := range objects(t, text) {
		kind, _, _ := strings.Cut(name, " ")
		if kind == "PodMonitor" || kind == "PrometheusRule" {
			continue // of the Prometheus operator
		}
		raw, err := json.Marshal(o)
		if err != nil || types[kind] == nil {
			t.Fatalf("%s: %v", name, err)
		}
		into := types[kind]()
		if err := yaml.UnmarshalStrict(raw, into); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if ds, ok := into.(*appsv1.DaemonSet); ok {
			list = append(list, *ds)
		}
	}
	return list
}

// TestVariants: each has one DaemonSet with flags that exist, and only the containers that may are privileged.
func TestVariants(t *testing.T) {
	for _, variant := range []string{"base", "overlays/kubeadm", "overlays/k3s", "overlays/nft-only", "overlays/cleanup", "monitoring"} {
		t.Run(variant, func(t *testing.T) {
			list := daemonSets(t, kustomized(t, variant))
			if len(list) != 1 {
				t.Fatalf("%d DaemonSets", len(list))
			}
			pod := list[0].Spec.Template.Spec
			if wants := variant != "overlays/nft-only"; (len(pod.InitContainers) > 0) != wants {
				t.Errorf("%d init containers", len(pod.InitContainers))
			}
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				known := flags(t, c.Args[0])
				for _, arg := range c.Args {
					if flag, _, _ := strings.Cut(arg, "="); strings.HasPrefix(flag, "--") && !slices.Contains(known, flag) {
						t.Errorf("%s: there is no flag %s", c.Name, flag)
					}
				}
			}
			for _, c := range pod.Containers {
				if c.LivenessProbe != nil {
					get := c.LivenessProbe.HTTPGet // the ConfigMap may move the health port elsewhere
					if want := "--probe-bind-address=" + get.Host + ":" + get.Port.String(); !slices.Contains(c.Args, want) {
						t.Errorf("the arguments %v lack %s", c.Args, want)
					}
				}
				s := c.SecurityContext
				if s.Privileged != nil && *s.Privileged || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
					t.Errorf("%s has privileges: %+v", c.Name, s)
				}
			}
		})
	}
}

// TestCleanupIsOfNoOtherDaemonSet: its pods do not match the selector of the proxy.
func TestCleanupIsOfNoOtherDaemonSet(t *testing.T) {
	cleanup := daemonSets(t, kustomized(t, "overlays/cleanup"))[0]
	selector, err := metav1.LabelSelectorAsMap(load(t).daemons.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range selector {
		if cleanup.Spec.Template.Labels[name] == value {
			t.Errorf("the pods have the label %s=%s of the proxy", name, value)
		}
	}
}
