//go:build e2e

package deadnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

const reset = `verdict-proxy.github.io/on-removal: "reset"`

// opened is an open connection, and the pod that answers it.
type opened struct {
	from string
	f    lab.Family
	flow *lab.Flow
	pod  string
}

// openAll opens connections from everywhere, over both families.
func (b *bed) openAll() (list []opened) {
	b.t.Helper()
	for _, f := range lab.Families() {
		for _, from := range []string{lab.Outside, lab.Node, "a"} {
			for range 12 {
				flow, a := b.At(b.t, from).Hold(b.t, lab.Question{Protocol: lab.TCP, To: vip(f), Patience: defaultPatience})
				list = append(list, opened{from: from, f: f, flow: flow, pod: a.Pod})
			}
		}
	}
	return list
}

// expect sends over each connection. Those to a pod whose endpoint is gone end; others are answered.
func (b *bed) expect(list []opened, gone string) {
	b.t.Helper()
	ended := 0
	for _, o := range list {
		if o.pod == gone {
			b.untilBroken(o)
			ended++
		} else if r := o.flow.Send(removalPatience); r.Outcome != lab.Answered {
			b.t.Errorf("%s, %s to %s: %s; wanted: answered", o.f, o.from, o.pod, r)
		}
	}
	if gone != "" && ended < len(lab.Families()) {
		b.t.Errorf("only %d connections went to the endpoint that is gone: the test does not show anything", ended)
	}
}

// TestOnRemoval removes an endpoint from the slices, whose pod lives on. With "reset", its open connections end with their
// next packet; others go on. Without it, all go on.
func TestOnRemoval(t *testing.T) {
	endpoints := []place{{"b", 8080, lab.NodeName}, {"c", 8080, lab.RemoteNodeName}}
	for _, annotation := range []string{"", reset, reset + ", " + `verdict-proxy.github.io/outlier-detection: "eject,refusals"`} {
		t.Run(fmt.Sprintf("%q", annotation), func(t *testing.T) {
			b := newBed(t, annotation, endpoints)
			list := b.openAll()
			b.slices(endpoints[:1])
			gone := ""
			if annotation != "" {
				gone = "c"
				b.waitFor("open connections to endpoints that are gone or failed end")
			} else {
				b.untilServed("10.0.2.1", false)
			}
			b.expect(list, gone)
			if t.Failed() || annotation == "" {
				return
			}
			lab.Must(t, os.Remove(filepath.Join(b.dir, "manifests", "slices.yaml")))
			// No endpoint is left that could reset them.
			for _, o := range list {
				if o.pod != gone {
					b.untilBroken(o)
				}
			}
		})
	}
}

// removalPatience is how long a machine may stand still while an answer is due.
const removalPatience = 30 * time.Second

// untilBroken sends until the connection ends. The log names the first flows of a second only, so others may end a little later.
func (b *bed) untilBroken(o opened) {
	b.t.Helper()
	lab.Eventually(b.t, fmt.Sprintf("a connection of %s from %s to %s ends", o.f, o.from, o.pod), func() error {
		r := o.flow.Send(removalPatience)
		switch r.Outcome {
		case lab.Broken:
			return nil
		case lab.Answered:
			return errors.New("it is answered")
		}
		b.t.Fatalf("%s, %s to %s: %s; wanted: broken", o.f, o.from, o.pod, r)
		return nil
	})
}

// untilServed waits until the kernel has an endpoint, or has it no more.
func (b *bed) untilServed(text string, want bool) {
	b.t.Helper()
	lab.Eventually(b.t, fmt.Sprintf("the kernel has %s: %t", text, want), func() error {
		if b.served(text) != want {
			return errors.New("not so")
		}
		return nil
	})
}

// TestFailedEndpointResets: open connections to endpoints on a node that vanishes end with their next packet as soon as the
// endpoints are ejected.
func TestFailedEndpointResets(t *testing.T) {
	b := newBed(t, eject+", "+reset, tenEndpoints())
	b.untilAsked(tenEndpoints())
	var list []opened
	for _, f := range lab.Families() {
		for range 30 {
			flow, a := b.At(t, lab.Outside).Hold(t, lab.Question{Protocol: lab.TCP, To: vip(f), Patience: defaultPatience})
			list = append(list, opened{from: lab.Outside, f: f, flow: flow, pod: a.Pod})
		}
	}
	for _, f := range lab.Families() {
		l := b.load(lab.Outside, vip(f), 50)
		defer l.end()
	}
	b.vanish()
	b.untilServed("10.0.2.", false)
	b.waitFor("open connections to endpoints that are gone or failed end")
	ended := 0
	for _, o := range list {
		if o.pod != "c" && o.pod != "d" || o.f != lab.IPv4 {
			continue
		}
		ended++
		b.untilBroken(o) // nobody else answers it
	}
	if ended == 0 {
		t.Error("no connection went to the node that vanished: the test does not show anything")
	}
}
