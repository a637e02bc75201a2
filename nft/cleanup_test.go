//go:build !nokernel

package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestCleanupRefusesNothing: while Cleanup deletes large tables, no connection is refused that something behind the rules serves
// after it, as the virtual servers of kube-proxy do. Here, the node has the cluster IP, and a server at the same port.
func TestCleanupRefusesNothing(t *testing.T) {
	const services = 5000
	for _, f := range program.Families() {
		t.Run(f.String(), func(t *testing.T) {
			top := newTopology(t)
			e := top.node.engine(t)
			e.SetGlobals(packetGlobals())
			to := netip.AddrPortFrom(serviceIP(f, 1), firstPodPort)
			top.Node.Must(t, "", "ip", "address", "add", fmt.Sprintf("%s/%d", to.Addr(), to.Addr().BitLen()), "dev", "lo")
			// Without a nat chain, the kernel stops translating open connections. Without a rule that asks for ct, it stops tracking them.
			top.node.load(t, fmt.Sprintf("table %s other {\nchain pre { type nat hook prerouting priority -100; ct state new accept; }\n"+
				"chain post { type nat hook postrouting priority 100; }\n}", f))
			mustSet(t, e, contents.Port{Family: f, Name: "test/both:http", Protocol: tcp, Cluster: podEndpoints(f, "c"), Frontends: []contents.Frontend{
				{Addr: to.Addr(), Port: to.Port(), ClusterIP: true, Pool: program.ClusterPool},
			}})
			growing(t, e, f, 1000, 1000+services, 4)

			var running sync.WaitGroup
			var made atomic.Int64
			stop := make(chan struct{})
			for range 4 {
				place := top.At(t, "a")
				running.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						made.Add(1)
						q := question(tcp, to)
						q.Patience = 3 * time.Second
						if r := place.Ask(q); r.Outcome != lab.Answered {
							t.Errorf("connection %d: %s", made.Load(), r)
						}
					}
				})
			}
			settle := func() {
				for begun, end := made.Load(), time.Now().Add(lab.Limit); made.Load() < begun+100 && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
			}
			settle()
			if err := kernel.Cleanup(kernel.Options{NetNS: top.node.Fd()}); err != nil {
				t.Error(err)
			}
			settle()
			close(stop)
			running.Wait()
			t.Logf("%d connections", made.Load())
		})
	}
}

// TestCleanupMasquerades: a packet that is on its way through the hooks while Cleanup deletes the rules is masqueraded, if it was
// translated. Otherwise, its client would get an answer from an address that it has not asked.
func TestCleanupMasquerades(t *testing.T) {
	const rounds, enough = 40, 200
	for _, f := range program.Families() {
		t.Run(f.String(), func(t *testing.T) {
			top := newTopology(t)
			// Another table keeps connection tracking at work.
			top.node.load(t, fmt.Sprintf("table %s other {\nchain pre { type filter hook prerouting priority 0; ct state new accept; }\n}", f))
			ask := netip.AddrPortFrom(externalIP(f, 1), firstPodPort)
			translated := 0
			for range rounds {
				e := top.node.engine(t)
				e.SetGlobals(packetGlobals())
				mustSet(t, e, contents.Port{Family: f, Name: "test/both:http", Protocol: udp, Cluster: podEndpoints(f, "c"), Frontends: []contents.Frontend{
					{Addr: ask.Addr(), Port: ask.Port(), Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways},
				}})
				mustApply(t, e)
				var sent atomic.Int64
				stop := make(chan struct{})
				var running sync.WaitGroup
				running.Go(func() { datagrams(t, top, f, ask, &sent, stop) })
				for sent.Load() < enough {
					runtime.Gosched()
				}
				err := kernel.Cleanup(kernel.Options{NetNS: top.node.Fd()})
				close(stop)
				running.Wait()
				lab.Must(t, err)
				translated += top.masqueraded(t, f, ask)
				lab.Must(t, top.Node.ForgetFlows())
			}
			t.Logf("%d connections", translated)
			if translated < rounds*enough/2 {
				t.Error("too few")
			}
		})
	}
}

// datagrams sends a packet of a new connection after the other.
func datagrams(t *testing.T, top *topology, f program.Family, to netip.AddrPort, sent *atomic.Int64, stop <-chan struct{}) {
	err := top.At(t, lab.Outside).Do(func() error {
		for {
			select {
			case <-stop:
				return nil
			default:
			}
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
			if err != nil {
				return err
			}
			_, err = c.Write([]byte("?"))
			c.Close()
			if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
				return err
			}
			sent.Add(1)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// masqueraded counts the translated connections. Each must be masqueraded.
func (top *topology) masqueraded(t *testing.T, f program.Family, to netip.AddrPort) (count int) {
	flows, err := top.Node.Flows(labFamily(f))
	lab.Must(t, err)
	for _, flow := range flows {
		if flow.To != to || flow.Server == to {
			continue
		}
		if count++; flow.ReplyTo.Addr() == flow.From.Addr() {
			t.Errorf("translated, but not masqueraded: %+v", flow)
		}
	}
	return count
}
