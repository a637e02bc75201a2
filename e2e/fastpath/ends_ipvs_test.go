//go:build ipvs

package fastpath

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// arrivals counts the packets of connections that are open, where they arrive. A client that connects anew does not count.
const arrivals = `table inet arrivals {
	counter open { }
	chain p { type filter hook prerouting priority -300; tcp dport 8080 tcp flags ! syn counter name open; udp dport 8080 counter name open; }
}`

func (b *bed) arrived(pod string) int {
	b.t.Helper()
	text := b.At(b.t, pod).Must(b.t, "", "nft", "list", "counter", "inet", "arrivals", "open")
	n, err := strconv.Atoi(regexp.MustCompile(`packets (\d+)`).FindStringSubmatch(text)[1])
	lab.Must(b.t, err)
	return n
}

// held is a flow on the fast path.
type held struct {
	way
	*lab.Flow
	over bool
}

// holdAll opens flows that take the fast path.
func (b *bed) holdAll(t *testing.T, list []way) (flows []*held) {
	t.Helper()
	for _, w := range list {
		flow := b.open(t, w)
		b.takes(t, w, func() { exchange(t, flow, 1) })
		flows = append(flows, &held{way: w, Flow: flow})
	}
	return flows
}

// untilMoved has the clients send all the time, and waits until connections of TCP are reset, datagrams go to another pod or nowhere, and
// no packet comes to pod c any more. It returns when the last one came.
func (b *bed) untilMoved(t *testing.T, flows []*held, began time.Time) (took time.Duration) {
	t.Helper()
	last := b.arrived("c")
	lab.Eventually(t, "the flows leave the endpoint", func() error {
		left := 0
		for _, f := range flows {
			if f.over {
				continue
			}
			r := f.Send(100 * time.Millisecond) // some get no answer any more
			f.over = f.protocol == lab.TCP && r.Outcome == lab.Broken
			if !f.over && (f.protocol == lab.TCP || r.Outcome == lab.Answered && r.Answer.Pod == "c") {
				left++
			}
		}
		if n := b.arrived("c"); n != last {
			last, took = n, time.Since(began)
		}
		if quiet := time.Since(began) - took; left > 0 || quiet < 2*time.Second {
			return fmt.Errorf("%d flows are left; the last packet came %v ago", left, quiet)
		}
		return nil
	})
	return took
}

// of returns the ways() of one protocol, with or without those to the load balancer.
func of(p lab.Protocol, balancer bool) (list []way) {
	for _, w := range ways() {
		if w.protocol == p {
			list = append(list, w)
		}
	}
	for _, f := range lab.Families() {
		if balancer {
			list = append(list, way{f, p, lab.Outside, "LB1", servicePort})
		}
	}
	return list
}

// TestCleaned: flows that are deleted because of a change end within two seconds on the fast path as well. The pod behind them lives and
// would answer for ever, so only Verdict's cleaning ends them.
func TestCleaned(t *testing.T) {
	const reset = `verdict-proxy.github.io/on-removal: "reset"`
	b := newBed(t, "")
	b.At(t, "c").Must(t, arrivals, "nft", "-f", "-")
	for _, test := range []struct {
		name, annotation string
		ways             []way
		change           func()
		late             time.Duration // until Verdict knows
	}{
		{"endpoint removed", reset, append(of(lab.TCP, false), of(lab.UDP, false)...), func() { b.web(reset, "d") }, 0},
		{"endpoint failed", reset + `, verdict-proxy.github.io/health-check: "tcp interval=1s rise=1 fall=1"`, of(lab.TCP, false), func() {
			b.At(t, "c").Must(t, "table inet sick { chain i { type filter hook input priority 0; tcp flags & (syn | ack) == syn reject with tcp reset; }; }", "nft", "-f", "-")
		}, time.Second},
		{"client excluded", "", of(lab.UDP, true)[4:], func() {
			b.ranges = `"203.0.113.0/24"`
			b.web("", "c")
		}, 0},
		{"Service removed", "", of(lab.UDP, true), func() { lab.Must(t, os.Remove(filepath.Join(b.Manifests, "web.yaml"))) }, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.ranges = ""
			b.web(test.annotation, "c")
			b.untilAt(t, "c")
			if strings.Contains(test.annotation, "health") { // the last endpoint would not be left out
				b.web(test.annotation, "c", "d"+terminating)
			}
			flows := b.holdAll(t, test.ways)
			if strings.Contains(test.annotation, "health") {
				b.web(test.annotation, "c", "d")
			}
			for _, f := range flows {
				before := b.arrived("c")
				if r := f.Send(patience); r.Outcome != lab.Answered || r.Answer.Pod != "c" || b.arrived("c") == before {
					t.Fatalf("%s: before the change, a question ends with %s, and %d packets have come", f.way, r, b.arrived("c"))
				}
			}
			began := time.Now()
			test.change()
			took := b.untilMoved(t, flows, began)
			t.Logf("the last packet came to the endpoint %v after the change", took)
			if took > emulated*(2*time.Second+test.late) {
				t.Errorf("the last packet came %v after the change", took)
			}
			for _, f := range flows {
				if line := b.track(f.family, f.protocol, f.to()); strings.Contains(line, "src="+address(f.family, "C")+" ") && offloaded(line) {
					t.Errorf("%s: the connection is %q", f.way, line)
				}
				f.Close()
			}
			lab.Must(t, b.World.Node.ForgetFlows())
			b.At(t, "c").Must(t, "table inet sick { }; delete table inet sick", "nft", "-f", "-")
		})
	}
}

// address is how /proc/net/nf_conntrack has the address of that name.
func address(f lab.Family, name string) string {
	if f == lab.IPv6 {
		return lab.Address(f, name).StringExpanded()
	}
	return lab.MustText(f, name)
}

// untilAt waits until all new connections go to a pod.
func (b *bed) untilAt(t *testing.T, pod string) {
	t.Helper()
	lab.Eventually(t, "connections go to "+pod, func() error {
		for _, w := range append(ways(), way{lab.IPv4, lab.UDP, lab.Outside, "LB1", servicePort}) {
			if r := b.At(t, w.place).Ask(lab.Question{Protocol: w.protocol, To: w.to(), Patience: time.Second}); r.Outcome != lab.Answered || r.Answer.Pod != pod {
				return fmt.Errorf("%s: %s", w, r)
			}
		}
		return nil
	})
}

// TestStay: flows that may stay go on, and stay on the fast path: no packet of theirs meets the rules.
func TestStay(t *testing.T) {
	b := newBed(t, "")
	b.World.Node.Must(t, counter, "nft", "-f", "-")
	flows := b.holdAll(t, ways())
	for _, test := range []struct {
		name   string
		change func()
		only   lab.Protocol // 0: all
	}{
		{"another endpoint comes", func() { b.web("", "c", "d") }, 0},
		{"another endpoint goes", func() { b.web("", "c") }, 0},
		{"another Service comes", func() { b.Write(t, "other.yaml", daemon.Numbered(1, 3).Manifest()) }, 0},
		{"another Service goes", func() { lab.Must(t, os.Remove(filepath.Join(b.Manifests, "other.yaml"))) }, 0},
		{"the endpoint terminates and serves", func() { b.web("", "c"+terminating, "d") }, 0},
		{"the endpoint goes, without on-removal", func() { b.web("", "d") }, lab.TCP},
	} {
		t.Run(test.name, func(t *testing.T) {
			passes, err := b.Passes()
			lab.Must(t, err)
			test.change()
			b.WaitPass(t, passes[len(passes)-1].Number)
			time.Sleep(time.Second) // a cleaning that takes too much comes beside the pass
			for _, f := range flows {
				if test.only != 0 && f.protocol != test.only {
					continue
				}
				lab.Eventually(t, f.String()+" stays on the fast path", func() error {
					before := b.seen()
					for range 10 {
						if r := f.Send(patience); r.Outcome != lab.Answered || r.Answer.Pod != "c" {
							t.Fatalf("%s: a question ends with %s", f.way, r)
						}
					}
					if n := b.seen() - before; n > 2 {
						return fmt.Errorf("the rules see %d packets of 20; %s", n, b.track(f.family, f.protocol, f.to()))
					}
					return nil
				})
			}
		})
	}
}

// TestLeave: "verdict leave --reset" ends connections on the fast path.
func TestLeave(t *testing.T) {
	b := newBed(t, "")
	var flows []*held
	for _, f := range lab.Families() {
		flows = append(flows, b.holdAll(t, []way{{f, lab.TCP, lab.Outside, "NODE", nodePort}})...)
	}
	b.Write(t, "node.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: "+lab.NodeName+"}\nspec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}\n")
	text := b.World.Node.Must(t, "", "sh", "-c", binary+" leave --settle=0s --timeout=0s --reset")
	if !strings.Contains(text, "2 connections will be reset") {
		t.Errorf("verdict leave prints\n%s", text)
	}
	for _, f := range flows {
		if r := f.Send(patience); r.Outcome != lab.Broken {
			t.Errorf("%s: a question ends with %s", f.way, r)
		}
	}
}
