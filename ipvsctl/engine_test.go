package ipvsctl

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	web  = vs("tcp 10.96.0.1:80 lc", "10.0.0.1:8080", "10.0.0.2:8080")
	mail = vs("tcp 10.96.0.2:25 rr", "10.0.0.3:25")
)

// TestPass has one row for each kind of change, with the operations of Add and then of Remove.
func TestPass(t *testing.T) {
	port81 := with(web, func(v *VirtualServer) { v.Port = 81 })
	for _, tt := range []struct {
		name   string
		before func(t *testing.T, e *Engine)
		change func(t *testing.T, e *Engine)
		ops    string
	}{
		{
			name:   "new: local after it is complete",
			change: func(t *testing.T, e *Engine) { mustSet(t, e, "mail", mail) },
			ops: `
				ipvsadm -A -t 10.96.0.2:25 -s rr
				ipvsadm -a -t 10.96.0.2:25 -r 10.0.0.3:25 -m -w 1
				ip route add local 10.96.0.2 dev lo table local proto 118 metric 1024`,
		},
		{
			name:   "second port of an address",
			before: func(t *testing.T, e *Engine) { mustSet(t, e, "web:http", web) },
			change: func(t *testing.T, e *Engine) { mustSet(t, e, "web:admin", port81) },
			ops: `
				ipvsadm -A -t 10.96.0.1:81 -s lc
				ipvsadm -a -t 10.96.0.1:81 -r 10.0.0.1:8080 -m -w 1
				ipvsadm -a -t 10.96.0.1:81 -r 10.0.0.2:8080 -m -w 1`,
		},
		{
			name:   "same again",
			before: func(t *testing.T, e *Engine) { mustSet(t, e, "web", web) },
			change: func(t *testing.T, e *Engine) { mustSet(t, e, "web", web) },
		},
		{
			name:   "set and deleted before a pass",
			change: func(t *testing.T, e *Engine) { mustSet(t, e, "web", web); e.Delete("web") },
		},
		{
			name:   "deleted and set before a pass",
			before: func(t *testing.T, e *Engine) { mustSet(t, e, "web", web) },
			change: func(t *testing.T, e *Engine) { e.Delete("web"); mustSet(t, e, "web", web) },
		},
		{
			name:   "unknown name deleted",
			change: func(_ *testing.T, e *Engine) { e.Delete("nobody") },
		},
		{
			name: "without endpoints: not local, then deleted",
			before: func(t *testing.T, e *Engine) {
				mustSet(t, e, "web", vs("tcp 10.96.0.1:80 rr"))
			},
			change: func(_ *testing.T, e *Engine) { e.Delete("web") },
			ops: `
				ip route del local 10.96.0.1 dev lo table local proto 118 metric 1024
				ipvsadm -D -t 10.96.0.1:80`,
		},
		{
			name: "address stays for the other port",
			before: func(t *testing.T, e *Engine) {
				mustSet(t, e, "web:a", vs("udp 10.96.0.1:80 rr", "10.0.0.1:80"))
				mustSet(t, e, "web:b", vs("udp 10.96.0.1:81 rr"))
			},
			change: func(_ *testing.T, e *Engine) { e.Delete("web:a") },
			ops:    "ipvsadm -D -u 10.96.0.1:80",
		},
		{
			name: "additions before removals, in any order of calls",
			before: func(t *testing.T, e *Engine) {
				mustSet(t, e, "old", vs("udp 10.96.0.9:53 rr"))
			},
			change: func(t *testing.T, e *Engine) { e.Delete("old"); mustSet(t, e, "mail", mail) },
			ops: `
				ipvsadm -A -t 10.96.0.2:25 -s rr
				ipvsadm -a -t 10.96.0.2:25 -r 10.0.0.3:25 -m -w 1
				ip route add local 10.96.0.2 dev lo table local proto 118 metric 1024
				ip route del local 10.96.0.9 dev lo table local proto 118 metric 1024
				ipvsadm -D -u 10.96.0.9:53`,
		},
		{
			name:   "frontend moves to another service port, which sets it first",
			before: func(t *testing.T, e *Engine) { mustSet(t, e, "a", web) },
			change: func(t *testing.T, e *Engine) { mustSet(t, e, "b", web); mustSet(t, e, "a"); e.Delete("a") },
		},
		{
			name:   "frontend moves to another service port, after the first deleted it",
			before: func(t *testing.T, e *Engine) { mustSet(t, e, "a", web) },
			change: func(t *testing.T, e *Engine) { e.Delete("a"); mustSet(t, e, "b", web) },
		},
		{
			name: "one of two frontends goes",
			before: func(t *testing.T, e *Engine) {
				mustSet(t, e, "web", vs("udp 10.96.0.1:53 rr"), vs("udp 10.96.0.1:54 rr"))
			},
			change: func(t *testing.T, e *Engine) { mustSet(t, e, "web", vs("udp 10.96.0.1:54 rr")) },
			ops:    "ipvsadm -D -u 10.96.0.1:53",
		},
		{
			name: "address of the host needs no route",
			change: func(t *testing.T, e *Engine) {
				mustSet(t, e, "np", with(mail, func(v *VirtualServer) { v.Local = false }))
			},
			ops: `
				ipvsadm -A -t 10.96.0.2:25 -s rr
				ipvsadm -a -t 10.96.0.2:25 -r 10.0.0.3:25 -m -w 1`,
		},
		{
			name:   "address becomes one of the host",
			before: func(t *testing.T, e *Engine) { mustSet(t, e, "np", mail) },
			change: func(t *testing.T, e *Engine) {
				mustSet(t, e, "np", with(mail, func(v *VirtualServer) { v.Local = false }))
			},
			ops: "ip route del local 10.96.0.2 dev lo table local proto 118 metric 1024",
		},
		{
			name: "dh gets no real servers of weight 0",
			change: func(t *testing.T, e *Engine) {
				mustSet(t, e, "web", vs("tcp 10.96.0.1:80 dh", "10.0.0.2:8080", "10.0.0.1:8080=0"))
			},
			ops: `
				ipvsadm -A -t 10.96.0.1:80 -s dh
				ipvsadm -a -t 10.96.0.1:80 -r 10.0.0.2:8080 -m -w 1
				ip route add local 10.96.0.1 dev lo table local proto 118 metric 1024`,
		},
		{
			name:   "real servers in any order",
			before: func(t *testing.T, e *Engine) { mustSet(t, e, "web", web) },
			change: func(t *testing.T, e *Engine) {
				mustSet(t, e, "web", vs("tcp 10.96.0.1:80 lc", "10.0.0.9:8080", "10.0.0.2:8080", "10.0.0.1:8080"))
			},
			ops: "ipvsadm -a -t 10.96.0.1:80 -r 10.0.0.9:8080 -m -w 1",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := openMemory(t, newMemory())
			if tt.before != nil {
				tt.before(t, e)
				pass(t, e, start())
			}
			tt.change(t, e)
			done := pass(t, e, start())
			expect(t, "operations", done.String(), tt.ops)
			if again := pass(t, e, start()); len(again) > 0 {
				t.Errorf("a second pass did:\n%s", again)
			}
		})
	}
}

// TestFailureIsConfined checks that a virtual server that fails does not stop the others, and that Add tries it again.
func TestFailureIsConfined(t *testing.T) {
	m := newMemory()
	e := openMemory(t, m)
	m.fail = func(o Operation) error {
		if o.Kind == AddReal && o.Real.Addr == web.RealServers[1].Addr {
			return syscall.ENOMEM
		}
		return nil
	}
	mustSet(t, e, "web", web)
	mustSet(t, e, "mail", mail)
	r, err := e.Add(start())
	if len(r.Failures) != 1 || r.Failures[0].Name != "web" || r.Failures[0].Key != web.Key || !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("failures %+v, error %v", r.Failures, err)
	}
	for _, part := range []string{"add real server 10.0.0.2:8080 of 10.96.0.1:80/tcp", "cannot allocate memory", "the engine tries again"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error %q does not contain %q", err, part)
		}
	}
	expect(t, "after the failure", picture(t, m), `
		10.96.0.1:80/tcp lc 10.0.0.1:8080=1
		10.96.0.2:25/tcp rr 10.0.0.3:25=1
		local 10.96.0.2`)
	m.fail = nil
	pass(t, e, start())
	expect(t, "after another pass", picture(t, m), `
		10.96.0.1:80/tcp lc 10.0.0.1:8080=1 10.0.0.2:8080=1
		10.96.0.2:25/tcp rr 10.0.0.3:25=1
		local 10.96.0.1
		local 10.96.0.2`)
}

func TestUnknownSchedulerIsNamed(t *testing.T) {
	e := openMemory(t, newMemory())
	mustSet(t, e, "web", with(web, func(v *VirtualServer) { v.Scheduler = "magic" }))
	_, err := e.Add(start())
	if err == nil || !strings.Contains(err.Error(), "the kernel has no scheduler magic, module ip_vs_magic") {
		t.Errorf("error is %v", err)
	}
	mustSet(t, e, "web", web)
	pass(t, e, start())
}

// TestUnknownOutcome: the kernel took an operation and returned an error. The next pass reads before it writes.
func TestUnknownOutcome(t *testing.T) {
	for kind := AddServer; kind <= DeleteAddress; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			m := newMemory()
			e := openMemory(t, m)
			mustSet(t, e, "a", web)
			mustSet(t, e, "b", vs("udp 10.96.0.5:53 rr", "10.0.0.1:53", "10.0.0.2:53"), vs("udp 10.96.0.6:53 rr"))
			pass(t, e, start())

			lost := 0
			m.after = func(o Operation) error {
				if o.Kind == kind {
					lost++
					return syscall.ENOBUFS
				}
				return nil
			}
			mustSet(t, e, "a", vs("tcp 10.96.0.1:80 sed", "10.0.0.2:8080=5", "10.0.0.3:8080"))
			mustSet(t, e, "b", vs("udp 10.96.0.5:53 rr", "10.0.0.2:53"), vs("udp 10.96.0.7:53 rr"))
			_, errAdd := e.Add(start())
			_, errRemove := e.Remove(start())
			if lost == 0 || errAdd == nil && errRemove == nil {
				t.Fatal("no operation failed")
			}
			m.after = nil
			pass(t, e, start())
			expect(t, "after the next pass", picture(t, m), `
				10.96.0.1:80/tcp sed 10.0.0.1:8080=0 10.0.0.2:8080=5 10.0.0.3:8080=1
				10.96.0.5:53/udp rr 10.0.0.2:53=1
				10.96.0.7:53/udp rr
				local 10.96.0.1
				local 10.96.0.5
				local 10.96.0.7`)
		})
	}
}

// TestUnsureAddressIsDeleted: after an error an address may be local. The engine treats it as local until it has
// deleted the route.
func TestUnsureAddressIsDeleted(t *testing.T) {
	for _, v := range []VirtualServer{web, vs("udp 10.96.0.1:80 lc", "10.0.0.1:8080")} { // drained; deleted at once
		t.Run(v.Protocol.String(), func(t *testing.T) {
			m := newMemory()
			e := openMemory(t, m)
			m.after = func(o Operation) error {
				if o.Kind == AddAddress {
					return syscall.ENOBUFS
				}
				return nil
			}
			mustSet(t, e, "web", v)
			if _, err := e.Add(start()); !errors.Is(err, syscall.ENOBUFS) {
				t.Fatalf("error is %v", err)
			}
			wantLocal(t, "may be local", e, "[10.96.0.1]")
			e.Delete("web")
			removed, err := e.Remove(start())
			must(t, err)
			drained, err := e.Tick(start().Add(period))
			must(t, err)
			wantAddrs(t, "released", append(removed.Released, drained.Released...), "[10.96.0.1]")
			wantLocal(t, "local in the end", e, "[]")
			expect(t, "kernel", picture(t, m), "")
		})
	}
}

// TestInterference: another tool changed a virtual server of the engine. The next Set repairs it without an error.
func TestInterference(t *testing.T) {
	const want = `
		10.96.0.1:80/tcp wrr 10.0.0.2:8080=2 10.0.0.3:8080=1
		local 10.96.0.1`
	changed := vs("tcp 10.96.0.1:80 wrr", "10.0.0.2:8080=2", "10.0.0.3:8080")
	for _, tt := range []struct {
		name  string
		other func(*memory)
		want  string
	}{
		{"all flushed", func(m *memory) { clear(m.State) }, want},
		{"real server deleted", func(m *memory) { delete(m.State[web.Key].Reals, web.RealServers[1].Addr) }, ""},
		{"real server added", func(m *memory) { m.putReal(web.Key, "10.0.0.3:8080=9") }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory()
			e := openMemory(t, m)
			mustSet(t, e, "web", web)
			pass(t, e, start())
			tt.other(m)
			mustSet(t, e, "web", changed)
			pass(t, e, start())
			if tt.want == "" {
				tt.want = strings.Replace(want, "wrr ", "wrr 10.0.0.1:8080=0 ", 1)
			}
			expect(t, "after a pass", picture(t, m), tt.want)
		})
	}
}

// TestIntact checks that Intact notices changes by other tools and that the next pass repairs them.
func TestIntact(t *testing.T) {
	for _, tt := range []struct {
		name  string
		other func(*memory)
	}{
		{"flushed", func(m *memory) { clear(m.State) }},
		{"scheduler changed", func(m *memory) { m.State[web.Key].Scheduler = "dh" }},
		{"weight changed", func(m *memory) { m.putReal(web.Key, "10.0.0.1:8080=4") }},
		{"real server deleted", func(m *memory) { delete(m.State[web.Key].Reals, web.RealServers[0].Addr) }},
		{"no longer local", func(m *memory) { clear(m.Local) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory()
			e := openMemory(t, m)
			mustSet(t, e, "web", web)
			pass(t, e, start())
			want := picture(t, m)
			expectIntact(t, e, true)
			tt.other(m)
			expectIntact(t, e, false)
			pass(t, e, start())
			expect(t, "repaired", picture(t, m), want)
			expectIntact(t, e, true)
		})
	}
	t.Run("real server added", func(t *testing.T) {
		m := newMemory()
		e := openMemory(t, m)
		mustSet(t, e, "web", web)
		pass(t, e, start())
		m.putReal(web.Key, "10.0.0.77:80")
		expectIntact(t, e, false)
		pass(t, e, start())
		expect(t, "it drains", picture(t, m), `
			10.96.0.1:80/tcp lc 10.0.0.1:8080=1 10.0.0.2:8080=1 10.0.0.77:80=0
			local 10.96.0.1`)
	})
	t.Run("cannot be read", func(t *testing.T) {
		m := newMemory()
		e := openMemory(t, m)
		mustSet(t, e, "web", web)
		pass(t, e, start())
		m.readError = syscall.ENOBUFS
		if _, err := e.Intact(true); !errors.Is(err, syscall.ENOBUFS) {
			t.Errorf("error is %v", err)
		}
	})
}

// TestIntactOfMany: damage to one of many virtual servers is found in a bounded number of looks, also if a real server drained
// there.
func TestIntactOfMany(t *testing.T) {
	m := newMemory()
	e := openMemory(t, m)
	lost := Key{}
	for i := range 2000 {
		v := web
		v.Addr = netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)})
		mustSet(t, e, v.Addr.String(), v)
		lost = v.Key
	}
	pass(t, e, start())
	looks := func() (n int) {
		for same := true; same; n++ {
			var err error
			if same, err = e.Intact(true); err != nil {
				t.Fatal(err)
			}
			if n > 2*allWithin {
				t.Fatalf("not found in %d looks", n)
			}
		}
		return n
	}
	for range 5 {
		delete(m.State, lost)
		if n := looks(); n > allWithin+1 {
			t.Errorf("found by look %d", n)
		}
		pass(t, e, start())
	}
	drained := web
	drained.Key, drained.RealServers = lost, web.RealServers[:1]
	mustSet(t, e, lost.Addr.String(), drained)
	pass(t, e, start())
	delete(m.State, lost)
	if _, err := e.Tick(start().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if n := looks(); n != 1 {
		t.Errorf("after its drain, found by look %d", n)
	}
}

func expectIntact(t *testing.T, e *Engine, want bool) {
	t.Helper()
	got, err := e.Intact(true)
	must(t, err)
	if got != want {
		t.Errorf("intact: %v, want %v", got, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
