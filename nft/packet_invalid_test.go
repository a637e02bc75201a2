//go:build !nokernel

package nft

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestDropInvalid: an endpoint sends a segment outside of the window. It has the address of the pod, and the client resets the
// connection, or this node does so if the client was masqueraded. With the option, the segment is dropped.
func TestDropInvalid(t *testing.T) {
	top := newTopology(t)
	servers := pusher{conns: map[string]net.Conn{}}
	const target, server = 9300, "b"
	top.At(t, server).MustDo(t, func() error {
		l, err := net.Listen("tcp", fmt.Sprint(":", target))
		if err == nil {
			go servers.serve(l)
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	const watch = `table inet watch {
	counter seen {}
	counter passed {}
	chain forward { type filter hook forward priority -1; ct state invalid ip saddr 10.0.1.2 counter name seen; ct state invalid ip6 saddr fd00:10:0:1::2 counter name seen; }
	chain forwarded { type filter hook forward priority 1; ct state invalid ip saddr 10.0.1.2 counter name passed; ct state invalid ip6 saddr fd00:10:0:1::2 counter name passed; }
	chain input { type filter hook input priority -1; ct state invalid ip saddr 10.0.1.2 counter name seen; ct state invalid ip6 saddr fd00:10:0:1::2 counter name seen; }
	chain taken { type filter hook input priority 1; ct state invalid ip saddr 10.0.1.2 counter name passed; ct state invalid ip6 saddr fd00:10:0:1::2 counter name passed; }
}
`
	byInterface := packetGlobals()
	byInterface.PodCIDRs, byInterface.PodInterface, byInterface.DropInvalid, byInterface.Unanswered = nil, "br-pods", true, true
	byRange := packetGlobals()
	byRange.DropInvalid = true
	e := top.node.engine(t)
	for _, kind := range []struct {
		name    string
		globals contents.Globals
	}{{"off", packetGlobals()}, {"by range", byRange}, {"by interface", byInterface}} {
		e.SetGlobals(kind.globals)
		for _, f := range program.Families() {
			mustSet(t, e, contents.Port{
				Family: f, Name: "ns/svc:p", Protocol: tcp, Cluster: []contents.Endpoint{podEndpoint(f, server, target)},
				Frontends: []contents.Frontend{
					{Addr: serviceIP(f, 1), Port: 80, ClusterIP: true, Pool: program.ClusterPool},
					{Addr: externalIP(f, 1), Port: 80, Pool: program.ClusterPool},
					{Addr: externalIP(f, 2), Port: 80, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways},
				},
			})
		}
		mustApply(t, e)
		for _, f := range program.Families() {
			for name, from := range map[string]struct {
				place string
				to    netip.Addr
			}{
				"cluster IP, from a pod": {"a", serviceIP(f, 1)}, "external IP": {lab.Outside, externalIP(f, 1)},
				"external IP, masqueraded": {lab.Outside, externalIP(f, 2)},
			} {
				t.Run(fmt.Sprint(kind.name, "/", f, "/", name), func(t *testing.T) {
					top.node.load(t, "table inet watch {}\ndelete table inet watch\n"+watch)
					client, err := top.At(t, from.place).DialContext(t.Context(), "tcp", netip.AddrPortFrom(from.to, 80).String())
					if err != nil {
						t.Fatal(err)
					}
					defer client.Close()
					end := servers.latest(t)
					defer end.Close()
					if !passes(client, end, patient) {
						t.Fatal("the connection does not work")
					}
					top.At(t, server).MustDo(t, func() error { return lab.SendOutsideOfWindow(end.(*net.TCPConn)) })
					for until := time.Now().Add(patient); top.packets(t, "seen") == 0; runtime.Gosched() {
						if time.Now().After(until) {
							t.Fatal("no packet is invalid")
						}
					}
					if kind.globals.DropInvalid {
						if n := top.packets(t, "passed"); n > 0 || !passes(client, end, patient) || !passes(end, client, patient) {
							t.Errorf("the connection ends; %d invalid packets passed", n)
						}
						return
					}
					_ = end.SetReadDeadline(time.Now().Add(patient))
					if _, err := end.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
						t.Errorf("without the option, the endpoint reads: %v; wanted: a reset", err)
					}
				})
			}
		}
	}
}

// latest waits for one connection, and forgets it.
func (p *pusher) latest(t *testing.T) net.Conn {
	t.Helper()
	for end := time.Now().Add(patient); time.Now().Before(end); runtime.Gosched() {
		p.mu.Lock()
		for from, c := range p.conns {
			delete(p.conns, from)
			p.mu.Unlock()
			return c
		}
		p.mu.Unlock()
	}
	t.Fatal("the server has no connection")
	return nil
}

// packets reads a counter of the table that watches.
func (top *topology) packets(t *testing.T, counter string) (n int) {
	t.Helper()
	text := top.node.nft(t, "list", "counter", "inet", "watch", counter)
	_, count, _ := strings.Cut(text, "packets ")
	if _, err := fmt.Sscan(count, &n); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return n
}

// BenchmarkDropInvalid sends packets of established flows through a node without the option and one with it, in turn.
func BenchmarkDropInvalid(b *testing.B) {
	var flows [2]net.Conn
	for i, on := range []bool{false, true} {
		top := newTopology(b)
		e := top.node.engine(b)
		g := packetGlobals()
		g.Unanswered, g.DropInvalid = true, on
		e.SetGlobals(g)
		const target = 9400
		mustSet(b, e, contents.Port{
			Family: program.IPv4, Name: "ns/svc:p", Protocol: udp, Cluster: []contents.Endpoint{podEndpoint(program.IPv4, "a", target)},
			Frontends: []contents.Frontend{{Addr: externalIP(program.IPv4, 1), Port: 80, Pool: program.ClusterPool}},
		})
		mustApply(b, e)
		top.At(b, "a").MustDo(b, func() error {
			server, err := net.ListenPacket("udp4", fmt.Sprint(":", target))
			if err == nil {
				b.Cleanup(func() { server.Close() })
				go func() { // one answer makes the flow established; the rest stays in the queue of the socket, which is full then
					_, from, _ := server.ReadFrom(make([]byte, 1))
					_, _ = server.WriteTo([]byte("x"), from)
				}()
			}
			return err
		})
		c, err := top.At(b, lab.Outside).DialContext(b.Context(), "udp4", netip.AddrPortFrom(externalIP(program.IPv4, 1), 80).String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		if !passes(c, c, patient) {
			b.Fatal("nobody answers")
		}
		flows[i] = c
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const each = 200
	var spent [2]int64
	for b.Loop() {
		for i, c := range flows {
			before := threadTime(b)
			for range each {
				if _, err := c.Write([]byte("x")); err != nil {
					b.Fatal(err)
				}
			}
			spent[i] += threadTime(b) - before
		}
	}
	for i, name := range []string{"off-ns/packet", "on-ns/packet"} {
		b.ReportMetric(float64(spent[i])/float64(each*b.N), name)
	}
	b.ReportMetric(float64(spent[0])/float64(spent[1]), "packets/s-on/off")
}
