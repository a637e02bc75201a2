package ipvsctl

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// TestSetRefuses has one row for each value that the kernel or moby/ipvs would accept and change.
func TestSetRefuses(t *testing.T) {
	good := vs("tcp 10.96.0.1:80 rr", "10.0.0.1:80")
	for _, tt := range []struct {
		name   string
		change func(*VirtualServer)
		reason string
	}{
		{"no address", func(v *VirtualServer) { v.Addr = netip.Addr{} }, "not an address"},
		{"unspecified", func(v *VirtualServer) { v.Addr = netip.IPv4Unspecified() }, "not an address"},
		{"with zone", func(v *VirtualServer) { v.Addr = netip.MustParseAddr("fe80::1%eth0") }, "not an address"},
		{"mapped", func(v *VirtualServer) { v.Addr = netip.MustParseAddr("::ffff:10.96.0.1") }, "not an address"},
		{"port 0 means all ports", func(v *VirtualServer) { v.Port = 0 }, "no port"},
		{"protocol", func(v *VirtualServer) { v.Protocol = 1 }, "does not balance"},
		{"no scheduler", func(v *VirtualServer) { v.Scheduler = "" }, "not the name of a scheduler"},
		{"long scheduler", func(v *VirtualServer) { v.Scheduler = strings.Repeat("x", 16) }, "not the name of a scheduler"},
		{"flags", func(v *VirtualServer) { v.Flags = 0x2 }, "unknown scheduler flags"},
		{"negative persistence", func(v *VirtualServer) { v.Persistence = -1 }, "is not in 0 to"},
		{"long persistence", func(v *VirtualServer) { v.Persistence = 1000 * time.Hour }, "is not in 0 to"},
		{"IPv6 behind IPv4", func(v *VirtualServer) { v.RealServers = []RealServer{parseReal("[fd00::1]:80")} }, "cannot be a real server"},
		{"IPv4 behind IPv6", func(v *VirtualServer) { v.Addr = netip.MustParseAddr("fd00::1") }, "cannot be a real server"},
		{"mapped behind IPv4", func(v *VirtualServer) { v.RealServers = []RealServer{parseReal("[::ffff:10.0.0.1]:80")} }, "cannot be a real server"},
		{"real server without port", func(v *VirtualServer) { v.RealServers = []RealServer{parseReal("10.0.0.1:0")} }, "cannot be a real server"},
		{"real server twice", func(v *VirtualServer) {
			v.RealServers = []RealServer{parseReal("10.0.0.1:80"), parseReal("10.0.0.2:80"), parseReal("10.0.0.1:80=2")}
		}, "given twice"},
		{"another port without NAT", func(v *VirtualServer) {
			v.RealServers = []RealServer{{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1, Forwarding: wire.Forwarding{Method: wire.ByRoute}}}
		}, "only NAT changes the port"},
		{"excluded", func(v *VirtualServer) { v.Addr = netip.MustParseAddr("192.0.2.9") }, "excluded range"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory()
			e := openMemory(t, m, netip.MustParsePrefix("192.0.2.0/24"))
			mustSet(t, e, "a", good)
			pass(t, e, start())
			before := picture(t, m)
			err := e.Set("a", []VirtualServer{good, with(good, func(v *VirtualServer) { v.Port = 81; tt.change(v) })})
			if err == nil || !strings.Contains(err.Error(), tt.reason) || !strings.Contains(err.Error(), "service port a") {
				t.Fatalf("error %v, want one about %q", err, tt.reason)
			}
			pass(t, e, start())
			expect(t, "after the refusal", picture(t, m), before)
		})
	}
}

func TestSetRefusesSameKeyTwice(t *testing.T) {
	e := openMemory(t, newMemory())
	if err := e.Set("a", []VirtualServer{vs("tcp 10.96.0.1:80 rr"), vs("tcp 10.96.0.1:80 lc")}); err == nil {
		t.Fatal("no error")
	}
}

func TestExcludedIsRecognizable(t *testing.T) {
	e := openMemory(t, newMemory(), netip.MustParsePrefix("10.96.0.0/12"))
	if err := e.Set("a", []VirtualServer{vs("tcp 10.96.0.1:80 rr")}); !errors.Is(err, ErrExcluded) {
		t.Errorf("error is %v", err)
	}
}

func TestParseFlags(t *testing.T) {
	for _, tt := range []struct {
		scheduler, list string
		want            wire.Flags
		text            string
		fails           bool
	}{
		{scheduler: "sh"},
		{scheduler: "rr", list: " , "},
		{scheduler: "sh", list: "sh-port", want: wire.HashPort, text: "sh-port"},
		{scheduler: "sh", list: " sh-fallback ", want: wire.Fallback, text: "sh-fallback"},
		{scheduler: "mh", list: "mh-port,mh-fallback", want: wire.HashPort | wire.Fallback, text: "mh-fallback,mh-port"},
		{scheduler: "mh", list: "flag-1, flag-2", want: wire.HashPort | wire.Fallback, text: "mh-fallback,mh-port"},
		{scheduler: "mh", list: "flag-3", fails: true},
		{scheduler: "rr", list: "flag-2", fails: true},
		{scheduler: "mh", list: "sh-port", fails: true},
		{scheduler: "rr", list: "sh-port", fails: true},
		{scheduler: "sh", list: "port", fails: true},
	} {
		t.Run(tt.scheduler+" "+tt.list, func(t *testing.T) {
			got, err := wire.ParseFlags(tt.scheduler, tt.list)
			if (err != nil) != tt.fails || got != tt.want {
				t.Fatalf("flags %#x, error %v", got, err)
			}
			if text := got.Text(tt.scheduler); text != tt.text {
				t.Errorf("printed as %q, want %q", text, tt.text)
			}
		})
	}
	if text := (wire.Fallback | wire.HashPort).Text("rr"); text != "flag-1,flag-2" {
		t.Errorf("flags that a scheduler does not name are printed as %q", text)
	}
}
