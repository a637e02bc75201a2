package dataplane

import (
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
)

// TestKeptChanges: a small transaction is printed when somebody reads it, and a large one at once. What was not sent has no
// changes, and a pass keeps a few transactions.
func TestKeptChanges(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		added, deleted, bytes int
		printed, kept         int
	}{
		{"nothing was sent", 0, 0, 0, 0, 0},
		{"a chain without elements", 0, 0, 90, 0, 1},
		{"as many elements as are kept", maxChanges - 1, 1, 90, 0, 1},
		{"one more", maxChanges, 1, 90, 1, 1},
		{"one more is deleted", 1, maxChanges, 90, 1, 1},
	} {
		var r Result
		printed := 0
		head := func(n int) []string {
			printed++
			return make([]string, n)
		}
		r.keepChanges(&nft.Result{Added: tt.added, Deleted: tt.deleted, Bytes: tt.bytes, Head: head})
		if printed != tt.printed || len(r.Changes) != tt.kept {
			t.Errorf("%s: printed %d times, %d transactions kept", tt.name, printed, len(r.Changes))
		}
		for _, lines := range r.Changes {
			if n := len(lines()); n != maxChanges || printed != 1 {
				t.Errorf("%s: %d lines, printed %d times", tt.name, n, printed)
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
