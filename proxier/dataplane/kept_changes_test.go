package dataplane

import (
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
)

// TestKeptChanges: a transaction is printed when somebody reads it. What was not sent has no changes, and a pass keeps a few
// transactions.
func TestKeptChanges(t *testing.T) {
	for bytes, kept := range map[int]int{0: 0, 90: 1} {
		var r Result
		printed := 0
		head := func(n int) func() []string {
			return func() []string { printed++; return make([]string, n) }
		}
		r.keepChanges(&nft.Result{Bytes: bytes, Head: head})
		if printed != 0 || len(r.Changes) != kept {
			t.Errorf("%d bytes: printed %d times, %d transactions kept", bytes, printed, len(r.Changes))
		}
		for _, lines := range r.Changes {
			if n := len(lines()); n != maxChanges || printed != 1 {
				t.Errorf("%d lines, printed %d times", n, printed)
			}
		}
	}
	var r Result
	r.keepChanges(&nft.Result{Bytes: 90}) // it cannot be printed
	r.operated(nil)
	if len(r.Changes) != 0 {
		t.Errorf("%d transactions without anything to print", len(r.Changes))
	}
	for range maxSteps + 1 {
		r.operated(slices.Repeat(ipvsctl.Operations{{Kind: ipvsctl.DeleteServer, Server: &ipvsctl.VirtualServer{}}}, maxChanges+1))
	}
	if lines := r.Changes[0](); len(r.Changes) != maxSteps || len(lines) != maxChanges || r.Operations != (maxSteps+1)*(maxChanges+1) {
		t.Errorf("%d steps of %d lines, %d operations", len(r.Changes), len(lines), r.Operations)
	}
}

// TestServiceOf: a service port names its Service, whether the port has a name or not.
func TestServiceOf(t *testing.T) {
	for port, want := range map[string]string{"shop/web:http": "shop/web", "shop/web:80/tcp": "shop/web", "shop/web": "shop/web"} {
		if got := serviceOf(port).String(); got != want {
			t.Errorf("%q: %s", port, got)
		}
	}
}
