//go:build !nokernel

package bench

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// processors ends the name of a benchmark.
var processors = regexp.MustCompile(`-\d+$`)

// figures are what the lines of benchmarks have, by name and unit.
type figures map[string]map[string]float64

// run runs benchmarks in a process of their own, each two times, with a small cluster, and reads their lines as benchstat
// does.
func run(t *testing.T, pattern string) figures {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$", "-test.bench="+pattern, "-test.benchtime=2x", "-sizes=20")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	all := figures{}
	for r := benchfmt.NewReader(bytes.NewReader(text), "the benchmarks"); r.Scan(); {
		result, isResult := r.Result().(*benchfmt.Result)
		if !isResult {
			continue
		}
		name := processors.ReplaceAllString(result.Name.String(), "")
		all[name] = map[string]float64{"iterations": float64(result.Iters)}
		for _, v := range result.Values {
			if v.OrigUnit != "" { // the reader has changed the unit, such as ns to sec
				v.Unit, v.Value = v.OrigUnit, v.OrigValue
			}
			all[name][v.Unit] = v.Value
		}
	}
	return all
}

// TestFigures measures a small cluster in the real kernel. Every figure of the results must be there, and changes must need
// the known number of element operations.
func TestFigures(t *testing.T) {
	const services = 20
	all := run(t, "/services")
	of := func(benchmark string) map[string]float64 { return all[benchmark+"/services=20"] }
	if f := of("FirstSync"); f["elements/op"] < services*(perService+2) || f["wire-B/op"] == 0 ||
		f["ns/op"] < f["kernel-ns/op"] || f["kernel-ns/op"] <= 0 || f["iterations"] != 2 {
		t.Errorf("first sync: %v", f)
	}
	if f := of("FirstSync"); f["heap-B"] <= 0 || f["peak-B"] < f["resident-B"] {
		t.Errorf("memory: %v", f)
	}
	if f := of("FirstAnswer"); f["answer-p50-ns"] <= 0 || f["sync-p50-ns"] <= 0 || f["longest-change-ns"] <= 0 {
		t.Errorf("first answer: %v", f)
	}
	f := of("Endpoint")
	if f["replaced-operations/op"] != 2 || f["replaced-transactions/op"] != 1 || f["iterations"] != 2 ||
		f["replaced-kernel-p50-ns"] <= 0 || f["replaced-kernel-p50-ns"] > f["replaced-p50-ns"] {
		t.Errorf("one endpoint replaced: %v; want one element deleted and one added", f)
	}
	// One endpoint more is another slot, and the pool moves to another class.
	if f["added-operations/op"] != 3 {
		t.Errorf("one endpoint added: %v; want a slot, and the pool's element replaced", f)
	}
	if f["removed-p50-ns"] <= 0 || f["least-p50-ns"] <= 0 {
		t.Errorf("one endpoint removed, the least change: %v", f)
	}
	if f := of("Service"); f["added-transactions/op"] != 2 || f["added-operations/op"] < perService+2 || f["removed-p50-ns"] <= 0 {
		t.Errorf("one Service added: %v", f)
	}
	if f := of("EndpointReplacedBusy"); f["iterations"] != 2 || f["p50-ns"] <= 0 {
		t.Errorf("changes without a pause: %v", f)
	}
	// How many changes share a transaction, and how many come in a second, depends on what else the machine has to do.
	if f := of("Burst"); f["changes/op"] != burstChanges || f["transactions/op"] < 1 || f["transactions/op"] > burstChanges || f["ns/op"] <= 0 {
		t.Errorf("burst: %v; want no more transactions than changes", f)
	}
	if f := of("Stream"); f["changes/sec"] <= 0 || f["cpu-%"] <= 0 {
		t.Errorf("stream: %v", f)
	}
	if f := of("Connections"); f["proxy-p50-ns"] <= 0 || f["no-rule-connections/sec"] <= 0 || f["proxy-to-one-rule"] <= 0 {
		t.Errorf("connections: %v", f)
	}
}

// TestFiguresOfLargeServices expects every figure of the table of large Services.
func TestFiguresOfLargeServices(t *testing.T) {
	all := run(t, "/case")
	for name, least := range map[string]float64{
		"EndpointReplaced/" + bigCase: bigEndpoints, "EndpointReplaced/" + nodePortCase: nodePortCount * (perService + 2),
	} {
		if f := all[name]; f["first-sync-elements"] < least || f["first-sync-ns"] <= 0 || f["p50-ns"] <= 0 || f["iterations"] != 2 {
			t.Errorf("%s: %v, want at least %v elements", name, f, least)
		}
	}
	if f := all["FirstSync/"+manyCase]; f["elements/op"] < manyServices*manyEach || f["endpoints/op"] != manyServices*manyEach || f["ns/op"] <= 0 {
		t.Errorf("many endpoints: %v", f)
	}
	if f := all["EndpointReplacedBusy/"+bigCase]; f["p50-ns"] <= 0 {
		t.Errorf("changes of one large Service without a pause: %v", f)
	}
}

// TestLeftBehind expects the least change in its table, and no tables after the world is closed.
func TestLeftBehind(t *testing.T) {
	l := newLeast(t)
	l.record(t)
	if out, err := l.ns.Command("nft", "list", "ruleset"); err != nil || !strings.Contains(out, "10.0.0.1 : 10.0.0.1") {
		t.Errorf("the table of the least change: %s, %v", out, err)
	}
	ns, err := lab.NewNamespace("bench-test")
	lab.Must(t, err)
	defer ns.Close()
	w, _ := firstSync(t, ns, newCluster(2, 1), true)
	lab.Must(t, w.close(ns))
	if out, err := ns.Command("nft", "list", "tables"); err != nil || out != "" {
		t.Errorf("left behind: %q, %v", out, err)
	}
}
