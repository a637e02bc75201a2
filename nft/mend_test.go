//go:build !nokernel

package nft

import (
	"strings"
	"testing"
)

// TestMend: an engine that starts undoes changes of the rules before it knows any Service, and leaves the rest as it is.
func TestMend(t *testing.T) {
	for _, test := range []struct{ name, script, want string }{
		{"nothing", "", ""},
		{"a rule that drops everything", "insert rule ip verdict services drop", "ip verdict services"},
		{"both families", "insert rule ip verdict services drop\ninsert rule ip6 verdict balance drop",
			"ip verdict services, ip6 verdict balance"},
		{"a flushed chain", "flush chain ip verdict nat-output", "ip verdict nat-output"},
		{"a deleted base chain", "delete chain ip6 verdict nat-output", "ip6 verdict nat-output"},
		{"a policy", "add chain ip verdict filter-output { policy drop; }", "ip verdict filter-output"},
		{"a base chain", "add chain ip verdict mine { type filter hook output priority 5; policy drop; }", "ip verdict mine"},
		{"a base chain with rules", "table ip verdict { chain mine { type filter hook output priority 5; drop; }; }", "ip verdict mine"},
		{"elements only", "flush map ip verdict services", ""},
		{"a set that is gone", "flush chain ip verdict unserved\ndelete set ip verdict no-endpoints\ninsert rule ip verdict services drop", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNamespace(t)
			e := n.engine(t)
			mustSet(t, e, manyPorts(IPv4, 0, 3)...)
			mustSet(t, e, manyPorts(IPv6, 0, 3)...)
			mustApply(t, e)
			before := n.list(t)
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			if test.script != "" {
				n.load(t, test.script)
			}
			edited := n.list(t)
			again := n.engine(t)
			chains, err := again.Mend()
			if got := strings.Join(chains, ", "); err != nil || got != test.want {
				t.Errorf("chains %q, error %v; want %q", got, err, test.want)
			}
			if test.want != "" {
				compareListings(t, "mended", n.list(t), before)
			} else {
				compareListings(t, "not mended", n.list(t), edited)
			}
			mustSet(t, again, manyPorts(IPv4, 0, 3)...)
			mustSet(t, again, manyPorts(IPv6, 0, 3)...)
			if r := mustApply(t, again); test.want != "" && r.Added > 2 {
				t.Errorf("the first apply added %d elements; want the stamps only", r.Added)
			}
		})
	}
}
