//go:build !nokernel

package nft

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// manyEndpoints are n endpoints of one address range.
func manyEndpoints(n int) []contents.Endpoint {
	var out []contents.Endpoint
	for i := range n {
		out = append(out, contents.Endpoint{Addr: netip.AddrPortFrom(numbered4or6(program.IPv4, 10, i), 80), Slots: 1})
	}
	return out
}

// TestLimits takes service ports beyond the limits of the program, in the kernel. Each is served by its new endpoints
// and without the old ones, and the port of another tenant changes as it likes.
func TestLimits(t *testing.T) {
	sticky := func(endpoints []contents.Endpoint) contents.Port {
		p := scalePort(program.IPv4, 1, 0)
		p.Cluster, p.Affinity = endpoints, time.Hour
		return p
	}
	tests := []struct {
		name          string
		before, after contents.Port
		want          string // the error
		chain         string // of the class that serves the port in the end; "": none
		served        int    // endpoints in the end
	}{
		{
			"one sticky endpoint too many", sticky(manyEndpoints(program.MaxOrdinals)), sticky(manyEndpoints(program.MaxOrdinals + 2)[1:]),
			"4097 endpoints are more than the 4096 that a service port with session affinity can have; " +
				"all of them are served, without affinity", "random-8192", program.MaxOrdinals + 1,
		},
		{
			"too many sticky endpoints in both pools together", sticky(manyEndpoints(program.MaxOrdinals)), func() contents.Port {
				p := sticky(manyEndpoints(program.MaxOrdinals - 2))
				p.Local = manyEndpoints(program.MaxOrdinals + 1)[program.MaxOrdinals-3:]
				return p
			}(), "4097 endpoints are more than the 4096", "random-4096", program.MaxOrdinals - 2,
		},
		{
			"another protocol, and too many endpoints", sticky(manyEndpoints(3)), func() contents.Port {
				p := sticky(manyEndpoints(program.MaxOrdinals + 1))
				p.Protocol = udp
				return p
			}(), "4097 endpoints are more than the 4096", "random-8192", program.MaxOrdinals + 1,
		},
		{
			"weights of too many slots", scalePort(program.IPv4, 1, 5), func() contents.Port {
				p := scalePort(program.IPv4, 1, 2)
				p.Cluster[0].Slots, p.Cluster[1].Slots = 65535, 2
				return p
			}(), "the weights of 2 endpoints need 65537 slots, more than the 65536 of a pool; all endpoints are served, " +
				"with the same weight", "random-2", 2,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNamespace(t)
			e := n.engine(t)
			mustSet(t, e, test.before, scalePort(program.IPv4, 0, 16))
			mustApply(t, e)
			err := e.Set(&test.after)
			if err == nil || !strings.Contains(err.Error(), "set service port scale/svc-1:http (ip): ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v; wanted: %s", err, test.want)
			}
			mustSet(t, e, scalePort(program.IPv4, 0, 17))
			mustApply(t, e)
			checkLedger(t, n, e)
			n.checkPool(t, "scale/svc-0:http", "random-32", scalePort(program.IPv4, 0, 17).Cluster, 17)
			n.checkPool(t, "scale/svc-1:http", test.chain, test.after.Cluster, test.served)
		})
	}
}

// checkPool checks that the kernel serves a cluster pool by a class, and with these endpoints.
func (n *namespace) checkPool(t *testing.T, name, chain string, endpoints []contents.Endpoint, want int) {
	t.Helper()
	l, err := inspect.List(kernel.Options{NetNS: n.Fd()}, func(is string) bool { return is == name })
	if err != nil || len(l.Frontends) == 0 {
		t.Fatalf("list %s: %d frontends, %v", name, len(l.Frontends), err)
	}
	served := map[netip.AddrPort]bool{}
	for _, s := range l.Frontends[0].Cluster {
		served[s.Addr] = true
	}
	wanted := 0
	for _, e := range endpoints {
		if served[e.Addr] {
			wanted++
		}
	}
	if wanted != want || len(served) != want {
		t.Errorf("%s: %d endpoints are served, %d of them wanted ones; want %d", name, len(served), wanted, want)
	}
	if listed := n.nft(t, "--terse", "list", "ruleset"); chain != "" && !strings.Contains(listed, "chain "+chain+" {") {
		t.Errorf("%s: there is no chain %s", name, chain)
	}
}

// checkLedger checks that the kernel has what the engine has in its ledger.
func checkLedger(t *testing.T, n *namespace, e *Engine) {
	t.Helper()
	fresh := newNamespace(t)
	fresh.load(t, e.render())
	compareListings(t, "the kernel differs from the ledger", n.list(t), fresh.list(t))
}

// TestTenantWithManyTimeouts: one tenant uses thousands of timeouts, with all kinds of draws. The plain port of another
// tenant gets all of its endpoints, and so does a port with the default timeout. In the end, everything is as if the
// first tenant had never been.
func TestTenantWithManyTimeouts(t *testing.T) {
	n := newNamespace(t)
	e := n.engine(t)
	other, sticky := scalePort(program.IPv4, 0, 16), scalePort(program.IPv4, 1, 16)
	sticky.Affinity = 3 * time.Hour
	mustSet(t, e, other, sticky)
	mustApply(t, e)
	const many = 4100
	for i := range many {
		p := scalePort(program.IPv4, 10+i, 1+i%2)
		p.Affinity, p.Method = time.Duration(1+i)*time.Second, program.Method(i%2)
		_ = e.Set(&p) // most of them meet the limit
		if i%100 == 0 {
			mustApply(t, e)
		}
	}
	mustApply(t, e)
	for _, set := range e.Elements() {
		if set.Set == program.Dispatch && set.Elements > 600 {
			t.Errorf("%d classes (%s)", set.Elements, set.Family)
		}
	}
	other, sticky = scalePort(program.IPv4, 0, 17), scalePort(program.IPv4, 1, 17)
	sticky.Affinity = 3 * time.Hour
	mustSet(t, e, other, sticky)
	if r := mustApply(t, e); r.Full || r.Added+r.Deleted > 200 {
		t.Errorf("the change of two ports of 17 endpoints needs %d elements, whole tables: %t", r.Added+r.Deleted, r.Full)
	}
	n.checkPool(t, other.Name, "random-32", other.Cluster, 17)
	n.checkPool(t, sticky.Name, "random-32-sticky-3h", sticky.Cluster, 17)
	for i := range many {
		e.Delete(program.IPv4, fmt.Sprintf("scale/svc-%d:http", 10+i))
		if i%100 == 0 {
			mustApply(t, e)
		}
	}
	if got := len(mustApply(t, e).Room); got > 0 {
		t.Errorf("%d ports are to be set again, but none is left", got)
	}
	checkLedger(t, n, e)
}
