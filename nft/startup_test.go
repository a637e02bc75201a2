//go:build !nokernel

package nft

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
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
		{"the chain of a group of lengths", "flush chain ip6 verdict source-ranges-25-32", "ip6 verdict source-ranges-25-32"},
		{"source ranges", "flush chain ip verdict source-ranges", "ip verdict source-ranges"},
		{"a table put to sleep", "add table ip6 verdict { flags dormant; }", "ip6 verdict (put to sleep)"},
		{"a table put to sleep, and a rule", "add table ip verdict { flags dormant; }\ninsert rule ip verdict services drop",
			"ip verdict services, ip verdict (put to sleep)"},
		{"elements only", "flush map ip verdict services", ""},
		{"a set that is gone", "flush chain ip verdict unserved\ndelete set ip verdict no-endpoints\ninsert rule ip verdict services drop", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNamespace(t)
			e := n.engine(t)
			mustSet(t, e, mendedPorts()...)
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
			mustSet(t, again, mendedPorts()...)
			if r := mustApply(t, again); test.want != "" && r.Added > 2 {
				t.Errorf("the first apply added %d elements; want the stamps only", r.Added)
			}
		})
	}
}

// mendedPorts have source ranges in one group of lengths, among others.
func mendedPorts() (ports []contents.Port) {
	for _, f := range program.Families() {
		ports = append(ports, manyPorts(f, 0, 3)...)
		ports = append(ports, sourcesPort(f, 0, []netip.Prefix{netip.PrefixFrom(clientAddr(f), 27).Masked()}))
	}
	return ports
}

// TestRepairBeforeTheFirstSet: an engine that does not know yet what the tables are to have undoes what others do to the
// rules, and leaves the elements to the first Apply.
func TestRepairBeforeTheFirstSet(t *testing.T) {
	for _, test := range []struct {
		name, script string
		mended       bool
	}{
		{"a rule", "insert rule ip verdict services drop", true},
		{"a table put to sleep", "add table ip6 verdict { flags dormant; }", true},
		{"elements", "flush map ip verdict services", false},
		{"everything in one family", "delete table ip6 verdict", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := newInterfered(t, 0)
			x.set(t, mendedPorts()...)
			mustApply(t, x.engine)
			before := x.listing(t)
			if err := errors.Join(x.watcher.Close(), x.engine.Close()); err != nil {
				t.Fatal(err)
			}
			x.engine = x.namespace.engine(t)
			x.watch(t)
			x.load(t, test.script)
			edited := x.listing(t)
			if _, err := x.engine.Repair(x.next(t)); err != nil {
				t.Fatal(err)
			}
			want := edited
			if test.mended {
				want = before
			}
			compareListings(t, "after the repair", x.listing(t), want)
		})
	}
}
