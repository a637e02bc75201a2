package ipvsctl

import (
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// leftovers is a kernel with three virtual servers of an earlier process and two of another tool.
func leftovers(t *testing.T) *memory {
	t.Helper()
	m := newMemory()
	e := openMemory(t, m)
	mustSet(t, e, "web", web)
	mustSet(t, e, "mail", mail)
	mustSet(t, e, "dns", vs("udp 10.96.0.3:53 rr", "10.0.0.5:53"))
	pass(t, e, start())
	m.foreign(parseKey("tcp 192.0.2.1:443"), "rr", "192.0.2.7:443")
	m.foreign(parseKey("tcp 10.96.0.1:443"), "rr", "192.0.2.7:443") // at an address of the engine
	return m
}

// TestRestart checks that a new process changes only what differs from what it wants. It does not touch what no Set has
// claimed before the first Remove.
func TestRestart(t *testing.T) {
	for _, tt := range []struct {
		name    string
		left    func(*memory)
		wanted  map[string]VirtualServer
		exclude []netip.Prefix
		early   string // operations of the first Add
		late    string // operations of the first Remove
	}{
		{name: "same", wanted: map[string]VirtualServer{"web": web, "mail": mail, "dns": vs("udp 10.96.0.3:53 rr", "10.0.0.5:53")}},
		{
			name:   "endpoint changed",
			wanted: map[string]VirtualServer{"web": vs("tcp 10.96.0.1:80 lc", "10.0.0.2:8080=4"), "mail": mail, "dns": vs("udp 10.96.0.3:53 rr", "10.0.0.6:53")},
			early: `
				ipvsadm -a -u 10.96.0.3:53 -r 10.0.0.6:53 -m -w 1
				ipvsadm -d -u 10.96.0.3:53 -r 10.0.0.5:53
				ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 0
				ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.2:8080 -m -w 4`,
		},
		{
			name:   "Services deleted in the meantime",
			wanted: map[string]VirtualServer{"web": web},
			late: `
				ip route del local 10.96.0.3 dev lo table local proto 118 metric 1024
				ipvsadm -D -u 10.96.0.3:53
				ipvsadm -e -t 10.96.0.2:25 -r 10.0.0.3:25 -m -w 0`,
		},
		{
			name: "nothing wanted",
			late: `
				ip route del local 10.96.0.3 dev lo table local proto 118 metric 1024
				ipvsadm -D -u 10.96.0.3:53
				ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 0
				ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.2:8080 -m -w 0
				ipvsadm -e -t 10.96.0.2:25 -r 10.0.0.3:25 -m -w 0`,
		},
		{
			name:   "an address without a virtual server",
			left:   func(m *memory) { m.Local[netip.MustParseAddr("10.96.0.99")] = true },
			wanted: map[string]VirtualServer{"web": web, "mail": mail, "dns": vs("udp 10.96.0.3:53 rr", "10.0.0.5:53")},
			late:   "ip route del local 10.96.0.99 dev lo table local proto 118 metric 1024",
		},
		{
			name:   "a virtual server without a local address",
			left:   func(m *memory) { delete(m.Local, web.Addr) },
			wanted: map[string]VirtualServer{"web": web, "mail": mail, "dns": vs("udp 10.96.0.3:53 rr", "10.0.0.5:53")},
			early:  "ip route add local 10.96.0.1 dev lo table local proto 118 metric 1024",
		},
		{
			name:   "an address that a new virtual server needs",
			left:   func(m *memory) { m.Local[netip.MustParseAddr("10.96.0.99")] = true },
			wanted: map[string]VirtualServer{"web": web, "mail": mail, "dns": vs("udp 10.96.0.3:53 rr", "10.0.0.5:53"), "new": vs("tcp 10.96.0.99:80 rr")},
			early:  "ipvsadm -A -t 10.96.0.99:80 -s rr",
		},
		{
			name:    "excluded now",
			wanted:  map[string]VirtualServer{"web": web, "mail": mail},
			exclude: []netip.Prefix{netip.MustParsePrefix("10.96.0.3/32")},
			late: `
				ip route del local 10.96.0.3 dev lo table local proto 118 metric 1024
				ipvsadm -D -u 10.96.0.3:53`,
		},
		{
			name:    "all excluded now, and other tools are in the range",
			left:    func(m *memory) { m.Local[netip.MustParseAddr("10.96.0.99")] = true },
			exclude: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24"), netip.MustParsePrefix("192.0.2.0/24")},
			late: `
				ip route del local 10.96.0.3 dev lo table local proto 118 metric 1024
				ip route del local 10.96.0.99 dev lo table local proto 118 metric 1024
				ipvsadm -D -u 10.96.0.3:53
				ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 0
				ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.2:8080 -m -w 0
				ipvsadm -e -t 10.96.0.2:25 -r 10.0.0.3:25 -m -w 0`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := leftovers(t)
			if tt.left != nil {
				tt.left(m)
			}
			e := openMemory(t, m, tt.exclude...)
			for name, v := range tt.wanted {
				mustSet(t, e, name, v)
			}
			added, err := e.Add(start())
			must(t, err)
			expect(t, "first Add", sortedLines(added.Operations), tt.early)
			ticked, err := e.Tick(start().Add(period))
			must(t, err)
			expect(t, "Tick before the first Remove", ticked.Operations.String(), "")
			removed, err := e.Remove(start())
			must(t, err)
			expect(t, "first Remove", sortedLines(removed.Operations), tt.late)
			if again := pass(t, e, start()); len(again) > 0 {
				t.Errorf("a further pass did:\n%s", again)
			}
			if !strings.Contains(picture(t, m), "10.96.0.1:443/tcp rr foreign 192.0.2.7:443=1\n") {
				t.Errorf("the engine changed a virtual server of another tool:\n%s", picture(t, m))
			}
		})
	}
}

// sortedLines sorts the operations, whose order depends on the order of a map.
func sortedLines(list Operations) string {
	lines := strings.Split(strings.TrimSpace(list.String()), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestTakeover checks that, when all drains are over, the kernel has what is wanted and what other tools made.
func TestTakeover(t *testing.T) {
	m := leftovers(t)
	m.Local[netip.MustParseAddr("10.96.0.99")] = true
	e := openMemory(t, m)
	mustSet(t, e, "web", web)
	mustSet(t, e, "new", vs("tcp 10.96.0.99:80 rr", "10.0.0.1:80"))
	pass(t, e, start())
	_, err := e.Tick(start().Add(period))
	must(t, err)
	expect(t, "kernel", picture(t, m), `
		10.96.0.1:443/tcp rr foreign 192.0.2.7:443=1
		10.96.0.1:80/tcp lc 10.0.0.1:8080=1 10.0.0.2:8080=1
		10.96.0.99:80/tcp rr 10.0.0.1:80=1
		192.0.2.1:443/tcp rr foreign 192.0.2.7:443=1
		local 10.96.0.1
		local 10.96.0.99`)
}

func TestOpenFailsWhenNothingCanBeRead(t *testing.T) {
	m := leftovers(t)
	m.readError = syscall.ENOBUFS
	if _, err := openEngine(Options{}, m); err == nil {
		t.Error("no error")
	}
}

// TestAddressOfAnEarlierProcessIsNeededElsewhere: one virtual server no longer needs its local address, and then
// another one does.
func TestAddressOfAnEarlierProcessIsNeededElsewhere(t *testing.T) {
	m := leftovers(t)
	e := openMemory(t, m)
	mustSet(t, e, "mail", with(mail, func(v *VirtualServer) { v.Local = false }))
	mustSet(t, e, "new", with(mail, func(v *VirtualServer) { v.Port = 26 }))
	pass(t, e, start())
	if !m.Local[mail.Addr] {
		t.Error("the address is not local")
	}
}

// TestOrphanAddressFails checks that Tick tries again to delete the route of an address that an earlier process left.
func TestOrphanAddressFails(t *testing.T) {
	m := newMemory()
	m.Local[web.Addr] = true
	e := openMemory(t, m)
	m.fail = func(Operation) error { return syscall.ENOMEM }
	if r, err := e.Remove(start()); err == nil || len(r.Failures) != 1 || r.Failures[0].Key.Addr != web.Addr {
		t.Errorf("failures %+v, error %v", r.Failures, err)
	}
	m.fail = nil
	r, err := e.Tick(start())
	must(t, err)
	wantAddrs(t, "released", r.Released, "[10.96.0.1]")
	expect(t, "kernel", picture(t, m), "")
}
