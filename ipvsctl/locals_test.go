package ipvsctl

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"testing"
)

func wantAddrs(t *testing.T, what string, got []netip.Addr, want string) {
	t.Helper()
	if text := fmt.Sprint(got); text != want {
		t.Errorf("%s: %s, want %s", what, text, want)
	}
}

func wantLocal(t *testing.T, when string, e *Engine, want string) {
	t.Helper()
	wantAddrs(t, "local "+when, slices.SortedFunc(maps.Keys(e.locals.all()), netip.Addr.Compare), want)
}

// TestAddressesToGuard checks that Coming lists exactly the addresses that the next Add makes local, and Released those
// that are no longer local.
func TestAddressesToGuard(t *testing.T) {
	e := openMemory(t, newMemory())
	pass(t, e, start())
	nodePort := with(web, func(v *VirtualServer) { v.Addr, v.Local = netip.MustParseAddr("192.0.2.1"), false })
	mustSet(t, e, "web", web, nodePort, with(web, func(v *VirtualServer) { v.Port = 81 }))
	mustSet(t, e, "mail", mail)
	wantAddrs(t, "before Add", e.Coming(), "[10.96.0.1 10.96.0.2]")
	wantLocal(t, "before Add", e, "[]")
	r, err := e.Add(start())
	must(t, err)
	wantAddrs(t, "not local", r.Released, "[]")
	wantAddrs(t, "after Add", e.Coming(), "[]")
	wantLocal(t, "after Add", e, "[10.96.0.1 10.96.0.2]")

	mustSet(t, e, "web", with(web, func(v *VirtualServer) { v.Local = false }))
	r, err = e.Add(start())
	must(t, err)
	wantAddrs(t, "released by Add while another port needs it", r.Released, "[]")
	r, err = e.Remove(start())
	must(t, err)
	wantAddrs(t, "while it drains", r.Released, "[]")
	r, err = e.Tick(start().Add(firstCheck))
	must(t, err)
	wantAddrs(t, "drained", r.Released, "[10.96.0.1]")
	wantLocal(t, "in the end", e, "[10.96.0.2]")
}

// TestAddressesOfAnEarlierProcess checks that they need a guard until the first Remove.
func TestAddressesOfAnEarlierProcess(t *testing.T) {
	const inherited = "[10.96.0.1 10.96.0.2 10.96.0.3]"
	m := leftovers(t)
	e := openMemory(t, m)
	wantAddrs(t, "at first", e.Coming(), inherited)
	mustSet(t, e, "web", web)
	mustSet(t, e, "new", vs("tcp 10.96.0.9:80 rr", "10.0.0.1:80"))
	wantAddrs(t, "with a new one", e.Coming(), "[10.96.0.1 10.96.0.2 10.96.0.3 10.96.0.9]")
	r, err := e.Add(start())
	must(t, err)
	wantAddrs(t, "not local", r.Released, "[]")
	wantAddrs(t, "after Add", e.Coming(), "[10.96.0.1 10.96.0.2 10.96.0.3 10.96.0.9]")
	all := netip.MustParsePrefix("10.96.0.0/16")
	other := openMemory(t, m, all)
	wantAddrs(t, "in a range that is excluded now", other.Coming(), "[10.96.0.1 10.96.0.2 10.96.0.3 10.96.0.9]")
	r, err = e.Remove(start())
	must(t, err)
	wantAddrs(t, "released", r.Released, "[10.96.0.3]")
	wantAddrs(t, "after Remove", e.Coming(), "[]")
	if e.Empty() || !openMemory(t, newMemory()).Empty() {
		t.Error("Empty is wrong")
	}
}

// TestNotLocal: an address that did not become local needs no guard. One that may be local needs it.
func TestNotLocal(t *testing.T) {
	real := func(o Operation) bool { return o.Kind == AddReal && o.Server.Key == web.Key }
	local := func(o Operation) bool { return o.Kind == AddAddress && o.Server.Key == web.Key }
	for _, tt := range []struct {
		name     string
		refused  func(Operation) bool
		deleted  bool // between Coming and Add
		notLocal string
	}{
		{name: "all became local", notLocal: "[]"},
		{name: "refused before it became local", refused: real, notLocal: "[10.96.0.1]"},
		{name: "may be local", refused: local, notLocal: "[]"},
		{name: "no longer wanted", deleted: true, notLocal: "[10.96.0.1]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory()
			e := openMemory(t, m)
			m.fail = func(o Operation) error {
				if tt.refused != nil && tt.refused(o) {
					return syscall.ENOMEM
				}
				return nil
			}
			mustSet(t, e, "web", web)
			mustSet(t, e, "mail", mail)
			wantAddrs(t, "coming", e.Coming(), "[10.96.0.1 10.96.0.2]")
			if tt.deleted {
				e.Delete("web")
			}
			r, err := e.Add(start())
			if (err != nil) != (tt.refused != nil) {
				t.Fatalf("error is %v", err)
			}
			wantAddrs(t, "not local", r.Released, tt.notLocal)
			r, _ = e.Add(start())
			wantAddrs(t, "not local, when Coming was not asked", r.Released, "[]")
		})
	}
}

// TestReleasedIsCertain: the engine deleted the route of an address, but the address may be local again. It needs its
// guard.
func TestReleasedIsCertain(t *testing.T) {
	m := newMemory()
	e := openMemory(t, m)
	mustSet(t, e, "web", web)
	pass(t, e, start())
	m.after = func(o Operation) error {
		if o.Kind == AddAddress {
			return syscall.ENOBUFS
		}
		return nil
	}
	mustSet(t, e, "web", with(web, func(v *VirtualServer) { v.Local = false }))
	mustSet(t, e, "other", with(web, func(v *VirtualServer) { v.Port = 81 }))
	r, err := e.Add(start())
	if !errors.Is(err, syscall.ENOBUFS) {
		t.Fatalf("error is %v", err)
	}
	wantAddrs(t, "released", r.Released, "[]")
	wantLocal(t, "after the error", e, "[10.96.0.1]")
}

// TestFailedRemovalIsRepeated checks that Tick repeats a removal that failed, and starts none that Remove has not
// started.
func TestFailedRemovalIsRepeated(t *testing.T) {
	m := newMemory()
	e := openMemory(t, m)
	mustSet(t, e, "web", vs("udp 10.96.0.1:53 rr", "10.0.0.1:53"))
	mustSet(t, e, "mail", mail)
	pass(t, e, start())
	e.Delete("web")
	m.fail = func(o Operation) error { return syscall.ENOMEM }
	r, err := e.Remove(start())
	if err == nil || len(r.Failures) != 1 {
		t.Fatalf("failures %+v, error %v", r.Failures, err)
	}
	m.fail = nil
	e.Delete("mail")
	r, err = e.Tick(start())
	must(t, err)
	wantAddrs(t, "released", r.Released, "[10.96.0.1]")
	expect(t, "kernel", picture(t, m), "10.96.0.2:25/tcp rr 10.0.0.3:25=1\nlocal 10.96.0.2")
}
