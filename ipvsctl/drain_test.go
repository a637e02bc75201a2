package ipvsctl

import (
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// TestDrain follows a real server that is no longer wanted, minute by minute.
func TestDrain(t *testing.T) {
	const (
		draining = "10.96.0.1:80/tcp lc 10.0.0.1:8080=1 10.0.0.2:8080=0\nlocal 10.96.0.1"
		ended    = "10.96.0.1:80/tcp lc 10.0.0.1:8080=1\nlocal 10.96.0.1"
	)
	one := vs("tcp 10.96.0.1:80 lc", "10.0.0.1:8080")
	second := web.RealServers[1].Addr
	for _, tt := range []struct {
		name  string
		steps []func(t *testing.T, d *drainTest)
	}{
		{"no connections: gone at the first check", []func(*testing.T, *drainTest){
			expectAt(0, draining), expectAt(999*time.Millisecond, draining), expectAt(time.Second, ended),
		}},
		{"gone with its last connection", []func(*testing.T, *drainTest){
			conns(second, 2), expectAt(time.Minute, draining), conns(second, 1), expectAt(2*time.Minute, draining),
			conns(second, 0), expectAt(3*time.Minute, ended),
		}},
		{"gone when its period is over", []func(*testing.T, *drainTest){
			conns(second, 1), expectAt(period-time.Nanosecond, draining), expectAt(period, ended),
		}},
		{"wanted again", []func(*testing.T, *drainTest){
			conns(second, 1), expectAt(time.Minute, draining), set(web),
			expectAt(time.Minute, "10.96.0.1:80/tcp lc 10.0.0.1:8080=1 10.0.0.2:8080=1\nlocal 10.96.0.1"),
			expectAt(time.Hour, "10.96.0.1:80/tcp lc 10.0.0.1:8080=1 10.0.0.2:8080=1\nlocal 10.96.0.1"),
		}},
		{"wanted again, then not any more: the period starts again", []func(*testing.T, *drainTest){
			conns(second, 1), expectAt(10*time.Minute, draining), set(web), set(one),
			expectAt(period, draining), expectAt(10*time.Minute+period, ended),
		}},
		{"other changes do not extend the period", []func(*testing.T, *drainTest){
			conns(second, 1), expectAt(10*time.Minute, draining), set(one), expectAt(period-time.Second, draining), set(one),
			expectAt(period, ended),
		}},
		{"survives a restart, and its period starts again", []func(*testing.T, *drainTest){
			conns(second, 1), expectAt(10*time.Minute, draining), restart(one), expectAt(period, draining),
			expectAt(10*time.Minute+period, ended),
		}},
		{"survives a restart, wanted again", []func(*testing.T, *drainTest){
			conns(second, 1), restart(web),
			expectAt(time.Hour, "10.96.0.1:80/tcp lc 10.0.0.1:8080=1 10.0.0.2:8080=1\nlocal 10.96.0.1"),
		}},
		{"the virtual server goes with its last real server", []func(*testing.T, *drainTest){
			conns(second, 1), conns(web.RealServers[0].Addr, 1), set(),
			expectAt(time.Minute, "10.96.0.1:80/tcp lc 10.0.0.1:8080=0 10.0.0.2:8080=0\nlocal 10.96.0.1"),
			conns(web.RealServers[0].Addr, 0),
			expectAt(2*time.Minute, "10.96.0.1:80/tcp lc 10.0.0.2:8080=0\nlocal 10.96.0.1"),
			conns(second, 0), expectAt(3*time.Minute, ""),
		}},
		{"the virtual server goes when its period is over", []func(*testing.T, *drainTest){
			conns(second, 1), set(), expectAt(period, ""),
		}},
		{"the virtual server is wanted again", []func(*testing.T, *drainTest){
			conns(second, 1), set(), expectAt(time.Minute, "10.96.0.1:80/tcp lc 10.0.0.2:8080=0\nlocal 10.96.0.1"), set(one),
			expectAt(time.Minute, draining),
		}},
		{"the virtual server goes after a restart", []func(*testing.T, *drainTest){
			conns(second, 1), restart(),
			expectAt(time.Minute, "10.96.0.1:80/tcp lc 10.0.0.2:8080=0\nlocal 10.96.0.1"), expectAt(period, ""),
		}},
		{"another tool deletes the real server", []func(*testing.T, *drainTest){
			conns(second, 1), func(_ *testing.T, d *drainTest) { delete(d.m.State[web.Key].Reals, second) },
			expectAt(time.Minute, ended),
		}},
		{"another tool deletes the virtual server", []func(*testing.T, *drainTest){
			conns(second, 1), set(), func(_ *testing.T, d *drainTest) { delete(d.m.State, web.Key) }, expectAt(time.Minute, ""),
		}},
		{"another tool replaces the virtual server", []func(*testing.T, *drainTest){
			conns(second, 1), set(), replace(web.Key, "192.0.2.7:80"),
			expectAt(time.Minute, "10.96.0.1:80/tcp wrr foreign 192.0.2.7:80=1"),
			expectAt(time.Hour, "10.96.0.1:80/tcp wrr foreign 192.0.2.7:80=1"),
		}},
		{"another tool replaces the virtual server with the same real servers, then it is deleted", []func(*testing.T, *drainTest){
			replace(web.Key, "10.0.0.1:8080", "10.0.0.2:8080"), set(),
			expectAt(time.Hour, "10.96.0.1:80/tcp wrr foreign 10.0.0.1:8080=1 10.0.0.2:8080=1"),
		}},
		{"another tool replaces the virtual server with the same real servers, and it is still wanted", []func(*testing.T, *drainTest){
			replace(web.Key, "10.0.0.1:8080", "10.0.0.2:8080"),
			expectAt(time.Hour, "10.96.0.1:80/tcp wrr foreign 10.0.0.1:8080=1 10.0.0.2:8080=1\nlocal 10.96.0.1"),
			func(t *testing.T, d *drainTest) { expectIntact(t, d.e, false) },
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &drainTest{m: newMemory(), now: start()}
			d.e = openMemory(t, d.m)
			set(web)(t, d)
			set(one)(t, d)
			for _, step := range tt.steps {
				step(t, d)
			}
		})
	}
}

type drainTest struct {
	m   *memory
	e   *Engine
	now time.Time
}

// expectAt advances the clock, ticks once, and compares the kernel.
func expectAt(since time.Duration, want string) func(*testing.T, *drainTest) {
	return func(t *testing.T, d *drainTest) {
		t.Helper()
		d.now = start().Add(since)
		_, err := d.e.Tick(d.now)
		must(t, err)
		expect(t, "after "+since.String(), picture(t, d.m), want)
	}
}

func conns(addr netip.AddrPort, n int) func(*testing.T, *drainTest) {
	return func(_ *testing.T, d *drainTest) { d.m.State[web.Key].Reals[addr].Active = n }
}

func set(servers ...VirtualServer) func(*testing.T, *drainTest) {
	return func(t *testing.T, d *drainTest) {
		t.Helper()
		mustSet(t, d.e, "web", servers...)
		pass(t, d.e, d.now)
	}
}

func replace(k Key, reals ...string) func(*testing.T, *drainTest) {
	return func(_ *testing.T, d *drainTest) { d.m.foreign(k, "wrr", reals...) }
}

func restart(servers ...VirtualServer) func(*testing.T, *drainTest) {
	return func(t *testing.T, d *drainTest) {
		t.Helper()
		d.e = openMemory(t, d.m)
		mustSet(t, d.e, "web", servers...)
		pass(t, d.e, d.now)
	}
}

// TestDrainChecksAtGrowingIntervals: each check lists real servers, and the kernel keeps closed connections for
// minutes.
func TestDrainChecksAtGrowingIntervals(t *testing.T) {
	m := newMemory()
	e := openMemory(t, m)
	mustSet(t, e, "web", web)
	pass(t, e, start())
	mustSet(t, e, "web", vs("tcp 10.96.0.1:80 lc", "10.0.0.1:8080"))
	pass(t, e, start())
	m.State[web.Key].Reals[web.RealServers[1].Addr].Active = 1
	looks := 0
	counted := &countingKernel{memory: m, looks: &looks}
	e.kernel = counted
	for second := range 600 {
		_, err := e.Tick(start().Add(time.Duration(second) * time.Second))
		must(t, err)
	}
	if looks < 15 || looks > 30 {
		t.Errorf("%d checks within ten minutes", looks)
	}
	if n := draining(e); n != 1 {
		t.Errorf("%d real servers drain, want 1", n)
	}
}

type countingKernel struct {
	*memory
	looks *int
}

func (c *countingKernel) Reals(k Key) ([]RealStatus, error) {
	*c.looks++
	return c.memory.Reals(k)
}

// TestDrainFails checks that Tick returns errors and tries again.
func TestDrainFails(t *testing.T) {
	m := newMemory()
	e := openMemory(t, m)
	mustSet(t, e, "web", web)
	pass(t, e, start())
	mustSet(t, e, "web", vs("tcp 10.96.0.1:80 lc", "10.0.0.1:8080"))
	pass(t, e, start())
	m.readError = syscall.ENOBUFS
	if _, err := e.Tick(start().Add(time.Second)); err == nil {
		t.Error("no error when connections cannot be read")
	}
	m.readError = nil
	m.fail = func(Operation) error { return syscall.ENOMEM }
	if r, err := e.Tick(start().Add(time.Minute)); err == nil || len(r.Failures) != 1 || r.Failures[0].Key != web.Key {
		t.Errorf("failures %+v, error %v", r.Failures, err)
	}
	m.fail = nil
	_, err := e.Tick(start().Add(2 * time.Minute))
	must(t, err)
	if draining(e) != 0 || len(m.State[web.Key].Reals) != 1 {
		t.Errorf("still draining: %s", picture(t, m))
	}
}

func TestNoGracefulPeriod(t *testing.T) {
	m := newMemory()
	e, err := openEngine(Options{}, m)
	must(t, err)
	mustSet(t, e, "web", web)
	pass(t, e, start())
	mustSet(t, e, "web", vs("tcp 10.96.0.1:80 lc", "10.0.0.1:8080"))
	pass(t, e, start())
	expect(t, "at once", picture(t, m), "10.96.0.1:80/tcp lc 10.0.0.1:8080=1\nlocal 10.96.0.1")
	e.Delete("web")
	pass(t, e, start())
	expect(t, "at once", picture(t, m), "")
}
