//go:build e2e

package flood

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestChecksAreNotTranslated: a tenant writes an external IP whose endpoint is a program of the node, and has an endpoint at
// the external IP checked. The rules of the node would bring the question to that program, and it is not asked.
func TestChecksAreNotTranslated(t *testing.T) {
	b := newBedWithout(t)
	f := b.newFarm(t)
	own := lab.Address(lab.IPv4, "NODE")
	const port = 10255
	asked := make(chan struct{}, 1000)
	b.Node.MustDo(t, func() error {
		return serveWeb(t, port, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	})
	way := netip.MustParseAddrPort("198.51.100.7:80")
	to := service("tenant", "way", netip.MustParseAddrPort("10.96.1.1:80"), false)
	to.Spec.ExternalIPs = []string{way.Addr().String()}
	svc := service("tenant", "checked", netip.MustParseAddrPort("10.96.1.2:80"), false)
	svc.Annotations = map[string]string{"verdict-proxy.github.io/health-check": "http interval=1s"}
	b.server.put(to, slice("tenant", "way", netip.AddrPortFrom(own, port)), svc, slice("tenant", "checked", way))
	b.server.put(others()...)
	b.start(t)
	for end := time.Now().Add(time.Minute); len(f.pauses(time.Time{})) < 3 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	if len(f.pauses(time.Time{})) < 3 {
		t.Error("nobody is checked")
	}
	if n := len(asked); n > 0 {
		t.Errorf("the node asked its own program %d times", n)
	}
}
