//go:build e2e

package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// leftover is a part of what kube-proxy leaves behind in mode nftables.
const leftover = "add table ip kube-proxy; add chain ip kube-proxy services; add rule ip kube-proxy services counter"

// kubeadm runs the overlay with the ConfigMap that kubeadm makes, and with the capabilities of the DaemonSet. It takes the
// place of kube-proxy.
func (c *cluster) kubeadm(t *testing.T) {
	pod := daemonSets(t, kustomized(t, "overlays/kubeadm"))[0].Spec.Template.Spec
	if _, err := c.ns.Command("nft", leftover); err != nil {
		t.Fatal(err)
	}
	args := []string{}
	for _, a := range pod.Containers[0].Args {
		args = append(args, strings.ReplaceAll(a, "/var/lib/kube-proxy/config.conf", c.configuration(t)))
	}
	c.execute(t, "kubeadm", &pod.Containers[0], args)
	c.probes(t, &pod.Containers[0])
	c.await(t, "the end of kube-proxy's table", func() (bool, error) {
		text, err := c.ns.Command("nft", "list", "tables")
		return err == nil && !strings.Contains(text, "kube-proxy") && strings.Contains(text, "table ip verdict"), err
	})
}

// configuration writes config.conf of kubeadm's ConfigMap. The API server and the token are those of this test.
func (c *cluster) configuration(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../cmd/verdict/kubeproxyconfig/testdata/kubeadm-1.37-configmap.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m corev1.ConfigMap
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		t.Fatal(err)
	}
	const kubeconfig = "/var/lib/kube-proxy/kubeconfig.conf"
	if !strings.Contains(m.Data["config.conf"], kubeconfig) {
		t.Fatalf("the configuration does not name %s", kubeconfig)
	}
	file := filepath.Join(t.TempDir(), "config.conf")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(m.Data["config.conf"], kubeconfig, c.kubeconfig)), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
