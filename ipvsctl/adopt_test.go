package ipvsctl

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// ofKubeProxy is a kernel with virtual servers of kube-proxy, and with one of another tool. All have connections.
func ofKubeProxy() (m *memory, places map[netip.Addr]bool) {
	m = newMemory()
	m.foreign(parseKey("tcp 10.96.0.1:80"), "rr", "10.0.0.1:8080", "10.0.0.2:8080=0")
	m.foreign(parseKey("udp 10.96.0.3:53"), "rr", "10.0.0.5:53")
	m.foreign(parseKey("tcp 192.0.2.10:30080"), "rr", "10.0.0.1:8080")
	m.foreign(parseKey("tcp 192.0.2.99:443"), "rr", "192.0.2.7:443")
	for _, s := range m.State {
		for _, r := range s.Reals {
			r.Active = 1
		}
	}
	return m, map[netip.Addr]bool{
		netip.MustParseAddr("10.96.0.1"): true, netip.MustParseAddr("10.96.0.3"): true, netip.MustParseAddr("192.0.2.10"): false,
	}
}

func mustAdopt(t *testing.T, m *memory, places map[netip.Addr]bool, want int) {
	t.Helper()
	n, err := adoptServers(m, Options{}, places)
	if must(t, err); n != want {
		t.Errorf("%d were adopted, want %d", n, want)
	}
}

// TestAdopt: virtual servers of kube-proxy keep their connections for as long as these last, in all protocols and over a
// restart. Then they go, with their addresses. What another tool has stays.
func TestAdopt(t *testing.T) {
	m, places := ofKubeProxy()
	mustAdopt(t, m, places, 3)
	mustAdopt(t, m, places, 0)
	expect(t, "addresses", strings.Join(addressesOf(m), " "), "10.96.0.1 10.96.0.3")
	if e := openMemory(t, m); len(e.Adopted()) != 3 {
		t.Errorf("adopted are %v", e.Adopted())
	}
	for range 2 { // the second one is a restart
		e := openMemory(t, m)
		pass(t, e, start())
		_, err := e.Tick(start().Add(1000 * period))
		must(t, err)
		for key, want := range map[string]uint16{"tcp 10.96.0.1:80": 0, "udp 10.96.0.3:53": 0, "tcp 192.0.2.10:30080": 0, "tcp 192.0.2.99:443": 1} {
			for addr, r := range m.State[parseKey(key)].Reals {
				if r.Weight != want {
					t.Errorf("%s %s has weight %d, want %d", key, addr, r.Weight, want)
				}
			}
		}
	}
	e := openMemory(t, m)
	pass(t, e, start())
	for _, s := range m.State {
		for _, r := range s.Reals {
			r.Active = 0
		}
	}
	_, err := e.Tick(start().Add(time.Minute))
	must(t, err)
	expect(t, "left", picture(t, m), "192.0.2.99:443/tcp rr foreign 192.0.2.7:443=1")
}

func addressesOf(m *memory) (list []string) {
	for _, a := range []string{"10.96.0.1", "10.96.0.3", "192.0.2.10", "192.0.2.99"} {
		if m.Local[netip.MustParseAddr(a)] {
			list = append(list, a)
		}
	}
	return list
}

// TestAdoptExcluded: what is in an excluded range is not kube-proxy's.
func TestAdoptExcluded(t *testing.T) {
	m, places := ofKubeProxy()
	n, err := adoptServers(m, Options{Exclude: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}}, places)
	if must(t, err); n != 1 || len(addressesOf(m)) != 0 {
		t.Errorf("%d were adopted, with the addresses %v", n, addressesOf(m))
	}
}

// TestAdoptedAndWanted: a virtual server that Verdict serves as well keeps its real servers, and is one of its own from
// then on.
func TestAdoptedAndWanted(t *testing.T) {
	m, places := ofKubeProxy()
	mustAdopt(t, m, places, 3)
	e := openMemory(t, m)
	mustSet(t, e, "web", vs("tcp 10.96.0.1:80 rr", "10.0.0.1:8080", "10.0.0.2:8080"))
	added, err := e.Add(start())
	must(t, err)
	expect(t, "operations", added.Operations.String(), `
		ipvsadm -E -t 10.96.0.1:80 -s rr
		ipvsadm -e -t 10.96.0.1:80 -r 10.0.0.2:8080 -m -w 1`)
	_, err = e.Remove(start())
	must(t, err)
	e.Delete("web")
	pass(t, e, start())
	_, err = e.Tick(start().Add(period))
	must(t, err)
	if m.State[parseKey("tcp 10.96.0.1:80")] != nil {
		t.Error("it outlives the graceful period")
	}
}

// TestHandOver: after it, Cleanup leaves the virtual servers, and takes its own addresses.
func TestHandOver(t *testing.T) {
	m := newMemory()
	e := openMemory(t, m)
	mustSet(t, e, "web", web)
	mustSet(t, e, "mail", mail)
	pass(t, e, start())
	n, err := handOver(m, map[netip.Addr]bool{web.Addr: true})
	if must(t, err); n != 1 {
		t.Errorf("%d were handed over", n)
	}
	e, err = openEngine(Options{}, m) // as Cleanup does
	must(t, err)
	_, err = e.Remove(start())
	must(t, err)
	expect(t, "left", picture(t, m), "10.96.0.1:80/tcp lc foreign 10.0.0.1:8080=1 10.0.0.2:8080=1")
}
