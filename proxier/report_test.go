package proxier

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
func faultyServices(n int) (problemLog, *state.Store) {
	log := slog.New(slog.DiscardHandler)
	lines := NewLines(log, 100)
	l, store := newProblemLog(log, &lines), state.NewStore()
	for i := range n {
		svc := service(fmt.Sprint("s", i), "10.96.0.1", 1)
		store.SetService(svc, problemsOf(svc.Name, "spec"))
		l.set(svc.Name, problemsOf(svc.Name, "spec.clusterIPs"))
	}
	l.report(store)
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
				l.set(name, problemsOf(name, fmt.Sprint("field", i%2)))
				l.report(store)
			}
		})
	}
}

// TestReportsOnlyWhatChanged: the observer hears of the objects whose problems changed, and of no others.
func TestReportsOnlyWhatChanged(t *testing.T) {
	l, store := faultyServices(1000)
	name := state.Name{Namespace: "default", Name: "s7"}
	if _, changed := l.report(store); changed {
		t.Error("nothing changed, but there is a report")
	}
	l.set(name)
	r, _ := l.report(store)
	if len(r.Changed) != 1 || r.Changed[0].Object.Name != name || len(r.Changed[0].Problems) != 1 || r.Faulty["Service"] != 1000 {
		t.Errorf("the loop's problem went; report %+v", r)
	}
	store.DeleteService(name)
	r, _ = l.report(store)
	if len(r.Changed) != 1 || len(r.Changed[0].Problems) != 0 || r.Faulty["Service"] != 999 {
		t.Errorf("the Service went; report %+v", r)
	}
}

// TestFewLinesForOneService: a Service whose problems fill a screen does not fill the log.
func TestFewLinesForOneService(t *testing.T) {
	w := newWorld(t)
	var external []string
	for i := range 100 {
		external = append(external, fmt.Sprint("203.0.113.", i))
	}
	w.store.SetService(service("winner", "10.96.0.1", 1, external...), nil)
	w.store.SetService(service("loser", "10.96.0.2", 2, external...), nil)
	w.store.MarkSynced()
	if err := w.Once(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(w.log.String(), "cannot be honored in full"); n != state.MaxProblems+1 {
		t.Errorf("%d lines in the log, want %d", n, state.MaxProblems+1)
	}
	if !strings.Contains(w.log.String(), "and 92 more problems") {
		t.Error("the log does not count the other problems")
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
	l.set(name, problemsOf(name, "spec.externalIPs[12]"), problemsOf(name, "spec.externalIPs[7]"))
	r, _ := l.report(store)
	want := map[[2]string]int{{"Service", "spec"}: 3, {"Service", "spec.clusterIPs"}: 2, {"Service", "spec.externalIPs"}: 2}
	if !maps.Equal(r.Fields, want) {
		t.Errorf("fields %v, want %v", r.Fields, want)
	}
	for _, gone := range []string{"s0", "s1", "s2"} {
		store.DeleteService(state.Name{Namespace: "default", Name: gone})
		l.set(state.Name{Namespace: "default", Name: gone})
	}
	if r, _ = l.report(store); len(r.Fields) != 0 {
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
