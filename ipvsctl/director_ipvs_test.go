//go:build ipvs

package ipvsctl

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// director is a world of package lab whose node has an IPVS engine. Clients are the crowd, outside the node.
type director struct {
	world   *lab.World
	node    *namespace
	options Options
	engine  *Engine
	mu      sync.Mutex
	next    int // of the frontends handed out
}

const (
	podCount    = 4
	clientCount = 40
	patience    = 30 * time.Second // for an answer that must come
	impatience  = 3 * time.Second  // for one that must not
)

// Pods listen at podPort, and over SCTP at sctpPort: at podPort they answer SCTP by hand, without associations that
// last.
const (
	podPort  = 8080
	sctpPort = 8090
)

func newDirector(t testing.TB) *director {
	t.Helper()
	w := lab.New(t)
	d := &director{world: w, node: &namespace{w.Node.Namespace}}
	d.options = Options{NetNS: d.node.Fd(), GracefulPeriod: period}
	d.open(t)
	d.node.MustDo(t, func() error { _, err := SetSysctls(ProcSys, Sysctls(false)); return err })
	for _, pod := range lab.Pods() {
		must(t, w.ServeKernelSCTP(pod, sctpPort))
	}
	return d
}

// open starts an engine, as a restarted process would, and closes the previous one.
func (d *director) open(t testing.TB) *Engine {
	t.Helper()
	if d.engine != nil {
		d.engine.Close()
	}
	e, err := Open(d.options)
	must(t, err)
	d.engine = e
	return e
}

// client is the address of client i.
func client(f lab.Family, i int) netip.Addr { return lab.Member(f, "CROWD", i+1) }

// pod is the real server of pod i.
func pod(f lab.Family, p Protocol, i int, weight uint16) RealServer {
	port := uint16(podPort)
	if p == SCTP {
		port = sctpPort
	}
	return RealServer{Addr: netip.AddrPortFrom(lab.PodAddress(f, lab.Pods()[i]), port), Weight: weight}
}

// frontend is a virtual server that no test has used before: connections outlive virtual servers.
func (d *director) frontend(f lab.Family, p Protocol, scheduler string, weights ...uint16) VirtualServer {
	d.mu.Lock()
	d.next++
	addr := netip.MustParseAddr(fmt.Sprintf("10.96.%d.1", d.next))
	if f == lab.IPv6 {
		addr = netip.MustParseAddr(fmt.Sprintf("fd96::%x", d.next))
	}
	d.mu.Unlock()
	v := VirtualServer{Key: Key{Addr: addr, Port: 80, Protocol: p}, Scheduler: scheduler, Local: true}
	for i, w := range weights {
		v.RealServers = append(v.RealServers, pod(f, p, i, w))
	}
	return v
}

// apply sets one service port and brings it to the kernel.
func (d *director) apply(t testing.TB, servers ...VirtualServer) {
	t.Helper()
	mustSet(t, d.engine, servers[0].String(), servers...)
	pass(t, d.engine, start())
}

// clear removes everything that a test has made.
func (d *director) clear(t testing.TB) {
	t.Helper()
	e, err := openEngine(Options{}, d.engine.kernel) // a restart, with nothing wanted and no time to drain
	must(t, err)
	pass(t, e, start())
	d.open(t)
	expect(t, "remaining in the kernel", picture(t, d.engine.kernel), "")
}

// question asks a virtual server.
func question(from netip.Addr, v *VirtualServer) lab.Question {
	p := lab.Protocol(v.Protocol)
	if v.Protocol == SCTP {
		p = lab.KernelSCTP
	}
	return lab.Question{Protocol: p, From: from, To: netip.AddrPortFrom(v.Addr, v.Port), Patience: patience}
}

func podIndex(a lab.Answer) int { return slices.Index(lab.Pods(), a.Pod) }

// once connects and returns the number of the pod that answers.
func (d *director) once(t testing.TB, from netip.Addr, v *VirtualServer) int {
	t.Helper()
	return podIndex(d.world.At(t, lab.Outside).Once(t, question(from, v)))
}

// held connects and returns the number of the pod that answers. The connection stays open until the test ends.
func (d *director) held(t testing.TB, from netip.Addr, v *VirtualServer) (*lab.Flow, int) {
	t.Helper()
	c, answer := d.world.At(t, lab.Outside).Hold(t, question(from, v))
	return c, podIndex(answer)
}

// again asks over an open connection and returns the number of the pod that answers.
func again(c *lab.Flow, patience time.Duration) (int, error) {
	r := c.Send(patience)
	if r.Outcome != lab.Answered {
		return 0, fmt.Errorf("no answer: %s", r)
	}
	return podIndex(r.Answer), nil
}

// spread counts which pods answer n connections of one client.
func (d *director) spread(t testing.TB, v *VirtualServer, n int) [podCount]int {
	t.Helper()
	var counts [podCount]int
	for range n {
		counts[d.once(t, client(familyOf(v), 0), v)]++
	}
	return counts
}

// byClient has the pod that each client gets.
func (d *director) byClient(t testing.TB, v *VirtualServer) [clientCount]int {
	t.Helper()
	var got [clientCount]int
	for i := range got {
		got[i] = d.once(t, client(familyOf(v), i), v)
	}
	return got
}

func familyOf(v *VirtualServer) lab.Family {
	if v.Addr.Is6() {
		return lab.IPv6
	}
	return lab.IPv4
}
