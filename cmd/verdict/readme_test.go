package main

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/verdict-proxy/verdict/cmd/verdict/kernelmetrics"
	"github.com/verdict-proxy/verdict/cmd/verdict/restclient"
	"github.com/verdict-proxy/verdict/e2e/exposition"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/metrics"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// tableOf returns the rows of all tables in a document whose header begins with the given cells, each row as its cells.
func tableOf(t *testing.T, file, header string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tables := strings.Split(string(text), "\n| "+header+" |\n")[1:]
	if len(tables) == 0 {
		t.Fatalf("%s has no table with the header %q", file, header)
	}
	for _, table := range tables {
		for line := range strings.Lines(table) {
			if line = strings.TrimSpace(line); line == "" {
				break
			}
			cells := strings.Split(strings.Trim(line, "|"), "|")
			if len(cells) > 1 && strings.Contains(cells[0], "`") {
				rows = append(rows, cells)
			}
		}
	}
	return rows
}

// literals are the texts in back quotes.
func literals(cell string) (list []string) {
	for _, match := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(cell, -1) {
		list = append(list, match[1])
	}
	return list
}

// TestFlagTables compares the tables in config/README.md with the flags of "verdict run".
func TestFlagTables(t *testing.T) {
	compareMaps(t, documentedFlags(t, configReadme), definedFlags())
}

// TestReadmeFlags: README.md describes only flags that exist, with their defaults.
func TestReadmeFlags(t *testing.T) {
	defined := definedFlags()
	for name, fallback := range documentedFlags(t, "../../README.md") {
		if got, ok := defined[name]; !ok || got != fallback {
			t.Errorf("README.md says %q for --%s, the program says %q (it has the flag: %t)", fallback, name, got, ok)
		}
	}
}

// documentedFlags returns the flags in the tables of a document with their defaults. The default of a flag stands in back
// quotes. A cell without back quotes describes an empty default.
func documentedFlags(t *testing.T, file string) map[string]string {
	t.Helper()
	documented := map[string]string{}
	for _, cells := range tableOf(t, file, "flag | default | meaning") {
		for _, text := range literals(cells[0]) {
			name, _, _ := strings.Cut(strings.TrimLeft(text, "-"), " ")
			if _, twice := documented[name]; twice {
				t.Errorf("%s documents --%s twice", file, name)
			}
			documented[name] = strings.Join(literals(cells[1]), " ")
		}
	}
	return documented
}

// definedFlags returns the flags of "verdict run" with their defaults.
func definedFlags() map[string]string {
	defined := map[string]string{}
	newRun().Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			defined[f.Name] = strings.Trim(f.DefValue, "[]") // a list has brackets
		}
	})
	return defined
}

// TestSchedulerTable: config/README.md describes exactly the schedulers that Services may ask for.
func TestSchedulerTable(t *testing.T) {
	var documented []string
	for _, cells := range tableOf(t, configReadme, "scheduler (names of ipvsadm(8)) | how it picks | with `hybrid` | with `nft`") {
		documented = append(documented, literals(cells[0])...)
	}
	slices.Sort(documented)
	want := dataplane.Schedulers()
	slices.Sort(want)
	if !slices.Equal(documented, want) {
		t.Errorf("%s describes the schedulers %v, the program has %v", configReadme, documented, want)
	}
}

// TestDocumentedMetrics compares the tables in config/deploy with the metrics of the daemon and their labels: those of
// Verdict alone, and those of kube-proxy. Metrics of the Go runtime and of the process are not in the tables.
func TestDocumentedMetrics(t *testing.T) {
	documented, same := documentedMetrics(t, deployReadme, "metric | labels | meaning"), map[string]bool{}
	known := maps.Clone(documented)
	for name, labels := range documentedMetrics(t, besideKubeProxy, "metric | labels | meaning | see also") {
		if _, twice := documented[name]; twice {
			t.Errorf("%s is in both documents", name)
		}
		documented[name], same[name] = labels, true
	}
	compareMaps(t, documented, registered(t, everyMetric(t)))

	const folder = "../../proxier/metrics/testdata/"
	ofUpstream, err := exposition.Recorded("", folder+"kube-proxy.txt", folder+"kube-proxy-unseen.txt")
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, cells := range tableOf(t, besideKubeProxy, "metric of kube-proxy | why Verdict does not have it | use instead") {
		for _, name := range literals(cells[0]) {
			missing[name] = true
		}
		wantKnown(t, known, cells[2])
	}
	for _, cells := range tableOf(t, besideKubeProxy, "metric | labels | meaning | see also") {
		wantKnown(t, known, cells[3])
	}
	for name := range ofUpstream {
		if same[name] == missing[name] {
			t.Errorf("%s is a metric of kube-proxy: it must be in one of the two tables", name)
		}
	}
	for name := range documented {
		if same[name] != (ofUpstream[name] != "") {
			t.Errorf("kube-proxy has %s: %t, but the table says something else", name, ofUpstream[name] != "")
		}
	}
}

// documentedMetrics returns the metrics of a table with their labels.
func documentedMetrics(t *testing.T, file, header string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, cells := range tableOf(t, file, header) {
		labels := literals(cells[1])
		slices.Sort(labels)
		for _, name := range literals(cells[0]) {
			found[name] = strings.Join(labels, " ")
		}
	}
	return found
}

// wantKnown wants a cell to name only metrics that exist.
func wantKnown(t *testing.T, known map[string]string, cell string) {
	t.Helper()
	for _, name := range literals(cell) {
		if _, ok := known[name]; !ok {
			t.Errorf("%s: there is no metric %s of Verdict alone", besideKubeProxy, name)
		}
	}
}

// Documents with tables.
const (
	configReadme    = "../../config/README.md"
	deployReadme    = "../../config/deploy/README.md"
	besideKubeProxy = "../../config/deploy/KUBE-PROXY.md"
)

// everyMetric is a registry with all metrics of the daemon.
func everyMetric(t *testing.T) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewRegistry()
	_, err := metrics.New(metrics.Options{
		Registry: registry, Families: []state.Family{state.IPv4}, Changes: state.NewStore().ChangeCounts,
		Seconds: func() map[string]float64 { return map[string]float64{"shop": 1} },
	})
	if err := errors.Join(err, restclient.Register(registry), registry.Register(kernelmetrics.New(kernelmetrics.Options{}))); err != nil {
		t.Fatal(err)
	}
	return registry
}

// TestDocumentsNameMetrics: the metrics that documents mention exist. KUBE-PROXY.md is left out, because it also names
// metrics that Verdict does not have; TestDocumentedMetrics checks it.
func TestDocumentsNameMetrics(t *testing.T) {
	known, mentioned := registered(t, everyMetric(t)), 0
	pattern := regexp.MustCompile("`((?:verdict|kubeproxy)_[a-z0-9_]+)")
	err := fs.WalkDir(os.DirFS("../.."), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", ".cache", "bin"}, path):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".md") || path == strings.TrimPrefix(besideKubeProxy, "../../"):
			return nil
		}
		text, err := os.ReadFile("../../" + path)
		for _, match := range pattern.FindAllStringSubmatch(string(text), -1) {
			mentioned++
			if _, ok := known[match[1]]; !ok {
				t.Errorf("%s mentions %s, which the program does not have", path, match[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if mentioned < 60 {
		t.Errorf("the documents mention only %d metrics", mentioned)
	}
}

// registered returns the metrics of a registry with their labels.
func registered(t *testing.T, registry *prometheus.Registry) map[string]string {
	t.Helper()
	descriptions := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(descriptions)
		close(descriptions)
	}()
	parts := regexp.MustCompile(`fqName: "([^"]*)".*constLabels: {([^}]*)}.*variableLabels: {([^}]*)}`)
	constLabel := regexp.MustCompile(`(\w+)="`)
	found := map[string]string{}
	for d := range descriptions {
		match := parts.FindStringSubmatch(d.String())
		if match == nil {
			t.Fatalf("cannot parse the description %s", d)
		}
		labels := strings.FieldsFunc(match[3], func(r rune) bool { return r == ',' })
		for _, label := range constLabel.FindAllStringSubmatch(match[2], -1) {
			labels = append(labels, label[1])
		}
		slices.Sort(labels)
		if !strings.HasPrefix(match[1], "go_") && !strings.HasPrefix(match[1], "process_") {
			found[match[1]] = strings.Join(labels, " ")
		}
	}
	return found
}

// compareMaps compares what a document says with what the program defines.
func compareMaps(t *testing.T, documented, defined map[string]string) {
	t.Helper()
	if len(documented) == 0 || len(defined) == 0 {
		t.Fatalf("the document has %d names, the program defines %d", len(documented), len(defined))
	}
	for _, name := range slices.Sorted(maps.Keys(defined)) {
		switch text, ok := documented[name]; {
		case !ok:
			t.Errorf("the document does not list %s", name)
		case text != defined[name]:
			t.Errorf("the document says %q for %s, the program says %q", text, name, defined[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if _, ok := defined[name]; !ok {
			t.Errorf("the document lists %s, which the program does not have", name)
		}
	}
}
