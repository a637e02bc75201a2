//go:build e2e

package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/program"
	"github.com/verdict-proxy/verdict/e2e/runner"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// arguments are the flags of the test binary.
type arguments struct {
	proxy, sources, verdict, logs string
}

// tested says what to test. TestMain sets it; nothing changes it later.
var tested struct {
	arguments
	controlPlane string
	deploy       string
}

func TestMain(m *testing.M) {
	a := &tested.arguments
	flag.StringVar(&a.proxy, "proxy", "verdict", "the proxy under test: verdict or kube-proxy (upstream's, in nftables mode)")
	flag.StringVar(&a.sources, "source", "", "where to write objects: apiserver, manifests, or both, comma separated; default: all that the proxy can read")
	flag.StringVar(&a.verdict, "verdict", os.Getenv(program.Variable),
		"the verdict binary; default: $"+program.Variable+", or built from this working tree")
	flag.StringVar(&a.logs, "logs", "", "folder for logs and rulesets; default: a temporary one, which stays when a test fails")
	flag.Parse()
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// runTests runs the tests and removes everything but the logs of failures. It is a function of its own, because os.Exit
// in TestMain skips deferred calls.
func runTests(m *testing.M) (code int, err error) {
	programs, err := os.MkdirTemp("", "verdict-e2e-bin-")
	if err != nil {
		return 1, fmt.Errorf("create a folder for programs: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(programs)) }()
	if err := prepare(programs); err != nil {
		return 1, err
	}
	if tested.logs != "" {
		defer fmt.Println("logs are in", tested.logs)
		return m.Run(), nil
	}
	if tested.logs, err = os.MkdirTemp("", "verdict-e2e-"); err != nil {
		return 1, fmt.Errorf("create a folder for logs: %w", err)
	}
	if code = m.Run(); code != 0 {
		fmt.Println("logs are in", tested.logs)
		return code, nil
	}
	return 0, os.RemoveAll(tested.logs)
}

// prepare checks that everything is there that the tests need, and builds the binaries.
func prepare(programs string) error {
	if os.Getuid() != 0 {
		return errors.New("these tests create network namespaces: run them as root")
	}
	for _, program := range []string{"nft", "go"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("find the program %s, which the tests need: %w", program, err)
		}
	}
	if tested.sources == "" {
		tested.sources = string(runner.FromAPIServer)
		if tested.proxy == string(runner.Verdict) {
			tested.sources += "," + string(runner.FromManifests)
		}
	}
	var err error
	if tested.deploy, err = filepath.Abs("../config/deploy/base/daemonset.yaml"); err != nil {
		return err
	}
	if err := buildControlPlane(); err != nil || tested.verdict != "" || tested.proxy != string(runner.Verdict) {
		return err
	}
	tested.verdict = filepath.Join(programs, "verdict")
	return program.Build(tested.verdict)
}

func buildControlPlane() (err error) {
	if !strings.Contains(tested.sources, string(runner.FromAPIServer)) {
		return nil
	}
	names := []string{"etcd", "kube-apiserver"}
	if tested.proxy == string(runner.KubeProxy) {
		names = append(names, "kube-proxy")
	}
	tested.controlPlane, err = apiserver.Build(names...)
	return err
}

func proxy() runner.Proxy {
	if tested.proxy == string(runner.KubeProxy) {
		return runner.Proxy{Kind: runner.KubeProxy, Binary: filepath.Join(tested.controlPlane, "kube-proxy")}
	}
	return runner.Proxy{Kind: runner.Verdict, Binary: tested.verdict}
}

// TestScenarios runs all scenarios from each source and in each family. The families run at the same time, each with
// its own API server.
func TestScenarios(t *testing.T) {
	list, err := scenario.Load(os.DirFS("scenarios"))
	lab.Must(t, err)
	var checked, scenarios atomic.Int64
	for _, source := range strings.Split(tested.sources, ",") {
		t.Run(source, func(t *testing.T) {
			for _, family := range lab.Families() {
				t.Run(family.String(), func(t *testing.T) {
					t.Parallel()
					runAll(t, list, runner.Source(source), family, func(n int) {
						scenarios.Add(1)
						checked.Add(int64(n))
					})
				})
			}
		})
	}
	t.Logf("%d scenarios, %d probes", scenarios.Load(), checked.Load())
}

func runAll(t *testing.T, list []*scenario.Scenario, source runner.Source, family lab.Family, count func(int)) {
	bed, err := runner.NewBed(runner.Options{
		Family: family, Source: source, Proxy: proxy(), ControlPlane: tested.controlPlane, Deploy: tested.deploy,
		Dir: filepath.Join(tested.logs, string(source)+"-"+family.String()),
	})
	lab.Must(t, err)
	defer func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, s := range list {
		if !bed.Applies(s) {
			continue // UPSTREAM.md lists it with the reason
		}
		t.Run(s.File+"/"+s.Name, func(t *testing.T) {
			n, err := bed.Run(s)
			count(n)
			if err != nil {
				t.Error(err)
			}
		})
	}
}
