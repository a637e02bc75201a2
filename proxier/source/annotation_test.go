package source

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// annotated returns a Service with these values of all annotations.
func annotated(value string) *corev1.Service {
	return apiService(func(o *corev1.Service) {
		o.Annotations = map[string]string{annotationScheduler: value, annotationSchedulerRouter: value, annotationSchedulerFlags: value, annotationOutliers: value,
			annotationHealthCheck: value, annotationAllDown: value, annotationOnRemoval: value}
	})
}

// TestLongAnnotationsAreNotHeld: a tenant writes new annotations all the time, and nothing of them stays in memory.
func TestLongAnnotationsAreNotHeld(t *testing.T) {
	c, store := newConverter(), state.NewStore()
	into := feed[*corev1.Service, state.Service]{convert: c.service, strings: c.strings, sink: newSinks(store).services}
	before := heap()
	for i := range 200 {
		value := fmt.Sprint(i, " ", strings.Repeat("x", 250_000))
		if i%2 == 0 {
			value = fmt.Sprint(i, strings.Repeat(" ", 250_000)) // short without its white space
		}
		if err := into.Update(annotated(value)); err != nil {
			t.Fatal(err)
		}
	}
	if held := int64(heap()) - int64(before); held > 100_000 {
		t.Errorf("%d bytes are held", held)
	}
	runtime.KeepAlive(into)
}

// TestShortAnnotationsAreBounded: new values that are short enough to be used do not pile up either.
func TestShortAnnotationsAreBounded(t *testing.T) {
	c := newConverter()
	for i := range 10_000 {
		c.service(annotated(fmt.Sprintf("%064d", i)))
	}
	if n := len(c.balances.known) + len(c.strings.known); n > balanceLimit+10 {
		t.Errorf("%d strings are remembered", n)
	}
}

func TestLongAnnotations(t *testing.T) {
	long := strings.Repeat("x", 250_000)
	const reason = `"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..." has 250000 bytes, and at most 64 are allowed: the annotation is ignored`
	svc, problems := newConverter().service(annotated(long))
	if svc.Balancing != (state.Balancing{}) {
		t.Error("the Service holds the value")
	}
	checkProblems(t, kindService, svc.Name, []problem{
		{annotation(annotationScheduler), reason},
		{annotation(annotationSchedulerRouter), reason},
		{annotation(annotationSchedulerFlags), reason},
		{annotation(annotationOutliers), reason},
		{annotation(annotationHealthCheck), strings.Replace(reason, "64", "512", 1)},
		{annotation(annotationAllDown), reason},
		{annotation(annotationOnRemoval), reason},
	}, problems)

	sl, problems := newConverter().slice(apiSlice(func(o *discoveryv1.EndpointSlice) {
		o.Annotations = map[string]string{annotationWeight: long, annotationBackup: long}
	}))
	if sl.Weight != state.DefaultWeight {
		t.Errorf("weight %d", sl.Weight)
	}
	checkProblems(t, kindSlice, sl.Name, []problem{{annotation(annotationWeight), reason}, {annotation(annotationBackup), reason}}, problems)
}

// BenchmarkSharedBalancing reports what it saves to share the values of annotations: the memory that 50,000 Services
// with two of them hold for these.
func BenchmarkSharedBalancing(b *testing.B) {
	for _, limit := range []int{0, balanceLimit} {
		b.Run(fmt.Sprint("limit=", limit), func(b *testing.B) {
			for b.Loop() {
				in, held := newInterner(limit), make([]state.Balancing, 50_000)
				before := heap()
				for i := range held {
					held[i] = state.Balancing{Scheduler: in.share(strings.Clone("wlc")), Flags: in.share(strings.Clone("sh-port,sh-fallback"))}
				}
				b.ReportMetric(float64(int64(heap())-int64(before)), "B-held")
				runtime.KeepAlive(held)
			}
		})
	}
}
