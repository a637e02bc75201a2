//go:build e2e

package flood

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/ipv4"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

// farmRange are the addresses of a namespace that has all of them: endpoints by the thousand.
var farmRange = netip.MustParsePrefix("10.50.0.0/15")

// The ports of a farm.
const (
	goodPort   = 8080
	brokenPort = 8081 // HTTP status 500
	closedPort = 8082 // refuses connections
	silentPort = 8083 // drops packets
	flapPort   = 8084 // good in each second second
	othersPort = 8085 // good; the farm notes when it is asked
	securePort = 8443
	dnsPort    = 53
)

// farm has what a farm was asked at othersPort.
type farm struct {
	mu    sync.Mutex
	asked []time.Time
}

// newFarm makes a farm that only the node reaches.
func (b *bed) newFarm(t testing.TB) *farm {
	t.Helper()
	at, gateway, err := b.Attach("farm")
	if err == nil {
		err = at.Own(farmRange)
	}
	if err == nil {
		err = b.Node.AddRoute(netns.Route{To: farmRange, Gateway: gateway})
	}
	lab.Must(t, err)
	at.Must(t, fmt.Sprintf("table inet silent { chain in { type filter hook input priority 0; th dport %d drop; }; }", silentPort), "nft", "-f", "-")
	f := &farm{}
	status := func(code func() int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code()) }
	}
	for port, h := range map[int]http.HandlerFunc{
		goodPort:   status(func() int { return http.StatusOK }),
		securePort: status(func() int { return http.StatusOK }),
		brokenPort: status(func() int { return http.StatusInternalServerError }),
		flapPort:   status(func() int { return http.StatusOK + 300*(time.Now().Second()%2) }),
		othersPort: status(func() int { f.note(); return http.StatusOK }),
	} {
		at.MustDo(t, func() error { return serveWeb(t, port, h) })
	}
	at.MustDo(t, func() error { return serveDNS(t) })
	return f
}

func serveWeb(t testing.TB, port int, h http.Handler) error {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{Port: port})
	if err != nil {
		return err
	}
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close() // the one that httptest made
	s.Listener = l
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // checks end connections as they like
	if port == securePort {
		s.TLS = &tls.Config{}
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return nil
}

// serveDNS answers every question with no records, from the address that was asked.
func serveDNS(t testing.TB) error {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{Port: dnsPort})
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = conn.Close() })
	p := ipv4.NewPacketConn(conn)
	if err := p.SetControlMessage(ipv4.FlagDst, true); err != nil {
		return err
	}
	go func() {
		buf := make([]byte, 512)
		for {
			n, c, from, err := p.ReadFrom(buf)
			if err != nil {
				return // closed
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil {
				continue
			}
			m.Response = true
			if reply, err := m.Pack(); err == nil {
				_, _ = p.WriteTo(reply, &ipv4.ControlMessage{Src: c.Dst}, from) // who misses it asks again
			}
		}
	}()
	return nil
}

func (f *farm) note() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, time.Now())
}

// pauses returns the times between questions since a moment.
func (f *farm) pauses(since time.Time) (list []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, at := range f.asked {
		if i > 0 && f.asked[i-1].After(since) {
			list = append(list, at.Sub(f.asked[i-1]))
		}
	}
	return list
}

// checked is a Service of the tenant with a check, and its slice of n endpoints.
func checked(i int, check string, port uint16, n int) []object {
	name := fmt.Sprintf("checked-%d", i)
	svc := service("tenant", name, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 1, byte(i)}), 80), false)
	svc.Annotations = map[string]string{"verdict-proxy.github.io/health-check": check}
	return []object{svc, farmSlice("tenant", name, name, 4*i, port, n)}
}

// farmSlice is a slice with n endpoints of a farm, from the address 10.50.FIRST.0 on.
func farmSlice(namespace, service, name string, first int, port uint16, n int) *discoveryv1.EndpointSlice {
	o := slice(namespace, service, netip.AddrPortFrom(farmRange.Addr(), port))
	o.Name, o.Endpoints = name, nil
	o.Ports = o.Ports[:1]
	if port == dnsPort {
		o.Ports[0].Name, o.Ports[0].Protocol = ptr.To("udp"), ptr.To(corev1.ProtocolUDP)
	}
	for j := range n {
		k := first<<8 + j
		addr := netip.AddrFrom4([4]byte{10, 50 + byte(k>>16), byte(k >> 8), byte(k)})
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr.String()}, NodeName: ptr.To(lab.RemoteNodeName)})
	}
	return o
}

// mixedChecks are 10 Services of the tenant with n endpoints each, whose checks end in every way.
func mixedChecks(n int) (list []object) {
	for i, c := range []struct {
		check string
		port  uint16
	}{
		{"http", goodPort}, {"http", brokenPort}, {"http", closedPort}, {"http", silentPort}, {"http rise=1 fall=1", flapPort},
		{"https", securePort}, {"https", silentPort}, {"tcp", goodPort}, {"dns", dnsPort}, {"dns port=" + strconv.Itoa(silentPort), dnsPort},
	} {
		list = append(list, checked(i, c.check+" interval=1s", c.port, n)...)
	}
	return list
}

// others is a Service of another tenant with a check of one endpoint.
func others() []object {
	svc := service("shop", "checked", netip.MustParseAddrPort("10.96.0.16:80"), false)
	svc.Annotations = map[string]string{"verdict-proxy.github.io/health-check": "http interval=1s"}
	return []object{svc, farmSlice("shop", "checked", "checked", 250, othersPort, 1)}
}

// farmFlows counts the flows between the node and the farm.
func (b *bed) farmFlows(t testing.TB) (n int) {
	t.Helper()
	list, err := b.Node.Flows(lab.IPv4)
	lab.Must(t, err)
	for _, f := range list {
		if farmRange.Contains(f.To.Addr()) || farmRange.Contains(f.From.Addr()) {
			n++
		}
	}
	return n
}

// mostFlows counts how many flows the node's table of connections has at most, until the end of a function.
func (b *bed) mostFlows(t testing.TB, during func()) (most int) {
	t.Helper()
	ended, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- b.Node.Do(func() error {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
				if err != nil {
					return err
				}
				n, _ := strconv.Atoi(strings.TrimSpace(string(text))) // the kernel writes numbers
				most = max(most, n)
				select {
				case <-ended:
					return nil
				case <-tick.C:
				}
			}
		})
	}()
	during()
	close(ended)
	lab.Must(t, <-done)
	return most
}
