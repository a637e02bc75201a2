//go:build e2e && !ipvs

package takeover

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
)

// TestEdge shows what a user sees of kube-proxy, and of Verdict after it has taken over, where packets belong to no flow and where
// the node has no route to Services. The rows of e2e/UPSTREAM.md say the same.
func TestEdge(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			b := newBed(t)
			ends := b.serveEdge(t)
			iptables := m.proxyMode == "iptables"
			upstream := b.kubeProxy(t, &m)
			b.expectEdge(t, "kube-proxy", ends, iptables, false)
			stop(t, upstream)
			m.flags = [][]string{{"--proxy-mode=" + m.proxyMode}}
			b.verdict(t, &m, 0)
			b.expectEdge(t, "Verdict", ends, iptables, iptables)
		})
	}
}

// Ports of the Service of serveEdge.
const edgeTarget, edgeNodePort = 9300, 30081

// serveEdge makes a Service whose endpoint is a server in pod b, and returns the server's ends of connections.
func (b *bed) serveEdge(t *testing.T) <-chan net.Conn {
	t.Helper()
	ends := make(chan net.Conn)
	b.At(t, "b").MustDo(t, func() error {
		l, err := net.Listen("tcp", ":9300")
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				ends <- c
			}
		}()
		return nil
	})
	for _, f := range lab.Families() {
		s := objects.Service("default", "edge-"+map[lab.Family]string{lab.IPv4: "four", lab.IPv6: "six"}[f], lab.MustText(f, "VIP2"))
		s.Spec.Type, s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = corev1.ServiceTypeNodePort, []corev1.IPFamily{corev1.IPFamily(f.String())}, ptr.To(corev1.IPFamilyPolicySingleStack)
		s.Spec.Ports = []corev1.ServicePort{objects.Port("tcp", corev1.ProtocolTCP, servicePort)}
		s.Spec.Ports[0].NodePort = edgeNodePort + int32(f) // both families have one number only in one Service
		slice := objects.Slice("default", s.Name, f, 0, objects.SlicePort("tcp", corev1.ProtocolTCP, edgeTarget))
		objects.AddPods(slice, f, "b")
		lab.Must(t, b.plane.Put(t.Context(), s))
		lab.Must(t, b.plane.Put(t.Context(), slice))
	}
	return ends
}

// expectEdge expects that a connection to a cluster IP from a pod, and to a node port, goes on after its endpoint has sent a segment
// outside of the window.
func (b *bed) expectEdge(t *testing.T, proxy string, ends <-chan net.Conn, fromPod, toNodePort bool) {
	t.Helper()
	for _, f := range lab.Families() {
		for _, x := range []struct {
			what, place, at string
			port            uint16
			want            bool
		}{{"cluster IP", "a", "VIP2", servicePort, fromPod}, {"node port", lab.Outside, "NODE", uint16(edgeNodePort + f), toNodePort}} {
			client, err := b.At(t, x.place).DialContext(t.Context(), "tcp", lab.AddressPort(f, x.at, x.port).String())
			if err != nil {
				t.Errorf("%s, %s %s: %v", proxy, f, x.what, err)
				continue
			}
			end := <-ends
			b.At(t, "b").MustDo(t, func() error { return lab.SendOutsideOfWindow(end.(*net.TCPConn)) })
			if got := lives(client, end); got != x.want {
				t.Errorf("%s, %s, %s: the connection goes on: %t, want %t", proxy, f, x.what, got, x.want)
			}
			_, _ = client.Close(), end.Close()
		}
		b.expectNoRoute(t, proxy, f)
	}
}

// lives reports whether a connection goes on. What is sent on it overtakes no reset that came before, or hardly ever.
func lives(client, end net.Conn) bool {
	for range 3 {
		for _, x := range [][2]net.Conn{{end, client}, {client, end}} {
			_ = x[1].SetReadDeadline(time.Now().Add(startPatience))
			if _, err := x[0].Write([]byte("x")); err != nil {
				return false
			}
			if _, err := io.ReadFull(x[1], make([]byte, 1)); err != nil {
				return false
			}
		}
	}
	return true
}

// expectNoRoute takes the default route away for a moment: without it, the node does not reach the cluster IP.
func (b *bed) expectNoRoute(t *testing.T, proxy string, f lab.Family) {
	t.Helper()
	family := map[lab.Family]string{lab.IPv4: "-4", lab.IPv6: "-6"}[f]
	gateway := lab.MustText(f, "GATEWAY")
	b.Node.Must(t, "", "ip", family, "route", "delete", "default")
	c, err := b.At(t, lab.Node).DialContext(t.Context(), "tcp", lab.AddressPort(f, "VIP2", servicePort).String())
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("%s, %s: without a default route, the node connects: %v", proxy, f, err)
	}
	b.Node.Must(t, "", "ip", family, "route", "add", "default", "via", gateway)
}
