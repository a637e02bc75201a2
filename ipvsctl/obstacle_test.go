package ipvsctl

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
)

// TestObstacle has one row for each reason why IPVS cannot serve a virtual server now.
func TestObstacle(t *testing.T) {
	foreign := vs("tcp 10.96.0.7:80 rr", "10.0.0.1:80")
	excluded := vs("tcp 192.0.2.9:80 rr", "10.0.0.1:80")
	other := with(web, func(v *VirtualServer) { v.Scheduler = "fo" })
	for _, tt := range []struct {
		name    string
		servers []VirtualServer
		want    error
		text    string
	}{
		{name: "none", servers: []VirtualServer{web, mail}},
		{name: "no virtual servers"},
		{name: "excluded", servers: []VirtualServer{web, excluded}, want: ErrExcluded,
			text: "virtual server 192.0.2.9:80/tcp: the address is in an excluded range"},
		{name: "foreign", servers: []VirtualServer{web, foreign}, want: ErrForeign,
			text: "virtual server 10.96.0.7:80/tcp: another tool has made this virtual server"},
		{name: "another scheduler", servers: []VirtualServer{mail, other}, want: ErrReschedules,
			text: "virtual server 10.96.0.1:80/tcp: the kernel would refuse connections while it changes the scheduler"},
		{name: "the scheduler is reported last", servers: []VirtualServer{other, foreign}, want: ErrForeign,
			text: "virtual server 10.96.0.7:80/tcp: another tool has made this virtual server"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory()
			m.foreign(foreign.Key, "wrr", "192.0.2.7:80")
			e := openMemory(t, m, netip.MustParsePrefix("192.0.2.0/24"))
			mustSet(t, e, "web", web)
			pass(t, e, start())
			before := picture(t, m)
			wantObstacle(t, e.Obstacle(tt.servers), tt.want, tt.text)
			expect(t, "operations afterwards", pass(t, e, start()).String(), "")
			expect(t, "kernel afterwards", picture(t, m), before)
		})
	}
}

func wantObstacle(t *testing.T, got, want error, text string) {
	t.Helper()
	var key *KeyError
	if !errors.Is(got, want) || (got != nil) != errors.As(got, &key) {
		t.Fatalf("obstacle is %v, want %v", got, want)
	}
	if got != nil && got.Error() != text {
		t.Errorf("obstacle is %q, want %q", got, text)
	}
}

// TestObstacleReadsOnlyOtherKeys checks that Obstacle does not ask the kernel about keys that the engine has.
func TestObstacleReadsOnlyOtherKeys(t *testing.T) {
	m := newMemory()
	e := openMemory(t, m)
	mustSet(t, e, "mail", mail)
	pass(t, e, start())
	m.readError = syscall.ENOBUFS
	text := "virtual server 10.96.0.1:80/tcp: no buffer space available"
	wantObstacle(t, e.Obstacle([]VirtualServer{web}), syscall.ENOBUFS, text)
	if err := e.Obstacle([]VirtualServer{mail}); err != nil {
		t.Errorf("the engine asked the kernel for a key that it has: %v", err)
	}
}

// TestReschedules: a change of the scheduler is an obstacle only while the virtual server takes new connections.
func TestReschedules(t *testing.T) {
	m := newMemory()
	e := openMemory(t, m)
	mustSet(t, e, "web", web)
	pass(t, e, start())
	other := with(web, func(v *VirtualServer) { v.Scheduler = "fo" })
	want := func(when string, e *Engine, v VirtualServer, want error) {
		t.Helper()
		if got := e.Obstacle([]VirtualServer{mail, v}); !errors.Is(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	want("the same", e, web, nil)
	want("another", e, other, ErrReschedules)
	want("another, after a restart", openMemory(t, m), other, ErrReschedules)
	e.Delete("web")
	want("deleted, before Remove", e, other, ErrReschedules)
	pass(t, e, start())
	want("draining", e, other, nil)
}
