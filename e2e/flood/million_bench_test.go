//go:build e2e

package flood

import (
	"flag"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

var million = flag.String("million", "100000:1000000", "the cluster of BenchmarkMillion, SERVICES:ENDPOINTS")

// millionPatience is how long one thing may take in BenchmarkMillion.
const millionPatience = 20 * time.Minute

// BenchmarkMillion is a cluster of the largest size: first sync, memory, changes, a restart under new connections, and the
// repair after somebody else flushed all rules.
func BenchmarkMillion(b *testing.B) {
	var services, endpoints int
	if n, err := fmt.Sscanf(*million, "%d:%d", &services, &endpoints); n != 2 {
		b.Fatalf("-million %q: %v", *million, err)
	}
	fmt.Println("machine:", measure.ThisMachine())
	b.Run("cluster="+*million, func(b *testing.B) {
		bed, f := newBedWithout(b), measure.Figures{}
		bed.server.putMany(services, endpoints)
		for b.Loop() {
			kernel, err := measure.SettledKernelMemory()
			lab.Must(b, err)
			began := time.Now()
			bed.follow(b)
			f["start-to-sync-ns"] = float64(time.Since(began))
			p := bed.memory(b)
			f["cpu-to-sync-ns"] = float64(p.CPU)
			after, err := measure.SettledKernelMemory() // takes seconds, in which the daemon returns what it does not need
			lab.Must(b, err)
			p = bed.memory(b)
			f["resident-B"], f["peak-B"], f["kernel-B"] = float64(p.RSS), float64(p.Peak), float64(after-kernel)
			f["resident-bytes/endpoint"], f["peak-bytes/endpoint"] = float64(p.RSS)/float64(endpoints), float64(p.Peak)/float64(endpoints)
			watch := bed.stopwatch(b)
			watch.sample(b, 10*time.Second).Report(f, "change-")
			bed.restartUnderClients(b, f)
			f["flush-repaired-ns"] = float64(bed.flushed(b))
		}
		for unit, value := range f {
			b.ReportMetric(value, unit)
		}
		b.ReportMetric(0, "ns/op")
	})
}

// manyFrontend is the frontend of Service number i.
func manyFrontend(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 97 + byte(i>>16), byte(i >> 8), byte(i)}), 80)
}

// putMany writes Services of 40 namespaces, which share the endpoints evenly.
func (s *server) putMany(services, endpoints int) {
	for i := range services {
		namespace, name := fmt.Sprintf("team-%02d", i%40), fmt.Sprintf("service-%06d", i)
		svc := service(namespace, name, manyFrontend(i), false)
		svc.Spec.Ports = svc.Spec.Ports[:1]
		sl := slice(namespace, name)
		sl.Ports = sl.Ports[:1]
		for e := i * endpoints / services; e < (i+1)*endpoints/services; e++ {
			sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{netip.AddrFrom4([4]byte{11, byte(e >> 16), byte(e >> 8), byte(e)}).String()},
				NodeName:  ptr.To(fmt.Sprintf("node-%d", e%5000)), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
			})
		}
		s.put(svc, sl)
	}
	s.forget()
}

// follow starts the daemon, and waits for its first pass longer than other tests do.
func (b *bed) follow(t testing.TB, flags ...string) {
	t.Helper()
	p, err := lab.NewProcess(lab.ProcessOptions{Name: "verdict", Namespace: b.Node, Dir: b.dir, Command: b.command(flags...)})
	lab.Must(t, err)
	b.daemon = &daemon.Daemon{Process: p, Node: b.Node}
	t.Cleanup(func() { lab.Must(t, p.Kill()) })
	for late := time.Now().Add(millionPatience); time.Now().Before(late); time.Sleep(20 * time.Millisecond) {
		lab.Must(t, p.EndedByItself())
		if s, err := b.daemon.Status(); err == nil && s.Synced && s.Passes > 0 && s.WaitingServices == 0 {
			return
		}
	}
	t.Fatalf("no first pass within %s; the log ends:\n%s", millionPatience, p.Log(10))
}

// restartUnderClients restarts the daemon while a client connects 200 times a second.
func (b *bed) restartUnderClients(t testing.TB, f measure.Figures) {
	t.Helper()
	client := rate.Client{
		Targets:   []*rate.Target{{Network: "tcp", Address: calmFrontend.String()}},
		PerSecond: 200, Patience: 5 * time.Second, Do: b.At(t, "y").Do, Answer: rate.FirstLine,
	}
	end, began := client.Start(), time.Now()
	lab.Must(t, b.daemon.Stop())
	b.follow(t)
	f["restart-to-sync-ns"] = float64(time.Since(began))
	lost, repeated := 0, 0
	attempts := end()
	for i := range attempts {
		if a := &attempts[i]; a.Outcome != rate.Answered {
			if lost++; lost <= 3 {
				t.Logf("a connection %s after %s: %s", a.Outcome, a.Took, a.Error)
			}
		}
		repeated += attempts[i].Repeated
	}
	f["restart-connections"], f["restart-lost"], f["restart-packets-repeated"] = float64(len(attempts)), float64(lost), float64(repeated)
}

// flushed has somebody else remove all rules, and returns when the kernel has them again. The tables have no owner, as under
// kernels before 6.9: otherwise, the kernel would leave them alone.
func (b *bed) flushed(t testing.TB) time.Duration {
	t.Helper()
	lab.Must(t, b.daemon.Stop())
	b.follow(t, "--table-owner=off")
	began := time.Now()
	b.Node.Must(t, "", "nft", "flush", "ruleset")
	for !strings.Contains(b.daemon.Log(10), `msg="the tables are as they should be again" full=true`) {
		if time.Since(began) > millionPatience {
			t.Fatalf("the tables are not back after %s; the log ends:\n%s", millionPatience, b.daemon.Log(10))
		}
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(began)
	b.connections(t, 1)
	return took
}
