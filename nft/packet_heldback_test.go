//go:build !nokernel

package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// aSecond is nearly the time after which a client repeats its first packet.
const aSecond = 900 * time.Millisecond

// refuser is a dead endpoint, and the outcome for a client.
type refuser struct {
	name    string
	at      func(program.Family) contents.Endpoint
	outcome lab.Outcome
}

// Ports of pods that refuse: nothing listens at the first one, and rejectAtNodes refuses for the others.
const (
	closedPort = 9 + iota
	portGoneThere
	portGoneHere
)

func refusers() []refuser {
	pod := func(name string, port uint16) func(program.Family) contents.Endpoint {
		return func(f program.Family) contents.Endpoint { return podEndpoint(f, name, port) }
	}
	return []refuser{
		{"a pod on this node", pod("b", closedPort), lab.Refused},
		{"a pod on another node", pod("c", closedPort), lab.Refused},
		{"a pod that may be the client", pod("a", closedPort), lab.Refused},
		{"this node", func(f program.Family) contents.Endpoint {
			return contents.Endpoint{Addr: netip.AddrPortFrom(nodeAddr(f), closedPort), Local: true}
		}, lab.Refused},
		{"another node, for a pod that is gone", pod("c", portGoneThere), lab.Unreachable},
		{"this node, for a pod that is gone", pod("c", portGoneHere), lab.Unreachable},
	}
}

// rejectAtNodes makes the nodes say that pods are gone.
func (top *topology) rejectAtNodes(t *testing.T) {
	t.Helper()
	for place, port := range map[string]int{lab.Remote: portGoneThere, lab.Node: portGoneHere} {
		top.At(t, place).Must(t, fmt.Sprintf(`table inet gone {
	chain forward { type filter hook forward priority -10; tcp dport %[1]d reject with icmpx type host-unreachable; }
	chain output { type filter hook output priority -10; tcp dport %[1]d reject with icmpx type host-unreachable; }
}
`, port), "nft", "-f", "-")
	}
}

// unlimitErrors has a pod send as many ICMP errors as it likes.
func (top *topology) unlimitErrors(t *testing.T, pod string) {
	t.Helper()
	if err := top.At(t, pod).LimitICMP(false); err != nil {
		t.Fatal(err)
	}
}

// heldPort is a service port with each kind of frontend that has a number of its own.
func heldPort(f program.Family, n int, holds bool, list ...contents.Endpoint) contents.Port {
	slices.SortFunc(list, func(a, b contents.Endpoint) int { return a.Addr.Compare(b.Addr) })
	return contents.Port{
		Family: f, Name: fmt.Sprintf("ns/svc-%d:p", n), Protocol: tcp, Method: program.InTurn, Cluster: list,
		Frontends: []contents.Frontend{
			{Addr: serviceIP(f, byte(n)), Port: 80, ClusterIP: true, Pool: program.ClusterPool, HoldsRefusals: holds},
			{Addr: externalIP(f, byte(n)), Port: 80, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways, HoldsRefusals: holds},
			{Port: 30000 + uint16(n), Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways, HoldsRefusals: holds},
		},
	}
}

// at is where clients find a frontend.
func placeOf(fe *contents.Frontend, f program.Family) netip.AddrPort {
	if fe.Addr.IsValid() {
		return netip.AddrPortFrom(fe.Addr, fe.Port)
	}
	return netip.AddrPortFrom(nodeAddr(f), fe.Port)
}

func newHeldTopology(t *testing.T, change func(*Engine)) (*topology, *Engine) {
	t.Helper()
	top := newTopology(t)
	top.rejectAtNodes(t)
	e := top.node.engine(t)
	change(e)
	g := packetGlobals()
	g.Unanswered, g.Refusing = true, true
	e.SetGlobals(g)
	return top, e
}

// TestRefusalsAreHeldBack: the first refusal of a dead endpoint does not reach the client, and the second one does, on
// all ways. Frontends that hold nothing back refuse at once.
func TestRefusalsAreHeldBack(t *testing.T) {
	top, e := newHeldTopology(t, func(*Engine) {})
	type asked struct {
		name, from string
		frontend   contents.Frontend
		f          program.Family
		want       lab.Outcome
	}
	var list []asked
	for _, f := range program.Families() {
		n := 0
		for _, r := range refusers() {
			for _, from := range senders() {
				for _, holds := range []bool{true, false} {
					n++
					port := heldPort(f, n, holds, r.at(f))
					mustSet(t, e, port)
					for i, kind := range []string{"cluster IP", "external IP", "node port"} {
						list = append(list, asked{
							fmt.Sprintf("%s/%s from %s/refused by %s/held back %t", f, kind, from, r.name, holds),
							from, port.Frontends[i], f, r.outcome,
						})
					}
				}
			}
		}
	}
	mustApply(t, e)
	reader := top.node.suspects(t)
	var wait sync.WaitGroup
	for i, q := range list {
		place, ask := top.At(t, q.from), question(tcp, placeOf(&q.frontend, q.f))
		// Refusals of two frontends to one port of a client count as one if they come at once.
		ask.Ports = lab.PortRange{Low: 20000 + uint16(i), High: 20000 + uint16(i)}
		wait.Go(func() { // a client waits for a second
			r := place.Ask(ask)
			// Without being held back, a refusal is late on a busy machine, and an error that arrives while the client is still
			// sending does not count for its kernel. The number of those that were held back is exact, below.
			if r.Outcome != q.want || q.frontend.HoldsRefusals && r.Repeated == 0 {
				t.Errorf("%s: %s after %s; wanted %s, held back: %t", q.name, r, r.Took, q.want, q.frontend.HoldsRefusals)
			}
		})
	}
	wait.Wait()
	for f, n := range top.heldBack(t) {
		if want := len(list) / 4; n != want { // half of the questions, in each family
			t.Errorf("%s: %d refusals were held back; wanted one for each client, %d", f, n, want)
		}
	}
	var noted []netip.AddrPort
	for _, s := range noticed(t, reader) {
		if s.Refusing {
			noted = append(noted, s.Endpoint)
		}
	}
	for _, r := range refusers() {
		for _, f := range program.Families() {
			if at := r.at(f).Addr; !slices.Contains(noted, at) {
				t.Errorf("%s refuses, and was not noticed: %v", at, noted)
			}
		}
	}
}

// heldBack counts the refusals that were held back, in each family.
func (top *topology) heldBack(t *testing.T) map[program.Family]int {
	t.Helper()
	out := map[program.Family]int{}
	for _, f := range program.Families() {
		for _, set := range []string{program.HoldsRefusals.Name(), program.HoldsRefusalsNodePorts.Name()} {
			for _, part := range strings.Split(top.node.nft(t, "list", "set", f.String(), program.TableName, set), "counter packets ")[1:] {
				n, err := strconv.Atoi(strings.Fields(part)[0])
				if err != nil {
					t.Fatal(err)
				}
				out[f] += n
			}
		}
	}
	return out
}

// TestSecondPacketGoesElsewhere: a client that is held back reaches another endpoint, a second late.
func TestSecondPacketGoesElsewhere(t *testing.T) {
	t.Parallel() // it mostly waits
	top, e := newHeldTopology(t, func(*Engine) {})
	for _, f := range program.Families() {
		for i, r := range refusers()[:4] {
			mustSet(t, e, heldPort(f, i, true, r.at(f), podEndpoint(f, "c", firstPodPort)))
		}
	}
	mustApply(t, e)
	for _, f := range program.Families() {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel() // clients wait for a second; those of one family ask in turn, because ports share the turns
			for i, r := range refusers()[:4] {
				fe := heldPort(f, i, true).Frontends[i%3]
				for _, from := range senders() {
					t.Run(fmt.Sprintf("%s from %s/refused by %s", placeOf(&fe, f), from, r.name), func(t *testing.T) {
						top.expectLate(t, from, question(tcp, placeOf(&fe, f)))
					})
				}
			}
		})
	}
}

// expectLate connects twice to a port with two endpoints, which get connections in turn. One of them refuses, so at least
// one of the connections is late, and none fails.
func (top *topology) expectLate(t *testing.T, from string, q lab.Question) {
	t.Helper()
	late := 0
	for range 2 {
		r := top.At(t, from).Ask(q)
		if r.Outcome != lab.Answered {
			t.Errorf("%s after %s", r, r.Took)
		}
		if r.Repeated > 0 {
			late++
		}
	}
	if late == 0 {
		t.Error("no client was late: the test shows nothing")
	}
}

// TestAllRefuse: a client whose endpoints all refuse learns it from its second packet, whichever of them that reaches. The third
// one would come 3 seconds after the first.
func TestAllRefuse(t *testing.T) {
	top, e := newHeldTopology(t, func(*Engine) {})
	for _, f := range program.Families() {
		mustSet(t, e, heldPort(f, 1, true, podEndpoint(f, "b", closedPort), podEndpoint(f, "c", closedPort)))
	}
	mustApply(t, e)
	var wait sync.WaitGroup
	for _, f := range program.Families() {
		for _, fe := range heldPort(f, 1, true).Frontends {
			for _, from := range senders() {
				place := top.At(t, from)
				wait.Go(func() {
					r := place.Ask(question(tcp, placeOf(&fe, f)))
					if r.Outcome != lab.Refused || r.Repeated != 1 {
						t.Errorf("%s from %s: %s after %s; wanted: refused by the second packet", placeOf(&fe, f), from, r, r.Took)
					}
				})
			}
		}
	}
	wait.Wait()
}

// TestErrorsAtOnce: several packets of a client wait for the address of a neighbor that has vanished. The errors about them come
// at once and count as one refusal: they are all dropped, and the client's next packet decides.
func TestErrorsAtOnce(t *testing.T) {
	t.Parallel() // it mostly waits
	top, e := newHeldTopology(t, func(*Engine) {})
	for _, f := range program.Families() {
		mustSet(t, e, heldPort(f, 1, true, podEndpoint(f, "b", firstPodPort), podEndpoint(f, "b", firstPodPort+1)))
	}
	mustApply(t, e)
	// The kernel asks three times. So errors come after 1.5 to 2.6 s, about the packets that the client sent at 0 and 1 s. It
	// sends the next one after 3 s.
	err := errors.Join(top.Plug("b", false),
		top.Node.Sysctl("net.ipv4.neigh.br-pods.retrans_time_ms=500", "net.ipv6.neigh.br-pods.retrans_time_ms=500"))
	if err != nil {
		t.Fatal(err)
	}
	const thirdPacket = 2900 * time.Millisecond
	var wait sync.WaitGroup
	for _, f := range program.Families() {
		for _, fe := range heldPort(f, 1, true).Frontends {
			for _, from := range []string{lab.Outside, "a"} {
				place := top.At(t, from)
				wait.Go(func() {
					if r := place.Ask(question(tcp, placeOf(&fe, f))); r.Outcome != lab.Unreachable || r.Took < thirdPacket {
						t.Errorf("%s from %s: %s after %s; wanted: unreachable after the third packet", placeOf(&fe, f), from, r, r.Took)
					}
				})
			}
		}
	}
	wait.Wait()
}

// TestFullHeldBack: if the set of clients is full, refusals pass at once, and connections work as always.
func TestFullHeldBack(t *testing.T) {
	const size, clients = 2, 6
	top, e := newHeldTopology(t, func(e *Engine) {
		for _, tb := range e.tables {
			tb.Defs[program.HeldBack].Size = size
		}
	})
	mustSet(t, e, heldPort(program.IPv4, 1, true, podEndpoint(program.IPv4, "b", closedPort)), heldPort(program.IPv4, 2, true, podEndpoint(program.IPv4, "b", firstPodPort)))
	mustApply(t, e)
	done := make(chan lab.Result)
	client := top.At(t, lab.Outside)
	for range clients {
		go func() { done <- client.Ask(question(tcp, netip.AddrPortFrom(serviceIP(program.IPv4, 1), 80))) }()
	}
	late := 0
	for range clients {
		r := <-done
		if r.Outcome != lab.Refused {
			t.Errorf("%s; wanted: refused", r)
		}
		if r.Repeated > 0 {
			late++
		}
	}
	if late != size {
		t.Errorf("%d of %d clients were held back; the set has room for %d", late, clients, size)
	}
	top.expectOutcome(t, lab.Outside, question(tcp, netip.AddrPortFrom(serviceIP(program.IPv4, 2), 80)), lab.Answered)
}

// TestFloodOfRefusals: a tenant sends himself more connections that are refused than there is room for clients. Most of these refusals
// pass, and those to the clients of another tenant are held back. All numbers are a 512th of the real ones.
func TestFloodOfRefusals(t *testing.T) {
	const scale = 512
	size, share := uint32(program.HeldBackLimit/scale), program.HeldBackLimit/scale/64
	top, e := newHeldTopology(t, func(e *Engine) {
		for _, tb := range e.tables {
			tb.Defs[program.HeldBack].Size, tb.Defs[program.JustHeldBack].Size = size, size
			for _, id := range []program.SetID{program.HoldsRefusals, program.HoldsRefusalsNodePorts, program.RangeHoldsRefusals} {
				tb.Defs[id].Rate /= scale
			}
		}
	})
	for _, f := range program.Families() {
		mustSet(t, e, heldPort(f, 1, true, podEndpoint(f, "b", closedPort)),
			heldPort(f, 2, true, podEndpoint(f, "b", closedPort), podEndpoint(f, "c", firstPodPort)))
	}
	mustApply(t, e)
	for _, f := range program.Families() {
		for i, fe := range heldPort(f, 1, true).Frontends {
			before, began := top.heldBack(t)[f], time.Now()
			top.At(t, lab.Outside).MustDo(t, func() error { return connectOften(t, placeOf(&fe, f), int(size)+share) })
			seconds := int(time.Since(began)/time.Second) + 1
			if n := top.heldBack(t)[f] - before; n == 0 || n > share/2+seconds {
				t.Errorf("%s: %d refusals were held back within %d s; the share of a frontend is %d at once and %d a second", placeOf(&fe, f), n, seconds,
					share/2, e.tables[f.Index()].Defs[program.HoldsRefusals].Rate)
			}
			other := heldPort(f, 2, true).Frontends[i]
			top.expectLate(t, lab.Outside, question(tcp, placeOf(&other, f)))
		}
	}
}

// connectOften begins connections from many ports. They end with the test.
func connectOften(t *testing.T, to netip.AddrPort, n int) error {
	var at unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte(to.Addr().AsSlice()), Port: int(to.Port())}
	domain := unix.AF_INET
	if to.Addr().Is6() {
		at, domain = &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}, unix.AF_INET6
	}
	for range n {
		fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		if err := unix.Connect(fd, at); err != nil && !errors.Is(err, unix.EINPROGRESS) && !errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
	}
	return nil
}

// TestOtherErrorsPass: a frontend of UDP beside one that holds back refuses at once, and its endpoint is not noticed.
func TestOtherErrorsPass(t *testing.T) {
	top, e := newHeldTopology(t, func(*Engine) {})
	for _, f := range program.Families() {
		port := heldPort(f, 1, true, podEndpoint(f, "b", firstPodPort))
		mustSet(t, e, port)
		for i := range port.Frontends {
			port.Frontends[i].HoldsRefusals = false
		}
		port.Name, port.Protocol, port.Cluster = "ns/svc-1:udp", udp, []contents.Endpoint{podEndpoint(f, "b", closedPort)}
		mustSet(t, e, port)
	}
	mustApply(t, e)
	top.unlimitErrors(t, "b")
	reader := top.node.suspects(t)
	for _, f := range program.Families() {
		for _, from := range senders() {
			for _, fe := range heldPort(f, 1, true).Frontends {
				top.expectOutcome(t, from, question(udp, placeOf(&fe, f)), lab.Refused)
			}
		}
	}
	if list, held := noticed(t, reader), top.heldBack(t); len(list) > 0 || held[program.IPv4]+held[program.IPv6] > 0 {
		t.Errorf("noticed %v, held back: %v", list, held)
	}
}
