//go:build ipvs

package ipvs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestSchedulers sends connections through every scheduler, as a Service asks for it, and looks who answers.
func TestSchedulers(t *testing.T) {
	tests := []test{
		{"slow endpoint", hybrid(), slowEndpoint},
		{"choices of two", hybrid(), choicesOfTwo},
		{"by destination", hybrid(), byDestination},
		{"by source", ipvs(), bySource},
		{"by source and port", ipvs(), bySourceAndPort},
		{"Maglev is stable", ipvs(), maglevIsStable},
		{"the name that kube-router gives the annotation", hybrid(), kubeRouterAnnotation},
		{"weights change", hybrid(), weightsChange},
	}
	for _, c := range countedCases() {
		tests = append(tests, test{c.name(), hybrid(), c.run})
	}
	each(t, tests)
}

// counted is a scheduler whose choices are certain: how often pods answer n connections.
type counted struct {
	scheduler string
	weights   string // of the pods b, c, d
	held      bool   // earlier connections last
	n         int
	want      map[string]int
}

func countedCases() []counted {
	return []counted{
		{"rr", "1 1 1", false, 30, map[string]int{"b": 10, "c": 10, "d": 10}},
		{"rr", "3 1", false, 20, map[string]int{"b": 10, "c": 10}}, // knows no weights
		{"wrr", "3 1", false, 40, map[string]int{"b": 30, "c": 10}},
		{"wrr", "2 0 1", false, 30, map[string]int{"b": 20, "d": 10}},
		{"lc", "1 1 1", true, 9, map[string]int{"b": 3, "c": 3, "d": 3}},
		{"wlc", "3 1", true, 8, map[string]int{"b": 6, "c": 2}},
		{"sed", "3 1", true, 8, map[string]int{"b": 6, "c": 2}},
		{"sed", "9 1", true, 8, map[string]int{"b": 8}},
		{"nq", "9 1", true, 8, map[string]int{"b": 7, "c": 1}}, // never queue: an idle endpoint comes before a faster one
		{"ovf", "2 3 1", true, 9, map[string]int{"b": 3, "c": 4, "d": 2}},
		{"fo", "2 3 1", true, 6, map[string]int{"c": 6}},
	}
}

func (c *counted) name() string {
	return strings.ReplaceAll(c.scheduler+" "+c.weights, " ", "-")
}

func (c *counted) run(b *bed) {
	b.serve(c.scheduler, "ports: [{port: 80}]")
	b.weighted(c.weights)
	b.must(b.Settle())
	b.expectScheduler(c.scheduler)
	got := map[string]int{}
	if !c.held {
		got = b.spread("x", b.at(80), c.n)
	} else {
		for range c.n {
			_, pod := b.hold("x", b.at(80))
			got[pod]++
		}
	}
	if !maps.Equal(got, c.want) {
		b.Errorf("the endpoints answered %v times, want %v", got, c.want)
	}
}

// weighted gives the pods b, c, d a slice each, with a weight.
func (b *bed) weighted(weights string) {
	b.Helper()
	for i, w := range strings.Fields(weights) {
		b.steps(fmt.Sprintf("endpoints web/%d %s\n"+
			"patch EndpointSlice web-%[1]d {metadata: {annotations: {verdict-proxy.github.io/weight: \"%[3]s\"}}}", i, lab.Pods()[i+1], w))
	}
}

func (b *bed) expectScheduler(name string) {
	b.Helper()
	if text := b.kernel(b.vip); !strings.Contains(text, " -s "+name) {
		b.Errorf("IPVS does not serve %s with %s, but has\n%s", b.vip, name, text)
	}
}

// plain is a Service with four endpoints.
func (b *bed) plain(scheduler string) {
	b.Helper()
	b.serve(scheduler, "ports: [{port: 80}]")
	b.settled("endpoints web a b c d")
	b.expectScheduler(strings.Fields(scheduler)[0])
}

// slowEndpoint: one that does not finish its connection gets no new ones while others do.
func slowEndpoint(b *bed) {
	for _, scheduler := range []string{"lc", "wlc", "sed", "nq"} {
		b.freshVIP()
		b.serve(scheduler, "ports: [{port: 80}]")
		b.settled("endpoints web b c")
		_, slow := b.hold("x", b.at(80))
		if got := b.spread("x", b.at(80), 30); got[slow] > 2 {
			b.Errorf("%s: with a connection at %s the endpoints answered %v", scheduler, slow, got)
		}
		b.steps("delete Service web")
	}
}

// choicesOfTwo: the better of two that are drawn by weight.
func choicesOfTwo(b *bed) {
	b.plain("twos")
	got := b.spread("x", b.at(80), 80)
	for _, pod := range lab.Pods() {
		if got[pod] < 8 {
			b.Errorf("the endpoints answered %v of 80 connections", got)
			break
		}
	}
}

// byDestination: schedulers that look at the frontend's address serve all clients by one endpoint.
func byDestination(b *bed) {
	for _, scheduler := range []string{"dh", "lblc", "lblcr"} {
		b.freshVIP()
		b.plain(scheduler)
		if got := b.byClient(b.at(80), 20); len(slices.Compact(got)) != 1 {
			b.Errorf("%s: clients got %v", scheduler, got)
		}
		b.steps("delete Service web")
	}
}

// bySource: a client gets the same endpoint at every connection, others get others.
func bySource(b *bed) {
	for _, scheduler := range []string{"sh", "mh"} {
		b.freshVIP()
		b.plain(scheduler)
		first := b.byClient(b.at(80), 40)
		if again := b.byClient(b.at(80), 40); !slices.Equal(first, again) {
			b.Errorf("%s: clients got\n%v, then\n%v", scheduler, first, again)
		}
		if used := slices.Compact(slices.Sorted(slices.Values(first))); len(used) != 4 {
			b.Errorf("%s: 40 clients got only %v", scheduler, used)
		}
		b.steps("delete Service web")
	}
}

// bySourceAndPort: with the port in the hash, connections of one client are spread.
func bySourceAndPort(b *bed) {
	for _, scheduler := range []string{"sh", "mh"} {
		b.freshVIP()
		b.plain(scheduler + " " + scheduler + "-port")
		if text := b.kernel(b.vip); !strings.Contains(text, "-b ") || !strings.Contains(text, scheduler+"-port") {
			b.Errorf("the flag %s-port is not set:\n%s", scheduler, text)
		}
		if got := b.spread("x", b.at(80), 60); len(got) != 4 {
			b.Errorf("60 connections of one client reached %v", got)
		}
		b.steps("delete Service web")
	}
}

// maglevIsStable: when an endpoint goes, hardly any client of the others moves.
func maglevIsStable(b *bed) {
	b.plain("mh")
	before := b.byClient(b.at(80), 60)
	b.settled("endpoints web a b d")
	moved := 0
	for i, now := range b.byClient(b.at(80), 60) {
		if now == "c" {
			b.Errorf("client %d still gets the endpoint that is gone", i)
		}
		if before[i] != "c" && now != before[i] {
			moved++
		}
	}
	if moved > 2 {
		b.Errorf("%d of 60 clients moved", moved)
	}
}

func kubeRouterAnnotation(b *bed) {
	b.settled(`
apply
    kind: Service
    metadata: {name: web, annotations: {kube-router.io/service.scheduler: lc}}
    spec: {clusterIPs: ["VIP"], ports: [{port: 80}]}
endpoints web a b`)
	b.expectScheduler("lc")
}

// weightsChange: a new weight is an edit; the connections that are there stay.
func weightsChange(b *bed) {
	b.serve("wrr", "ports: [{port: 80}]")
	b.weighted("1 1")
	b.must(b.Settle())
	f, pod := b.hold("x", b.at(80))
	b.weighted("5 1")
	b.must(b.Settle())
	if got := b.spread("x", b.at(80), 60); got["b"] != 50 || got["c"] != 10 {
		b.Errorf("with weights 5 and 1 the endpoints answered %v", got)
	}
	b.weighted("0 1")
	b.must(b.Settle())
	if got := b.spread("x", b.at(80), 10); got["c"] != 10 {
		b.Errorf("with weights 0 and 1 the endpoints answered %v", got)
	}
	if r := f.Send(patience); r.Outcome != lab.Answered || r.Answer.Name() != pod {
		b.Errorf("the open connection to %s: %s", pod, r)
	}
}
