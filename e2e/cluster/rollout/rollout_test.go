package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
)

// example has two updates of 4 seconds, 10 seconds apart.
func example(proxy string, outcomes ...rate.Outcome) *Run {
	began := time.Date(2026, 11, 23, 20, 0, 0, 0, time.UTC)
	after := began.Add
	way := Way{Name: "from a pod", Attempts: []rate.Attempt{
		{Began: after(-5 * time.Second), Took: time.Millisecond, Outcome: rate.Answered},
		{Began: after(time.Second), Took: 1100 * time.Millisecond, Outcome: rate.Answered, SourcePort: 10001, Server: "late"},
	}}
	for _, o := range outcomes {
		way.Attempts = append(way.Attempts, rate.Attempt{Began: after(12 * time.Second), Took: time.Second, Outcome: o, Error: "because"})
	}
	return &Run{Proxy: proxy, Ways: []Way{way}, Updates: []Span{
		{began, after(4 * time.Second)}, {after(10 * time.Second), after(14 * time.Second)},
	}}
}

func TestTable(t *testing.T) {
	bad := example("bad", rate.Refused, rate.Refused, rate.Unreachable, rate.Timeout, rate.Timeout, rate.Timeout, rate.Reset, rate.Silent)
	const want = `
| connections | proxy | number | refused | unreachable | timeout | cut after the handshake | late | p50     | p99      | slowest  |
| ---         | ---   | ---    | ---     | ---         | ---     | ---                     | ---  | ---     | ---      | ---      |
| from a pod  | bad   | 10     | 2       | 1           | 3       | 2                       | 1    | 1.00 ms | 1,100 ms | 1,100 ms |
| from a pod  | good  | 2      | 0       | 0           | 0       | 0                       | 1    | 1.00 ms | 1,100 ms | 1,100 ms |
`
	if got := "\n" + Table([]*Run{bad, example("good")}); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if Table(nil) == "" {
		t.Error("no table without runs")
	}
}

func TestNotable(t *testing.T) {
	got := example("bad", rate.Refused).Notable()
	for _, want := range []string{
		"20:00:01.000000  update  1 +  1.00 s  from a pod", "port 10001", "answered", "late",
		"20:00:12.000000  update  2 +  2.00 s", "refused", "because",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\n"); n != 2 {
		t.Errorf("%d lines, want 2:\n%s", n, got)
	}
}

func TestSaveAndLoad(t *testing.T) {
	dir := t.TempDir()
	for name, r := range map[string]*Run{"b": example("Verdict"), "a": example("kube-proxy", rate.Refused), "c": example("another")} {
		if err := r.Save(dir, name); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := Load(dir)
	if err != nil || len(runs) != 3 || runs[0].Proxy != "Verdict" || len(runs[2].Ways[0].Attempts) != 3 {
		t.Fatalf("loaded %v, %v", runs, err)
	}
}
