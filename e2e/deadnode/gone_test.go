//go:build e2e

package deadnode

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestPodGone takes the pod of an endpoint away. Whoever notices it says so by an ICMP error: the node of the pod, or this node,
// whose route to the pod is gone. No connection fails: the error to a client's first packet is held back, and by its next one,
// a second later, the endpoint is left out and the flow is deleted.
func TestPodGone(t *testing.T) {
	const refuse = `verdict-proxy.github.io/outlier-detection: "eject,refusals"`
	endpoints := []place{{"a", 8080, lab.NodeName}, {"b", 8080, "node-3"}, {"c", 9, lab.RemoteNodeName}}
	for _, f := range lab.Families() {
		for name, die := range map[string]func(*bed){
			"its node rejects":  func(b *bed) { b.reject(lab.Remote) },
			"this node rejects": func(b *bed) { b.reject(lab.Node) },
			"this node has no route": func(b *bed) {
				for _, f := range lab.Families() {
					b.At(t, lab.Node).Must(t, "", "ip", "route", "add", "unreachable", lab.PodAddress(f, "c").String())
				}
			},
		} {
			for _, from := range []string{lab.Outside, lab.Node, "a"} {
				if from == lab.Node && name == "this node has no route" {
					continue // the kernel drops the packet before a rule sees it; the next one goes anywhere
				}
				t.Run(fmt.Sprintf("%s/%s/from %s", f, name, from), func(t *testing.T) {
					undisturbed(t, func() (*bed, error) {
						b := newBedAfter(t, func(b *bed) { b.serverOnce() }, refuse, endpoints)
						return b, b.dies(t, b.load(from, vip(f), *perSecond/2), die)
					})
				})
			}
		}
	}
}

// TestReadyBeforeItListens has a new pod that is ready before its program listens. It refuses a client and this node, which the other
// pods have answered, so it is left out; clients are late, and none fails. It gets connections when its program listens.
func TestReadyBeforeItListens(t *testing.T) {
	endpoints := []place{{"a", 8080, lab.NodeName}, {"b", 8080, "node-3"}, {"c", 9, lab.RemoteNodeName}}
	for _, f := range lab.Families() {
		t.Run(f.String(), func(t *testing.T) {
			undisturbed(t, func() (*bed, error) {
				b := newBed(t, `verdict-proxy.github.io/outlier-detection: "eject,refusals"`, endpoints[:2])
				b.untilAsked(endpoints[:2])
				l := b.load(lab.Outside, vip(f), *perSecond/2)
				b.slices(endpoints)
				b.waitFor("they get no new connections")
				list := l.end()
				o := judge(list, l.began)
				if o.log(t, list, l.began); o.failed > 0 {
					return b, errors.New("connections fail")
				}
				t.Cleanup(b.serverOnce())
				b.waitFor("endpoints get connections again")
				return b, nil
			})
		})
	}
}

// dies has a pod die under load. No connection may fail whose client repeats its packet after the daemon has deleted the flows of the
// dead endpoint.
func (b *bed) dies(t *testing.T, l *load, die func(*bed)) error {
	b.t.Helper()
	time.Sleep(time.Second)
	die(b)
	death := time.Now()
	time.Sleep(2500 * time.Millisecond)
	list := l.end()
	o := judge(list, death)
	if o.log(t, list, death); o.failed == 0 {
		return nil
	}
	const ejected, deleted, repeats = "they get no new connections", "connections without an answer were deleted", 900 * time.Millisecond
	b.waitFor(ejected)
	at, found := b.loggedAt(deleted)
	if !found { // there were no flows, such as those of packets that this node could not send
		at, _ = b.loggedAt(ejected)
	}
	for _, a := range list {
		if a.Outcome != rate.Answered && a.Began.Add(repeats).After(at) {
			return fmt.Errorf("a connection of %s fails, although its endpoint was left out by %s, and the flows were deleted: %t", a.Began, at, found)
		}
	}
	return errSlow
}

// loggedAt is the time of the first line of the log that has a text.
func (b *bed) loggedAt(text string) (at time.Time, found bool) {
	b.t.Helper()
	line, _, found := strings.Cut(b.process.Log(100_000), text)
	if !found {
		return at, false
	}
	_, stamp, _ := strings.Cut(line[strings.LastIndexByte(line, '\n')+1:], "time=")
	stamp, _, _ = strings.Cut(stamp, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	lab.Must(b.t, err)
	return at, true
}

// reject has a node say that pod c is gone.
func (b *bed) reject(at string) {
	b.t.Helper()
	rules := ""
	for hook, priority := range map[string]int{"forward": -10, "output": -10} {
		rules += fmt.Sprintf("chain %s {\ntype filter hook %s priority %d;\nip daddr %s reject with icmpx type host-unreachable\n"+
			"ip6 daddr %s meta l4proto tcp reject with icmpx type host-unreachable\n}\n",
			hook, hook, priority, lab.PodAddress(lab.IPv4, "c"), lab.PodAddress(lab.IPv6, "c"))
	}
	b.At(b.t, at).Must(b.t, "table inet gone {\n"+rules+"}\n", "nft", "-f", "-")
}
