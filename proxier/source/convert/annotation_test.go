package convert

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/verdict-proxy/verdict/e2e/sourcetest"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestShortAnnotationsAreBounded: new values that are short enough to be used do not pile up either.
func TestShortAnnotationsAreBounded(t *testing.T) {
	c := New()
	for i := range 10_000 {
		c.Service(sourcetest.Annotated(fmt.Sprintf("%064d", i)))
	}
	if n := len(c.values.known) + len(c.strings.known); n > valueLimit+10 {
		t.Errorf("%d strings are remembered", n)
	}
}

// TestLongAnnotations: each value of each key has a limit, and the object is served without those that are longer.
func TestLongAnnotations(t *testing.T) {
	long := sourcetest.EveryKey(strings.Repeat("x", 250_000))
	checkLong(t, "Service", func(a *state.Annotation) bool { return a.Service != nil }, func(f *findings) {
		svc := &state.Service{}
		annotate(New(), f, long, svc, func(a *state.Annotation) func(*state.Service, string) error { return a.Service })
		if !reflect.DeepEqual(svc, &state.Service{}) {
			t.Errorf("the Service holds a value: %+v", svc)
		}
	})
	checkLong(t, "EndpointSlice", func(a *state.Annotation) bool { return a.Slice != nil }, func(f *findings) {
		sl := &state.Slice{}
		annotate(New(), f, long, sl, func(a *state.Annotation) func(*state.Slice, string) error { return a.Slice })
		if !reflect.DeepEqual(sl, &state.Slice{}) {
			t.Errorf("the slice holds a value: %+v", sl)
		}
	})
}

// checkLong reads the annotations of one kind of object, and expects a problem for each key.
func checkLong(t *testing.T, kind string, of func(*state.Annotation) bool, read func(*findings)) {
	t.Helper()
	f := NewFindings(kind, state.Name{})
	read(&f)
	var want []string
	for _, a := range state.Annotations() {
		for _, alias := range append([]state.Alias{{Key: a.Key}}, a.Aliases...) {
			if of(&a) {
				want = append(want, fmt.Sprintf("%s: at most %d are allowed: the annotation is ignored", state.AnnotationField(alias.Key), a.Longest))
			}
		}
	}
	got, more := f.Problems(), 0
	for i, p := range got {
		if p.More > 0 {
			more = p.More
			continue
		}
		key, reason, _ := strings.Cut(want[i], ": ")
		if p.Field != key || !strings.HasPrefix(p.Reason, `"xxx`) || !strings.HasSuffix(p.Reason, reason) {
			t.Errorf("%s: %s; want %s", p.Field, p.Reason, want[i])
		}
	}
	if listed := min(len(want), state.MaxProblems); more != len(want)-listed {
		t.Errorf("%d problems of %s, and %d more; want %d", len(got), kind, more, len(want))
	}
}

// TestAliases: annotations of other proxies mean the same as Verdict's own.
func TestAliases(t *testing.T) {
	const cilium, calico = "service.cilium.io/lb-algorithm", "lb.projectcalico.org/external-traffic-strategy"
	for _, tt := range []struct {
		values map[string]string
		want   state.Balancing
		key    string // of a problem
	}{
		{map[string]string{annotationSchedulerRouter: "lc"}, state.Balancing{Scheduler: "lc"}, ""},
		{map[string]string{annotationScheduler: "rr", annotationSchedulerRouter: "lc", cilium: "maglev"}, state.Balancing{Scheduler: "rr"}, ""},
		{map[string]string{annotationScheduler: " ", annotationSchedulerRouter: "lc"}, state.Balancing{Scheduler: "lc"}, ""},
		{map[string]string{annotationSchedulerRouter: "mh", "kube-router.io/service.schedflags": "flag-1,flag-2"},
			state.Balancing{Scheduler: "mh", Flags: "flag-1,flag-2"}, ""},
		{map[string]string{cilium: "maglev"}, state.Balancing{Scheduler: "mh"}, ""},
		{map[string]string{cilium: "random", calico: "maglev"}, state.Balancing{Scheduler: "random"}, ""},
		{map[string]string{cilium: "mh"}, state.Balancing{}, cilium},
		{map[string]string{cilium: "least-conn", calico: "Maglev"}, state.Balancing{Scheduler: "mh"}, cilium},
		{map[string]string{calico: "random"}, state.Balancing{}, calico},
	} {
		svc, problems := New().Service(sourcetest.Service(func(o *corev1.Service) { o.Annotations = tt.values }))
		if svc.Balancing != tt.want {
			t.Errorf("%v: got %+v, want %+v", tt.values, svc.Balancing, tt.want)
		}
		if (tt.key == "") != (len(problems) == 0) || len(problems) > 0 && problems[0].Field != state.AnnotationField(tt.key) {
			t.Errorf("%v: problems %v, want one of %q", tt.values, problems, tt.key)
		}
	}
	sl, problems := New().Slice(sourcetest.Slice(func(o *discoveryv1.EndpointSlice) {
		o.Annotations = map[string]string{"service.cilium.io/weight": "0"}
	}))
	if sl.Weight != 0 || len(problems) > 0 {
		t.Errorf("Cilium's weight 0 became %d, with problems %v", sl.Weight, problems)
	}
}

// BenchmarkSharedBalancing reports what it saves to share the values of annotations: the memory that 50,000 Services
// with two of them hold for these.
func BenchmarkSharedBalancing(b *testing.B) {
	for _, limit := range []int{0, valueLimit} {
		b.Run(fmt.Sprint("limit=", limit), func(b *testing.B) {
			for b.Loop() {
				in, held := newInterner(limit), make([]state.Balancing, 50_000)
				before := sourcetest.HeldMemory()
				for i := range held {
					held[i] = state.Balancing{Scheduler: in.share(strings.Clone("wlc")), Flags: in.share(strings.Clone("sh-port,sh-fallback"))}
				}
				b.ReportMetric(float64(int64(sourcetest.HeldMemory())-int64(before)), "B-held")
				runtime.KeepAlive(held)
			}
		})
	}
}
