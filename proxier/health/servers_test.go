package health

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

var (
	loopback4 = netip.MustParseAddr("127.0.0.1")
	loopback6 = netip.MustParseAddr("::1")
)

type checks = map[state.Name]plan.HealthCheck

func name(n string) state.Name { return state.Name{Namespace: "shop", Name: n} }

func check(port uint16, ipv4, ipv6 int) plan.HealthCheck {
	return plan.HealthCheck{NodePort: port, LocalIPv4: ipv4, LocalIPv6: ipv6}
}

// lastPort is the port that freePorts looked at last. Two runs begin at different ones.
var lastPort = 20_000 + os.Getpid()%8000

// freePorts finds n different ports that are free on all addresses of both families. They are below those that the kernel
// hands out, so that no connection of another test takes one before a server listens.
func freePorts(t *testing.T, n int) (ports []uint16) {
	t.Helper()
	for len(ports) < n {
		if lastPort++; lastPort >= 32_768 {
			t.Fatal("too few ports are free on both 0.0.0.0 and [::]; these tests need IPv4 and IPv6 on the loopback interface")
		}
		if isFree(t, "tcp4", netip.IPv4Unspecified()) && isFree(t, "tcp6", netip.IPv6Unspecified()) {
			ports = append(ports, uint16(lastPort))
		}
	}
	return ports
}

// isFree reports whether somebody can listen at the last port.
func isFree(t *testing.T, network string, addr netip.Addr) bool {
	t.Helper()
	l, err := net.Listen(network, netip.AddrPortFrom(addr, uint16(lastPort)).String())
	if err != nil {
		return false
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return true
}

func newTestServers(t *testing.T, edit func(*ServersOptions)) (*Servers, *atomic.Bool) {
	var healthy atomic.Bool
	healthy.Store(true)
	o := ServersOptions{Healthy: healthy.Load, Log: slog.New(slog.DiscardHandler)}
	if edit != nil {
		edit(&o)
	}
	s := NewServers(o)
	t.Cleanup(s.Close)
	return s, &healthy
}

func sync1(t *testing.T, s *Servers, want checks, addrs ...netip.Addr) {
	t.Helper()
	if failed := s.Sync(want, addrs); len(failed) > 0 {
		t.Fatal(failed)
	}
}

// get sends a request to a server. It returns nil if no server listens.
func get(t *testing.T, addr netip.Addr, port uint16) (*http.Response, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + netip.AddrPortFrom(addr, port).String() + "/any/path")
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(body)
}

func code(t *testing.T, addr netip.Addr, port uint16) int {
	t.Helper()
	if r, _ := get(t, addr, port); r != nil {
		return r.StatusCode
	}
	return 0
}

func expect(t *testing.T, what string, addr netip.Addr, port uint16, want int) {
	t.Helper()
	if got := code(t, addr, port); got != want {
		t.Errorf("%s: %v port %d answers %d, want %d (0: refused)", what, addr, port, got, want)
	}
}

// TestLeaving: on a node that is about to go, a Service answers as if the node had no endpoint, if another node has one in the family
// of the address. Otherwise all targets of a load balancer would fail at once.
func TestLeaving(t *testing.T) {
	s, _ := newTestServers(t, nil)
	ports := freePorts(t, 2)
	only, both := check(ports[0], 2, 2), check(ports[1], 2, 2)
	both.ElsewhereIPv4 = true
	want := checks{name("only"): only, name("both"): both}
	sync1(t, s, want, loopback4, loopback6)
	s.SetLeaving(true)
	expect(t, "leaving, and no other node has an endpoint", loopback4, ports[0], 200)
	expect(t, "leaving, and another node has one", loopback4, ports[1], 503)
	expect(t, "leaving, and another node has one in the other family", loopback6, ports[1], 200)
	r, body := get(t, loopback4, ports[1])
	if r.Header.Get("X-Load-Balancing-Endpoint-Weight") != "0" || !strings.Contains(body, `"localEndpoints": 0`) {
		t.Errorf("leaving: %v %s", r.Header, body)
	}
	both.ElsewhereIPv4, only.ElsewhereIPv4 = false, true
	sync1(t, s, checks{name("only"): only, name("both"): both}, loopback4, loopback6)
	expect(t, "leaving, and another node got an endpoint", loopback4, ports[0], 503)
	expect(t, "leaving, and the endpoint of the other node is gone", loopback4, ports[1], 200)
	s.SetLeaving(false)
	expect(t, "the node stays", loopback4, ports[0], 200)
}

func TestAnswer(t *testing.T) {
	s, healthy := newTestServers(t, nil)
	port := freePorts(t, 1)[0]
	tests := []struct {
		name      string
		endpoints int
		healthy   bool
		code      int
		body      string
	}{
		{"endpoints", 3, true, 200, "{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n" +
			"\t\"localEndpoints\": 3,\n\t\"serviceProxyHealthy\": true\n}"},
		{"no endpoints", 0, true, 503, "{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n" +
			"\t\"localEndpoints\": 0,\n\t\"serviceProxyHealthy\": true\n}"},
		{"endpoints, but the proxy does not work", 2, false, 503, "{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n" +
			"\t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": false\n}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			healthy.Store(tt.healthy)
			sync1(t, s, checks{name("web"): check(port, tt.endpoints, 0)}, loopback4)
			r, body := get(t, loopback4, port)
			if r == nil {
				t.Fatal("connection refused")
			}
			if r.StatusCode != tt.code || body != tt.body {
				t.Errorf("%d %s\nwant %d %s", r.StatusCode, body, tt.code, tt.body)
			}
			weight := string(rune('0' + tt.endpoints))
			for header, want := range map[string]string{
				"Content-Type": "application/json", "X-Content-Type-Options": "nosniff", "X-Load-Balancing-Endpoint-Weight": weight,
			} {
				if got := r.Header.Get(header); got != want {
					t.Errorf("%s: %q, want %q", header, got, want)
				}
			}
		})
	}
}

// TestFamilies: each family answers for its own endpoints, also on the addresses that stand for all addresses.
func TestFamilies(t *testing.T) {
	for what, addrs := range map[string][]netip.Addr{
		"single addresses": {loopback4, loopback6},
		"all addresses":    {netip.IPv4Unspecified(), netip.IPv6Unspecified()},
	} {
		s, _ := newTestServers(t, nil)
		port := freePorts(t, 1)[0]
		sync1(t, s, checks{name("web"): check(port, 0, 1)}, addrs...)
		expect(t, what, loopback4, port, 503)
		expect(t, what, loopback6, port, 200)
		sync1(t, s, checks{name("web"): check(port, 2, 0)}, addrs...)
		expect(t, what, loopback4, port, 200)
		expect(t, what, loopback6, port, 503)
		s.Close()
	}
}

func TestSync(t *testing.T) {
	s, _ := newTestServers(t, nil)
	ports := freePorts(t, 3)
	a, b, c := ports[0], ports[1], ports[2]
	both := []netip.Addr{loopback4, loopback6}
	sync1(t, s, checks{name("a"): check(a, 1, 1), name("b"): check(b, 1, 1)}, both...)
	expect(t, "two Services", loopback4, a, 200)
	expect(t, "two Services", loopback6, b, 200)

	sync1(t, s, checks{name("a"): check(a, 1, 1), name("b"): check(c, 1, 1)}, both...)
	expect(t, "a port moved", loopback4, b, 0)
	expect(t, "a port moved", loopback4, c, 200)

	sync1(t, s, checks{name("a"): check(c, 1, 1), name("b"): check(a, 0, 0)}, both...)
	expect(t, "ports exchanged", loopback4, c, 200)
	expect(t, "ports exchanged", loopback6, a, 503)

	sync1(t, s, checks{name("a"): check(c, 1, 1)}, loopback6)
	expect(t, "a Service and an address went", loopback4, c, 0)
	expect(t, "a Service and an address went", loopback6, c, 200)
	expect(t, "a Service and an address went", loopback6, a, 0)

	sync1(t, s, checks{name("a"): check(c, 1, 1)}, both...)
	expect(t, "the address came back", loopback4, c, 200)

	s.Close()
	expect(t, "closed", loopback4, c, 0)
	expect(t, "closed", loopback6, c, 0)
}

// TestSyncKeepsListeners: a change of counts must not interrupt the connections of load balancers.
func TestSyncKeepsListeners(t *testing.T) {
	listens := 0
	s, _ := newTestServers(t, func(o *ServersOptions) {
		o.Listen = func(network, address string) (net.Listener, error) {
			listens++
			return net.Listen(network, address)
		}
	})
	port := freePorts(t, 1)[0]
	for n := range 5 {
		sync1(t, s, checks{name("web"): check(port, n, 0)}, loopback4)
	}
	if listens != 1 {
		t.Errorf("listened %d times, want once", listens)
	}
}

// TestPortTaken: a server that cannot listen is reported and tried again. The other servers still start.
func TestPortTaken(t *testing.T) {
	s, _ := newTestServers(t, nil)
	ports := freePorts(t, 2)
	taken, free := ports[0], ports[1]
	l, err := net.Listen("tcp4", netip.AddrPortFrom(loopback4, taken).String())
	if err != nil {
		t.Fatal(err)
	}
	want := checks{name("a"): check(taken, 1, 1), name("b"): check(free, 1, 1)}
	failed := s.Sync(want, []netip.Addr{loopback4, loopback6})
	if len(failed) != 1 || !errors.Is(failed[name("a")], syscall.EADDRINUSE) {
		t.Errorf("failed: %v, want shop/a with address in use", failed)
	}
	if text := failed[name("a")].Error(); !strings.Contains(text, "shop/a") || !strings.Contains(text, "127.0.0.1:") {
		t.Errorf("the error does not say what failed: %s", text)
	}
	expect(t, "the same Service on another address", loopback6, taken, 200)
	expect(t, "another Service", loopback4, free, 200)

	l.Close()
	sync1(t, s, want, loopback4, loopback6)
	expect(t, "tried again", loopback4, taken, 200)
}

// endedListener fails when the test closes the channel.
type endedListener struct {
	net.Listener
	broken chan struct{}
}

func (l *endedListener) Accept() (net.Conn, error) {
	<-l.broken
	return nil, errors.New("listener broke")
}

func (l *endedListener) Close() error { return nil }

// TestServerEnds: a server that stops by itself is started again at the next Sync.
func TestServerEnds(t *testing.T) {
	var mu sync.Mutex
	first := &endedListener{broken: make(chan struct{})}
	listens := 0
	s, _ := newTestServers(t, func(o *ServersOptions) {
		o.Listen = func(network, address string) (net.Listener, error) {
			mu.Lock()
			defer mu.Unlock()
			if listens++; listens == 1 {
				return first, nil
			}
			return net.Listen(network, address)
		}
	})
	port := freePorts(t, 1)[0]
	want := checks{name("web"): check(port, 1, 0)}
	sync1(t, s, want, loopback4)
	close(first.broken)
	s.serving.Wait()
	sync1(t, s, want, loopback4)
	expect(t, "started again", loopback4, port, 200)
}
