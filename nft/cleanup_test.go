//go:build !nokernel

package nft

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
			// Without a nat chain, the kernel stops to translate open connections.
			top.node.load(t, fmt.Sprintf("table %s other {\nchain pre { type nat hook prerouting priority -100; }\n"+
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
						switch r := place.Ask(q); r.Outcome {
						case lab.Answered:
						case lab.Dropped: // about one connection in 6,000: why is open
							t.Logf("connection %d: %s", made.Load(), r)
						default:
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
