// Command tools renders and checks the files of config/deploy, and makes packages. It is a module of its own, so that
// the libraries of kustomize, Helm, Prometheus and nfpm are no dependencies of Verdict.
//
//	tools kustomize DIR                print the objects of a kustomization
//	tools helm CHART [namespace=NAME] [KEY=VALUE...]    print the objects of a chart
//	tools lint CHART [KEY=VALUE...]    check a chart as "helm lint --strict" does, its values and its schema
//	tools rules FILE                   check alert rules as promtool does, and print the metrics that they use
//	tools queries                      read PromQL from standard input, one query a line, and print the metrics
//	tools package CONFIG TARGET        make TARGET, a .deb or .rpm, as an nfpm configuration says
package main

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tools: "+err.Error())
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: tools kustomize DIR | helm CHART [namespace=NAME] [KEY=VALUE...] | lint CHART [KEY=VALUE...] | rules FILE | queries | package CONFIG TARGET")

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "kustomize":
		return kustomize(args[1])
	case len(args) >= 2 && args[0] == "helm":
		return helm(args[1], args[2:])
	case len(args) >= 2 && args[0] == "lint":
		return lintChart(args[1], args[2:])
	case len(args) == 2 && args[0] == "rules":
		return rules(args[1])
	case len(args) == 1 && args[0] == "queries":
		return queries()
	case len(args) == 3 && args[0] == "package":
		return pack(args[1], args[2])
	}
	return errUsage
}

func kustomize(dir string) error {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return fmt.Errorf("build kustomization %s: %w", dir, err)
	}
	text, err := objects.AsYaml()
	if err != nil {
		return fmt.Errorf("print the objects of %s: %w", dir, err)
	}
	fmt.Print(string(text))
	return nil
}

func helm(dir string, set []string) error {
	chart, err := loader.Load(dir)
	if err != nil {
		return fmt.Errorf("load chart %s: %w", dir, err)
	}
	given, namespace := map[string]any{}, "kube-system"
	for _, s := range set {
		if name, is := strings.CutPrefix(s, "namespace="); is {
			namespace = name
			continue
		}
		if err := strvals.ParseInto(s, given); err != nil {
			return fmt.Errorf("value %q: %w", s, err)
		}
	}
	release := chartutil.ReleaseOptions{Name: "verdict", Namespace: namespace, IsInstall: true}
	values, err := chartutil.ToRenderValues(chart, given, release, chartutil.DefaultCapabilities)
	if err != nil {
		return fmt.Errorf("values of chart %s: %w", dir, err)
	}
	files, err := engine.Engine{Strict: true}.Render(chart, values)
	if err != nil {
		return fmt.Errorf("render chart %s: %w", dir, err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if text := strings.TrimSpace(files[name]); text != "" && filepath.Ext(name) == ".yaml" {
			fmt.Printf("---\n%s\n", text)
		}
	}
	return nil
}

func lintChart(dir string, set []string) error {
	given := map[string]any{}
	for _, s := range set {
		if err := strvals.ParseInto(s, given); err != nil {
			return fmt.Errorf("value %q: %w", s, err)
		}
	}
	var errs []error
	for _, m := range lint.AllWithKubeVersion(dir, given, "kube-system", nil).Messages {
		fmt.Println(m)
		if m.Severity >= support.WarningSev {
			errs = append(errs, m)
		}
	}
	return errors.Join(errs...)
}

func rules(file string) error {
	groups, errs := rulefmt.ParseFile(file, false, model.LegacyValidation)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("rules of %s: %w", file, err)
	}
	for _, g := range groups.Groups {
		for i := range g.Rules {
			if err := printMetrics(g.Rules[i].Expr); err != nil {
				return err
			}
		}
	}
	return nil
}

func queries() error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := printMetrics(lines.Text()); err != nil {
			return err
		}
	}
	return nil
}

// printMetrics prints the names of the metrics in a query.
func printMetrics(query string) error {
	expr, err := parser.ParseExpr(query)
	if err != nil {
		return fmt.Errorf("query %s: %w", query, err)
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			fmt.Println(v.Name)
		}
		return nil
	})
	return nil
}

func pack(config, target string) error {
	format := strings.TrimPrefix(filepath.Ext(target), ".")
	parsed, err := nfpm.ParseFileWithEnvMapping(config, os.Getenv)
	if err != nil {
		return fmt.Errorf("read %s: %w", config, err)
	}
	info, err := parsed.Get(format)
	if err != nil {
		return fmt.Errorf("settings of %s for %s: %w", config, format, err)
	}
	info = nfpm.WithDefaults(info)
	packager, err := nfpm.Get(format)
	if err != nil {
		return fmt.Errorf("make %s: %w", target, err)
	}
	out, err := os.Create(target)
	if err != nil {
		return fmt.Errorf("make %s: %w", target, err)
	}
	info.Target = target
	return errors.Join(packager.Package(info, out), out.Close())
}
