package report

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// faultyServices returns a log of problems with n Services that have problems of the loop and of the source.
func faultyServices(n int) (ProblemLog, *state.Store) {
	log := slog.New(slog.DiscardHandler)
	lines := NewLines(log, 100)
	l, store := NewProblemLog(log, &lines), state.NewStore()
	for i := range n {
		svc := &state.Service{Name: state.Name{Namespace: "default", Name: fmt.Sprint("s", i)}}
		store.SetService(svc, problemsOf(svc.Name, "spec"))
		l.Set(svc.Name, problemsOf(svc.Name, "spec.clusterIPs"))
	}
	l.Report(store)
	return l, store
}

func problemsOf(name state.Name, field string) []state.Problem {
	return []state.Problem{{Kind: "Service", Object: name, Field: field, Reason: "bad"}}
}

// BenchmarkOneNewProblem reports a problem of one Service while many others have some. The cost must stay the same.
func BenchmarkOneNewProblem(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l, store := faultyServices(n)
			name := state.Name{Namespace: "default", Name: "s1"}
			for i := 0; b.Loop(); i++ {
				l.Set(name, problemsOf(name, fmt.Sprint("field", i%2)))
				l.Report(store)
			}
		})
	}
}

// TestReportsOnlyWhatChanged: the observer gets the objects whose problems changed, and no others.
func TestReportsOnlyWhatChanged(t *testing.T) {
	l, store := faultyServices(1000)
	name := state.Name{Namespace: "default", Name: "s7"}
	if _, changed := l.Report(store); changed {
		t.Error("nothing changed, but there is a report")
	}
	l.Set(name)
	r, _ := l.Report(store)
	if len(r.Changed) != 1 || r.Changed[0].Object.Name != name || len(r.Changed[0].Problems) != 1 || r.Faulty["Service"] != 1000 {
		t.Errorf("the loop's problem went; report %+v", r)
	}
	store.DeleteService(name)
	r, _ = l.Report(store)
	if len(r.Changed) != 1 || len(r.Changed[0].Problems) != 0 || r.Faulty["Service"] != 999 {
		t.Errorf("the Service went; report %+v", r)
	}
}

// TestFewLinesForOneNamespace: a tenant with many faulty Services does not fill the log, and others are still heard.
func TestFewLinesForOneNamespace(t *testing.T) {
	var text strings.Builder
	l, now := NewLines(slog.New(slog.NewTextHandler(&text, nil)), 3), time.Now()
	for i := range 10 {
		if got := l.MayWrite("tenant", now); got != (i < 3) {
			t.Errorf("line %d: %t", i, got)
		}
	}
	if !l.MayWrite("other", now) || !l.MayWrite("tenant", now.Add(time.Minute)) {
		t.Error("no line for another namespace, or a minute later")
	}
	for _, want := range []string{"--max-namespace-log-lines", "namespace=tenant lines=7"} {
		if strings.Count(text.String(), want) != 1 {
			t.Errorf("the log does not say %q once:\n%s", want, text.String())
		}
	}
}

// TestFieldsAreCounted: problems count by field, without indexes, until they are solved.
func TestFieldsAreCounted(t *testing.T) {
	l, store := faultyServices(3)
	name := state.Name{Namespace: "default", Name: "s1"}
	l.Set(name, problemsOf(name, "spec.externalIPs[12]"), problemsOf(name, "spec.externalIPs[7]"))
	r, _ := l.Report(store)
	want := map[[2]string]int{{"Service", "spec"}: 3, {"Service", "spec.clusterIPs"}: 2, {"Service", "spec.externalIPs"}: 2}
	if !maps.Equal(r.Fields, want) {
		t.Errorf("fields %v, want %v", r.Fields, want)
	}
	for _, gone := range []string{"s0", "s1", "s2"} {
		store.DeleteService(state.Name{Namespace: "default", Name: gone})
		l.Set(state.Name{Namespace: "default", Name: gone})
	}
	if r, _ = l.Report(store); len(r.Fields) != 0 {
		t.Errorf("all Services went; fields %v", r.Fields)
	}
	for field, want := range map[string]string{
		"metadata.labels[a/b.c]": "metadata.labels", "spec.ports[0].port": "spec.ports.port", "": "object", "spec.a[x[1]].b": "spec.a.b",
	} {
		if got := plainField(state.Problem{Kind: "Service", Field: field}); got != want {
			t.Errorf("%q becomes %q, want %q", field, got, want)
		}
	}
}
