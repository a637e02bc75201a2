//go:build !nokernel

package nft

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// growing adds service ports of one family. Each batch fits in the socket buffer of an ordinary user.
func growing(t testing.TB, e *Engine, f Family, have, want, endpointsEach int) {
	t.Helper()
	const step = 250
	for ; have < want; have += step {
		for i := have; i < min(have+step, want); i++ {
			mustSet(t, e, scalePort(f, i, endpointsEach))
		}
		mustApply(t, e)
	}
}

// TestStructureStays counts the objects in the kernel at 10 and at 10,000 services. Only elements may be more.
func TestStructureStays(t *testing.T) {
	n := newNamespace(t)
	e := n.engine(t)
	count := func() map[string]int {
		out := map[string]int{}
		for line := range strings.Lines(n.nft(t, "--terse", "list", "ruleset")) {
			words := strings.Fields(line)
			switch {
			case len(words) == 3 && words[2] == "{":
				out[words[0]]++
			case len(words) > 0:
				out["lines"]++
			}
		}
		return out
	}
	growing(t, e, IPv4, 0, 10, 10)
	few := count()
	growing(t, e, IPv4, 10, 10000, 10)
	many := count()
	t.Logf("10 services: %v, 10,000 services: %v", few, many)
	if fmt.Sprint(few) != fmt.Sprint(many) {
		t.Fatalf("10 services: %v, 10,000 services: %v", few, many)
	}

	p := scalePort(IPv4, 5000, 10)
	p.Cluster = append(p.Cluster[:3:3], p.Cluster[4:]...)
	mustSet(t, e, p)
	text := e.tx.String()
	r := mustApply(t, e)
	t.Logf("one of 10 endpoints removed at 10,000 services: %d elements added, %d deleted, %d bytes, %v in the kernel:\n%s",
		r.Added, r.Deleted, r.Bytes, r.Kernel, text)
	if r.Full || r.Added+r.Deleted > 10*len(p.Frontends) {
		t.Fatalf("%d element operations", r.Added+r.Deleted)
	}
	if r := mustApply(t, e); r.Bytes != 0 {
		t.Fatalf("%d bytes were sent although nothing had changed", r.Bytes)
	}
}

// TestLimits goes beyond the limits of the program. Set refuses the service port at fault, and the others stay.
func TestLimits(t *testing.T) {
	many := func(n int) []Endpoint {
		var out []Endpoint
		for i := range n {
			out = append(out, Endpoint{Addr: netip.AddrPortFrom(numbered4or6(IPv4, 10, i), 80)})
		}
		return out
	}
	tests := []struct {
		name string
		do   func(*testing.T, *Engine) error
		want string
	}{
		{"slots", func(t *testing.T, e *Engine) error {
			p := scalePort(IPv4, 1, 2)
			p.Cluster[0].Slots, p.Cluster[1].Slots = 65535, 2
			return e.Set(&p)
		}, "service port scale/svc-1:http (ip): 65537 slots are more than the 65536"},
		{"sticky endpoints", func(t *testing.T, e *Engine) error {
			p := scalePort(IPv4, 1, 0)
			p.Cluster, p.Affinity = many(maxOrdinals+1), time.Hour
			return e.Set(&p)
		}, "4097 endpoints are more than the 4096"},
		{"sticky endpoints of both pools together", func(t *testing.T, e *Engine) error {
			p := scalePort(IPv4, 1, 0)
			p.Cluster, p.Affinity = many(maxOrdinals), time.Hour
			mustSet(t, e, p)
			mustApply(t, e)
			p.Cluster, p.Local = p.Cluster[:maxOrdinals-2], many(maxOrdinals + 1)[maxOrdinals-3:]
			return e.Set(&p)
		}, "4097 endpoints are more than the 4096"},
		{"another protocol, and too many endpoints", func(t *testing.T, e *Engine) error {
			p := scalePort(IPv4, 3, 1)
			mustSet(t, e, p)
			mustApply(t, e)
			p.Protocol, p.Cluster, p.Affinity = udp, many(maxOrdinals+1), time.Hour
			return e.Set(&p)
		}, "4097 endpoints are more than the 4096"},
		{"service ports", func(t *testing.T, e *Engine) error {
			for i := range uint32(maxPorts) {
				e.tables[0].numbers.claim(i)
			}
			p := scalePort(IPv4, 1, 1)
			return e.Set(&p)
		}, "all 524287 service port numbers of the family are in use"},
		{"classes", func(t *testing.T, e *Engine) error {
			for timeout := time.Second; ; timeout += time.Second {
				p := scalePort(IPv4, 100+int(timeout/time.Second), 1)
				p.Affinity = timeout
				if err := e.Set(&p); err != nil || timeout > 5000*time.Second {
					return err
				}
				if timeout%(100*time.Second) == 0 {
					mustApply(t, e) // one batch with all of them would be too large for the socket
				}
			}
		}, "all 4095 classes are in use"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNamespace(t)
			e := n.engine(t)
			mustSet(t, e, scalePort(IPv4, 0, 3))
			mustApply(t, e)
			err := test.do(t, e)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v; wanted: %s", err, test.want)
			}
			mustSet(t, e, scalePort(IPv6, 2, 3))
			mustApply(t, e)
			listed := n.list(t)
			if !strings.Contains(listed, "svc-0:http") || !strings.Contains(listed, "svc-2:http") {
				t.Fatal("other service ports are gone")
			}
			if strings.Contains(listed, "svc-3:http") {
				t.Fatal("the port is still served with its old protocol")
			}
		})
	}
}

// TestManyEndpoints changes one of 5,000 endpoints of a service port.
func TestManyEndpoints(t *testing.T) {
	e := newNamespace(t).engine(t)
	p := scalePort(IPv4, 0, 5000)
	mustSet(t, e, p)
	mustApply(t, e)
	p.Cluster[2500].Addr = netip.MustParseAddrPort("10.200.0.1:80")
	sortEndpoints(p.Cluster)
	mustSet(t, e, p)
	r := mustApply(t, e)
	t.Logf("%v in the kernel", r.Kernel)
	if r.Added != 1 || r.Deleted != 1 {
		t.Fatalf("%d elements added, %d deleted; wanted one of each", r.Added, r.Deleted)
	}
}
