package ipvsctl

import (
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// TestDiff has one row for each way in which a virtual server can differ from what is wanted.
func TestDiff(t *testing.T) {
	plain := vs("tcp 10.96.0.1:80 rr", "10.0.0.1:8080", "10.0.0.2:8080")
	udp := vs("udp 10.96.0.1:53 rr", "10.0.0.1:53", "10.0.0.2:53")
	for _, tt := range []struct {
		name string
		has  *VirtualServer // nil: nothing
		want *VirtualServer
		hard bool // not graceful
		ops  string
	}{
		{name: "nothing to nothing"},
		{name: "new", want: &plain, ops: `
			ipvsadm -A -t 10.96.0.1:80 -s rr
			ipvsadm -a -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 1
			ipvsadm -a -t 10.96.0.1:80 -r 10.0.0.2:8080 -m -w 1`},
		{name: "same", has: &plain, want: &plain},
		{name: "new without real servers", want: ref(vs("tcp 10.96.0.1:80 lc")), ops: "ipvsadm -A -t 10.96.0.1:80 -s lc"},
		{name: "IPv6", want: ref(vs("tcp [fd00::1]:80 wlc", "[fd01::1]:8080=65535")), ops: `
			ipvsadm -A -t [fd00::1]:80 -s wlc
			ipvsadm -a -t [fd00::1]:80 -r [fd01::1]:8080 -m -w 65535`},
		{name: "SCTP", want: ref(vs("sctp 10.96.0.1:80 rr", "10.0.0.1:8080")), ops: `
			ipvsadm -A --sctp-service 10.96.0.1:80 -s rr
			ipvsadm -a --sctp-service 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 1`},
		{name: "scheduler changed", has: &plain, want: ref(with(plain, func(v *VirtualServer) { v.Scheduler = "lc" })),
			ops: "ipvsadm -E -t 10.96.0.1:80 -s lc"},
		{name: "persistence set", has: &plain, want: ref(with(plain, func(v *VirtualServer) { v.Persistence = 3 * time.Hour })),
			ops: "ipvsadm -E -t 10.96.0.1:80 -s rr -p 10800"},
		{name: "persistence is rounded up", has: &plain, want: ref(with(plain, func(v *VirtualServer) { v.Persistence = time.Millisecond })),
			ops: "ipvsadm -E -t 10.96.0.1:80 -s rr -p 1"},
		{name: "persistence unset", has: ref(with(plain, func(v *VirtualServer) { v.Persistence = time.Hour })), want: &plain,
			ops: "ipvsadm -E -t 10.96.0.1:80 -s rr"},
		{name: "flags of sh", has: &plain, want: ref(with(plain, func(v *VirtualServer) { v.Scheduler, v.Flags = "sh", wire.HashPort })),
			ops: "ipvsadm -E -t 10.96.0.1:80 -s sh -b sh-fallback,sh-port"},
		{name: "flags of mh", has: &plain, want: ref(with(plain, func(v *VirtualServer) { v.Scheduler, v.Flags = "mh", wire.HashPort|wire.Fallback })),
			ops: "ipvsadm -E -t 10.96.0.1:80 -s mh -b mh-fallback,mh-port"},
		{name: "dh cannot drain", has: ref(with(plain, func(v *VirtualServer) { v.Scheduler = "dh" })), want: ref(vs("tcp 10.96.0.1:80 dh", "10.0.0.2:8080")),
			ops: "ipvsadm -d -t 10.96.0.1:80 -r 10.0.0.1:8080"},
		{name: "becomes dh while a real server drains", has: ref(vs("tcp 10.96.0.1:80 rr", "10.0.0.1:8080=0", "10.0.0.2:8080")), want: ref(vs("tcp 10.96.0.1:80 dh", "10.0.0.2:8080")), ops: `
			ipvsadm -E -t 10.96.0.1:80 -s dh
			ipvsadm -d -t 10.96.0.1:80 -r 10.0.0.1:8080`},
		{name: "weight changed", has: &plain, want: ref(vs("tcp 10.96.0.1:80 rr", "10.0.0.1:8080", "10.0.0.2:8080=7")),
			ops: "ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.2:8080 -m -w 7"},
		{name: "weight 0 wanted", has: &plain, want: ref(vs("tcp 10.96.0.1:80 rr", "10.0.0.1:8080=0", "10.0.0.2:8080")),
			ops: "ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 0"},
		{name: "first replaced: added before drained", has: &plain, want: ref(vs("tcp 10.96.0.1:80 rr", "10.0.0.2:8080", "10.0.0.3:8080")), ops: `
			ipvsadm -a -t 10.96.0.1:80 -r 10.0.0.3:8080 -m -w 1
			ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 0`},
		{name: "added as the first", has: ref(vs("tcp 10.96.0.1:80 rr", "10.0.0.2:8080")), want: &plain,
			ops: "ipvsadm -a -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 1"},
		{name: "ports differ", has: ref(vs("tcp 10.96.0.1:80 rr", "10.0.0.1:80")), want: ref(vs("tcp 10.96.0.1:80 rr", "10.0.0.1:81")), ops: `
			ipvsadm -a -t 10.96.0.1:80 -r 10.0.0.1:81 -m -w 1
			ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.1:80 -m -w 0`},
		{name: "all drained", has: &plain, want: ref(vs("tcp 10.96.0.1:80 rr")), ops: `
			ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 0
			ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.2:8080 -m -w 0`},
		{name: "draining already", has: ref(vs("tcp 10.96.0.1:80 rr", "10.0.0.1:8080=0")), want: ref(vs("tcp 10.96.0.1:80 rr"))},
		{name: "taken out of drain", has: ref(vs("tcp 10.96.0.1:80 rr", "10.0.0.1:8080=0")), want: ref(vs("tcp 10.96.0.1:80 rr", "10.0.0.1:8080=3")),
			ops: "ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 3"},
		{name: "without graceful period", has: &plain, want: ref(vs("tcp 10.96.0.1:80 rr", "10.0.0.2:8080")), hard: true,
			ops: "ipvsadm -d -t 10.96.0.1:80 -r 10.0.0.1:8080"},
		{name: "UDP at once", has: &udp, want: ref(vs("udp 10.96.0.1:53 rr", "10.0.0.2:53")),
			ops: "ipvsadm -d -u 10.96.0.1:53 -r 10.0.0.1:53"},
		{name: "removed: drained first", has: &plain, ops: `
			ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 0
			ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.2:8080 -m -w 0`},
		{name: "removed, half drained", has: ref(vs("tcp 10.96.0.1:80 rr", "10.0.0.1:8080=0", "10.0.0.2:8080")),
			ops: "ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.2:8080 -m -w 0"},
		{name: "removed, without real servers", has: ref(vs("tcp 10.96.0.1:80 rr")), ops: "ipvsadm -D -t 10.96.0.1:80"},
		{name: "removed, without graceful period", has: &plain, hard: true, ops: "ipvsadm -D -t 10.96.0.1:80"},
		{name: "UDP removed", has: &udp, ops: "ipvsadm -D -u 10.96.0.1:53"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			has := appliedFrom(tt.has)
			var ops Operations
			if tt.want == nil {
				ops = removals(&has, orNothing(tt.has), !tt.hard)
			} else {
				ops = additions(&has, tt.want, !tt.hard)
			}
			expect(t, "operations", ops.String(), tt.ops)
			expectSettled(t, &has, ops, tt.want, !tt.hard)
		})
	}
}

// expectSettled checks that there is nothing to do after the operations.
func expectSettled(t *testing.T, has *applied, ops Operations, want *VirtualServer, graceful bool) {
	t.Helper()
	for _, o := range ops {
		has.record(o)
	}
	var again Operations
	if want == nil {
		again = removals(has, &VirtualServer{}, graceful)
	} else {
		again = additions(has, want, graceful)
	}
	if len(again) > 0 {
		t.Errorf("a second difference is not empty:\n%s", again)
	}
}

func ref(v VirtualServer) *VirtualServer { return &v }

func orNothing(v *VirtualServer) *VirtualServer {
	if v == nil {
		return &VirtualServer{}
	}
	return v
}

// appliedFrom returns the kernel's state after v was made from nothing.
func appliedFrom(v *VirtualServer) applied {
	var a applied
	if v != nil {
		for _, o := range additions(&a, v, true) {
			a.record(o)
		}
	}
	return a
}
