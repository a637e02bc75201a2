package ipvsctl

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// TestForeign checks that the engine does not touch virtual servers of other tools. When it needs the key of one, it
// waits until that one has gone.
func TestForeign(t *testing.T) {
	m := newMemory()
	m.foreign(web.Key, "wrr", "192.0.2.7:80")
	m.foreign(parseKey("tcp 192.0.2.1:443"), "rr", "192.0.2.7:443")
	theirs := picture(t, m)
	e := openMemory(t, m)
	mustSet(t, e, "web", web)
	for range 2 {
		r, err := e.Add(start())
		if len(r.Failures) != 1 || !errors.Is(r.Failures[0].Err, ErrForeign) || !strings.Contains(err.Error(), web.String()) {
			t.Fatalf("failures %+v, error %v", r.Failures, err)
		}
		_, err = e.Remove(start())
		must(t, err)
		expect(t, "untouched", picture(t, m), theirs)
	}
	delete(m.State, web.Key)
	pass(t, e, start())
	expect(t, "after the other tool deleted it", picture(t, m), `
		10.96.0.1:80/tcp lc 10.0.0.1:8080=1 10.0.0.2:8080=1
		192.0.2.1:443/tcp rr foreign 192.0.2.7:443=1
		local 10.96.0.1`)
}

func TestForeignStaysAfterDelete(t *testing.T) {
	m := newMemory()
	m.foreign(web.Key, "wrr", "192.0.2.7:80")
	theirs := picture(t, m)
	e := openMemory(t, m)
	mustSet(t, e, "web", web)
	if _, err := e.Add(start()); !errors.Is(err, ErrForeign) {
		t.Fatalf("error is %v", err)
	}
	e.Delete("web")
	pass(t, e, start())
	expect(t, "untouched", picture(t, m), theirs)
	if len(e.servers) != 0 {
		t.Errorf("the engine still has %d virtual servers", len(e.servers))
	}
}

// TestReplacedByForeign: another tool replaced a virtual server of the engine, and Intact noticed it.
func TestReplacedByForeign(t *testing.T) {
	m := newMemory()
	e := openMemory(t, m)
	mustSet(t, e, "web", web)
	pass(t, e, start())
	m.foreign(web.Key, "wrr", "192.0.2.7:80")
	expectIntact(t, e, false)
	if _, err := e.Add(start()); !errors.Is(err, ErrForeign) {
		t.Fatalf("error is %v", err)
	}
	e.Delete("web")
	pass(t, e, start())
	expect(t, "untouched", picture(t, m), "10.96.0.1:80/tcp wrr foreign 192.0.2.7:80=1")
}

// TestDeletedAfterItWasReplaced: another tool replaced a virtual server of the engine, and then Delete comes before
// Intact notices. The virtual server of the other tool stays, the local route goes.
func TestDeletedAfterItWasReplaced(t *testing.T) {
	for _, protocol := range []string{"tcp", "udp"} { // drained; deleted at once
		t.Run(protocol, func(t *testing.T) {
			m := newMemory()
			e := openMemory(t, m)
			v := vs(protocol+" 10.96.0.1:80 lc", "10.0.0.1:8080")
			mustSet(t, e, "web", v)
			pass(t, e, start())
			m.foreign(v.Key, "wrr", "10.0.0.1:8080")
			e.Delete("web")
			pass(t, e, start())
			expect(t, "kernel", picture(t, m), "10.96.0.1:80/"+protocol+" wrr foreign 10.0.0.1:8080=1")
			wantLocal(t, "in the end", e, "[]")
			if len(e.servers) != 0 {
				t.Errorf("the engine still has %d virtual servers", len(e.servers))
			}
		})
	}
}

// TestNothingIsDeletedUnread: when the engine cannot read a virtual server, another tool may have made it.
func TestNothingIsDeletedUnread(t *testing.T) {
	m := newMemory()
	e := openMemory(t, m)
	mustSet(t, e, "web", vs("udp 10.96.0.1:80 lc"))
	pass(t, e, start())
	before := picture(t, m)
	e.Delete("web")
	m.readError = syscall.ENOBUFS
	if _, err := e.Remove(start()); !errors.Is(err, syscall.ENOBUFS) {
		t.Errorf("error is %v", err)
	}
	m.readError = nil
	expect(t, "kernel", picture(t, m), before)
	pass(t, e, start())
	expect(t, "after the next pass", picture(t, m), "")
}
