package ipvsctl

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
)

func wantAddrs(t *testing.T, what string, got []netip.Addr, want string) {
	t.Helper()
	if text := fmt.Sprint(got); text != want {
		t.Errorf("%s: %s, want %s", what, text, want)
	}
}

// TestAddressesToCome: Coming names exactly the addresses that the next Add makes local, Released those that went.
func TestAddressesToCome(t *testing.T) {
	e := openMemory(t, newMemory())
	e.Settle()
	nodePort := with(web, func(v *VirtualServer) { v.Addr, v.Local = netip.MustParseAddr("192.0.2.1"), false })
	mustSet(t, e, "web", web, nodePort, with(web, func(v *VirtualServer) { v.Port = 81 }))
	mustSet(t, e, "mail", mail)
	wantAddrs(t, "before Add", e.Coming(), "[10.96.0.1 10.96.0.2]")
	wantAddrs(t, "local before Add", e.Local(), "[]")
	_, err := e.Add(start())
	must(t, err)
	wantAddrs(t, "after Add", e.Coming(), "[]")
	wantAddrs(t, "local after Add", e.Local(), "[10.96.0.1 10.96.0.2]")

	mustSet(t, e, "web", with(web, func(v *VirtualServer) { v.Local = false }))
	r, err := e.Add(start())
	must(t, err)
	wantAddrs(t, "released by Add while another port needs it", r.Released(), "[]")
	r, err = e.Remove(start())
	must(t, err)
	wantAddrs(t, "drains, so it stays", r.Released(), "[]")
	r, err = e.Tick(start().Add(firstCheck))
	must(t, err)
	wantAddrs(t, "drained", r.Released(), "[10.96.0.1]")
	wantAddrs(t, "left", e.Local(), "[10.96.0.2]")
	if !e.Idle() {
		t.Error("there is something to wait for")
	}
	e.Delete("mail")
	if e.Idle() {
		t.Error("a removal waits, and nobody is told")
	}
}

// TestAddressesOfAnEarlierProcess are local from the start.
func TestAddressesOfAnEarlierProcess(t *testing.T) {
	m := left(t)
	e := openMemory(t, m)
	wantAddrs(t, "inherited", e.Local(), "[10.96.0.1 10.96.0.2 10.96.0.3]")
	mustSet(t, e, "web", web)
	wantAddrs(t, "claimed", e.Coming(), "[]")
	e.Settle()
	wantAddrs(t, "settled", e.Local(), "[10.96.0.1 10.96.0.2 10.96.0.3]")
	all := netip.MustParsePrefix("10.96.0.0/16")
	wantAddrs(t, "inherited in a range that is excluded now", openMemory(t, m, all).Local(), "[10.96.0.1 10.96.0.2 10.96.0.3]")
	pass(t, e, start())
	if e.Empty() || !openMemory(t, newMemory()).Empty() {
		t.Error("Empty does not tell")
	}
}

func TestForeignKeys(t *testing.T) {
	m := newMemory()
	m.put(web.Key, "wrr", "192.0.2.7:80")
	e := openMemory(t, m)
	mustSet(t, e, "mail", mail)
	pass(t, e, start())
	for key, want := range map[Key]bool{web.Key: true, mail.Key: false, {netip.MustParseAddr("192.0.2.3"), 1, TCP}: false} {
		if got, err := e.Foreign(key); err != nil || got != want {
			t.Errorf("%s: foreign %t, error %v; want %t", key, got, err, want)
		}
	}
	m.readError = errors.New("injected")
	if _, err := e.Foreign(web.Key); err == nil {
		t.Error("an error was dropped")
	}
	if _, err := e.Foreign(mail.Key); err != nil {
		t.Errorf("the kernel was asked for a key of ours: %v", err)
	}
}

// TestReschedules: only a virtual server that takes new connections costs some when its scheduler changes.
func TestReschedules(t *testing.T) {
	m := newMemory()
	e := openMemory(t, m)
	mustSet(t, e, "web", web)
	pass(t, e, start())
	other := web
	other.Scheduler = "fo"
	expectReschedules := func(when string, e *Engine, v VirtualServer, want bool) {
		t.Helper()
		if got := e.Reschedules([]VirtualServer{mail, v}); got != want {
			t.Errorf("%s: %t, want %t", when, got, want)
		}
	}
	expectReschedules("the same", e, web, false)
	expectReschedules("another", e, other, true)
	expectReschedules("another, after a restart", openMemory(t, m), other, true)
	e.Delete("web")
	expectReschedules("not given up yet", e, other, true)
	pass(t, e, start())
	expectReschedules("draining", e, other, false)
}
