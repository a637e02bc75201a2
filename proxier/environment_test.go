package proxier

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// TestPrimaryAddressesCannotBeRead: node ports stay where they were, and the host is asked again.
func TestPrimaryAddressesCannotBeRead(t *testing.T) {
	fail, primary := false, addrs("192.168.7.1")
	w := newWorldWith(func(o *Options) {
		o.Primary = func() ([]netip.Addr, error) {
			if fail {
				return nil, errors.New("injected: too many open files")
			}
			return primary, nil
		}
	})
	w.store.MarkSynced()
	look := func(step, want string) {
		t.Helper()
		listing, err := w.rules.kernel.List(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(listing.NodePortAddresses); got != want {
			t.Errorf("%s: node ports on %s, want %s", step, got, want)
		}
	}
	if err := w.Once(); err != nil {
		t.Fatal(err)
	}
	look("at the start", "[192.168.7.1]")
	fail = true
	w.store.SetHostAddresses(addrs("192.168.7.1", "192.168.7.2"))
	if err := w.Once(); err != nil {
		t.Fatal(err)
	}
	look("when they cannot be read", "[192.168.7.1]")
	if !strings.Contains(w.log.String(), "too many open files") {
		t.Errorf("the log does not say why: %s", w.log)
	}
	fail, primary = false, addrs("192.168.7.2")
	if !w.check() {
		t.Fatal("no pass is wanted although the addresses are still to be read")
	}
	if err := w.Once(); err != nil {
		t.Fatal(err)
	}
	look("when they can be read again", "[192.168.7.2]")
	if w.check() {
		t.Error("asked again although nothing failed")
	}
}
