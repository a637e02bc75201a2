//go:build e2e

package chaos

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/chaos/ruleset"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

// oracle compares the kernel with a fresh plan.
type oracle struct {
	node    *lab.Namespace
	scratch *netns.Namespace // where fresh plans are loaded, to be listed as the kernel lists them
	daemon  *daemon          // its flags decide what the plan is
	left    *regexp.Regexp   // rules that nft cannot load into this kernel, so that nobody compares them; nil: there are none
}

// newOracle makes an oracle. nft 1.0.6 converts the byte order of a protocol, one byte, as if it were two, where a set has ranges. Some kernels
// refuse that.
func newOracle(t *testing.T, node *lab.Namespace, d *daemon) *oracle {
	t.Helper()
	o := &oracle{node: node, scratch: netns.New(t), daemon: d}
	err := o.scratch.Load("table ip probe { set s { type inet_proto . inet_service; flags interval; }; chain c { meta l4proto . th dport @s; }; }")
	if err != nil {
		o.left = regexp.MustCompile(`(?m)^.*\bmeta l4proto \. .*@range-.*\n`)
		t.Logf("rules that look up port ranges are not compared: nft cannot load them into this kernel: %v", err)
	}
	return o
}

// loadable is the part of a text that nft can load into this kernel.
func (o *oracle) loadable(text string) string {
	if o.left == nil {
		return text
	}
	return o.left.ReplaceAllString(text, "")
}

// settlePatience is how long the daemon may take to be right again. After an outage of the API server, client-go waits
// up to 30 s before it asks again.
const settlePatience = 60 * time.Second

// equal waits until the kernel holds what a fresh plan says, element for element.
func (o *oracle) equal() error {
	for deadline := time.Now().Add(slower(settlePatience)); ; {
		want, err := o.plan()
		if err == nil {
			err = o.holds(want, min(slower(time.Second), time.Until(deadline)))
		}
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// holds waits until the kernel holds a plan. The plan may be old by then, so it does not wait for long.
func (o *oracle) holds(want []string, patience time.Duration) error {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		got, err := o.kernel()
		if err == nil {
			err = ruleset.Difference(want, got)
		}
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// planPatience is how many seconds a plan may take. The API server may be down.
const planPatience = 10

// plan is what a daemon that starts now would write. The real nft loads it into an empty namespace and lists it, so that
// both sides of the comparison have the form of the same program.
func (o *oracle) plan() ([]string, error) {
	command := slices.Concat([]string{fmt.Sprint(*slow * planPatience), o.daemon.binary, "render"}, o.daemon.planFlags())
	text, err := o.node.Command("timeout", command...)
	if err != nil {
		return nil, fmt.Errorf("make a fresh plan: %w", err)
	}
	if err := o.scratch.Load("flush ruleset\n" + o.loadable(text)); err != nil {
		return nil, fmt.Errorf("load a fresh plan: %w", err)
	}
	return o.listing(o.scratch)
}

// kernel is what the node's kernel holds in the tables of Verdict.
func (o *oracle) kernel() ([]string, error) { return o.listing(o.node.Namespace) }

func (o *oracle) listing(n *netns.Namespace) ([]string, error) {
	text, err := n.Command("nft", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	return ruleset.Canonical(o.loadable(text)), nil
}
