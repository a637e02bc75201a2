//go:build !nokernel

package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// documentedMetrics are the metrics in the tables of README.md and KUBE-PROXY.md, which a test in cmd/verdict compares with
// the program.
func documentedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{"up": true, "process_cpu_seconds_total": true, "process_resident_memory_bytes": true}
	for file, header := range map[string]string{"README.md": "", "KUBE-PROXY.md": " see also |"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(string(text), "| metric | labels | meaning |"+header+"\n")
		table, _, _ = strings.Cut(table, "\n\n")
		for line := range strings.Lines(table) {
			cell := strings.SplitN(line, "|", 3)[1]
			for _, name := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(cell, -1) {
				known[name[1]] = true
			}
		}
	}
	if len(known) < 50 {
		t.Fatalf("the documents have only %d metrics", len(known))
	}
	return known
}

// checkMetrics reports names that are no metrics of Verdict. Histograms have three names.
func checkMetrics(t *testing.T, names string) {
	t.Helper()
	known, list := documentedMetrics(t), strings.Fields(names)
	if len(list) < 10 {
		t.Errorf("only %d metrics are used", len(list))
	}
	for _, name := range list {
		plain := name
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			plain = strings.TrimSuffix(plain, suffix)
		}
		if !known[name] && !known[plain] {
			t.Errorf("there is no metric %s", name)
		}
	}
}

// TestAlerts checks the rules as promtool does, and that each alert says what to do.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("monitoring/prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rule struct {
		Spec struct {
			Groups []struct {
				Name  string
				Rules []struct {
					Alert, Record, Expr, For string
					Labels, Annotations      map[string]string
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &rule); err != nil {
		t.Fatal(err)
	}
	plain, err := yaml.Marshal(map[string]any{"groups": objects(t, string(text))["PrometheusRule verdict"].(map[string]any)["spec"].(map[string]any)["groups"]})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, plain, 0o644); err != nil {
		t.Fatal(err)
	}
	metrics := tool(t, "", "rules", file)
	for _, g := range rule.Spec.Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				metrics = strings.ReplaceAll(metrics, r.Record, "") // a rule reads what another one records
			}
		}
	}
	checkMetrics(t, metrics)
	if !strings.Contains(metrics, "verdict_api_resource_readable") { // a lost API server causes too few errors to be noticed by them
		t.Error("no alert when the API server is lost")
	}
	runbooks, err := os.ReadFile("monitoring/RUNBOOKS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rule.Spec.Groups[0].Rules {
		_, steps, _ := strings.Cut(string(runbooks), "\n## "+r.Alert+"\n")
		steps, _, _ = strings.Cut(steps, "\n## ")
		if got, want := strings.Join(strings.Fields(steps), " "), strings.TrimSpace(r.Annotations["runbook"]); got != want {
			t.Errorf("RUNBOOKS.md describes %s as %q, the alert as %q", r.Alert, got, want)
		}
		if url := r.Annotations["runbook_url"]; !strings.HasSuffix(url, "/config/deploy/monitoring/RUNBOOKS.md#"+strings.ToLower(r.Alert)) {
			t.Errorf("the runbook_url of %s is %q", r.Alert, url)
		}
		for _, name := range []string{"summary", "description", "runbook"} {
			if r.Annotations[name] == "" {
				t.Errorf("%s has no %s", r.Alert, name)
			}
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" && s != "info" {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
		for _, name := range regexp.MustCompile(`\b(?:verdict|kubeproxy|rest_client)_[a-z_]+\b`).FindAllString(r.Annotations["runbook"], -1) {
			if !documentedMetrics(t)[name] {
				t.Errorf("the runbook of %s names %s, which is no metric", r.Alert, name)
			}
		}
	}
}

// TestDashboard parses each query of the dashboard, and looks for metrics that do not exist.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Templating struct {
			List []struct{ Name, Query string }
		}
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	var queries strings.Builder
	ids := map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d %q has no own number, no title or no query", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			queries.WriteString(strings.NewReplacer("$__rate_interval", "5m", "$cluster", ".*", "$node", ".*", "$instance", ".*").Replace(target.Expr) + "\n")
			if strings.Count(target.Expr, "{") != strings.Count(target.Expr, `{cluster=~"$cluster",node=~"$node",instance=~"$instance"`) {
				t.Errorf("panel %q does not select by cluster, node and instance: %s", p.Title, target.Expr)
			}
		}
	}
	for i, query := range []string{"prometheus", "label_values(verdict_build_info, cluster)", `label_values(verdict_build_info{cluster=~"$cluster"}, node)`,
		`label_values(verdict_build_info{cluster=~"$cluster",node=~"$node"}, instance)`} {
		if v := dashboard.Templating.List[i]; v.Query != query {
			t.Errorf("the variable %s asks for %q, want %q", v.Name, v.Query, query)
		}
	}
	if strings.Contains(queries.String(), "$") {
		t.Errorf("a variable is unknown:\n%s", queries.String())
	}
	checkMetrics(t, tool(t, queries.String(), "queries"))
}
