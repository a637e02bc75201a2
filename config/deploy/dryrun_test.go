//go:build e2e

package deploy

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// dryRun has the API server check all objects of all variants, without creating them. It refuses unknown fields, and
// values that it would not accept.
func (c *cluster) dryRun(t *testing.T) {
	texts := map[string]string{"overlays/cleanup": kustomized(t, "overlays/cleanup")}
	for variant, values := range variants() {
		texts[variant] = kustomized(t, variant)
		texts["chart like "+variant] = tool(t, "", append([]string{"helm", "chart"}, values...)...)
	}
	for what, text := range texts {
		for name, o := range objects(t, text) {
			if err := c.tryOut(t, name, o.(map[string]any)); err != nil {
				t.Errorf("%s: %s: %v", what, name, err)
			}
		}
	}
	broken := objects(t, texts["base"])["DaemonSet verdict"].(map[string]any)
	broken["spec"].(map[string]any)["selectr"] = "x"
	if err := c.tryOut(t, "DaemonSet verdict", broken); err == nil {
		t.Error("the dry run accepts an unknown field")
	}
}

// tryOut sends one object. It has another name, because the object itself exists.
func (c *cluster) tryOut(t *testing.T, name string, o map[string]any) error {
	t.Helper()
	paths := map[string]string{
		"ServiceAccount":     "/api/v1/namespaces/kube-system/serviceaccounts",
		"ConfigMap":          "/api/v1/namespaces/kube-system/configmaps",
		"DaemonSet":          "/apis/apps/v1/namespaces/kube-system/daemonsets",
		"ClusterRole":        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		"ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	}
	kind, _, _ := strings.Cut(name, " ")
	if kind == "PodMonitor" || kind == "PrometheusRule" {
		return nil // the API server does not have the types of the Prometheus operator
	}
	if paths[kind] == "" {
		t.Fatalf("unexpected object %s", name)
	}
	meta := o["metadata"].(map[string]any)
	meta["name"] = meta["name"].(string) + "-tried"
	body, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return c.plane.Client.CoreV1().RESTClient().Verb(http.MethodPost).RequestURI(paths[kind]+"?dryRun=All&fieldValidation=Strict").
		SetHeader("Content-Type", "application/json").Body(body).Do(t.Context()).Error()
}
