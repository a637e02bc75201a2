//go:build !nokernel

package nft

import (
	"fmt"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestForgottenConnectionEnds: when the kernel has forgotten the flow of an open connection, its next packet ends it. It
// goes to another endpoint, which resets what it does not know, or is refused if there is none. The endpoint that says so
// refuses no connection: it is not noticed, and what it says is not held back.
func TestForgottenConnectionEnds(t *testing.T) {
	top, e := newHeldTopology(t, func(*Engine) {})
	before := func(f program.Family, n int) contents.Port {
		return heldPort(f, n, true, podEndpoint(f, "b", firstPodPort))
	}
	after := []func(program.Family, int) contents.Port{
		func(f program.Family, n int) contents.Port {
			return heldPort(f, n, true, podEndpoint(f, "c", firstPodPort))
		},
		func(f program.Family, n int) contents.Port {
			p := heldPort(f, n, true)
			for i := range p.Frontends {
				p.Frontends[i].Pool, p.Frontends[i].Refusal, p.Frontends[i].HoldsRefusals = program.NoPool, program.Reject, false
			}
			return p
		},
	}
	for _, f := range program.Families() {
		for n := range after {
			mustSet(t, e, before(f, n+1))
		}
	}
	mustApply(t, e)
	type open struct {
		name string
		flow *lab.Flow
	}
	var list []open
	for _, f := range program.Families() {
		for n := range after {
			for i, kind := range []string{"cluster IP", "external IP", "node port"} {
				for _, from := range senders() {
					p := before(f, n+1)
					flow, _ := top.At(t, from).Hold(t, question(tcp, placeOf(&p.Frontends[i], f)))
					list = append(list, open{fmt.Sprintf("%s/%s from %s/%d", f, kind, from, n), flow})
				}
			}
		}
	}
	for _, f := range program.Families() {
		for n, set := range after {
			mustSet(t, e, set(f, n+1))
		}
	}
	mustApply(t, e)
	if err := top.Node.ForgetFlows(); err != nil {
		t.Fatal(err)
	}
	reader := top.node.suspects(t)
	for _, o := range list {
		began := time.Now()
		if r := o.flow.Send(patient); r.Outcome != lab.Broken || time.Since(began) > aSecond {
			t.Errorf("%s: %s after %s; wanted: broken, at once", o.name, r, time.Since(began))
		}
	}
	if list, held := noticed(t, reader), top.heldBack(t); len(list) > 0 || held[program.IPv4]+held[program.IPv6] > 0 {
		t.Errorf("noticed %v, held back: %v", list, held)
	}
}
