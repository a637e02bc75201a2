//go:build !nokernel

package nft

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// repeated is longer than the time after which a client repeats its first packet.
const repeated = 1300 * time.Millisecond

// silence makes a pod drop all TCP packets that arrive.
func (top *topology) silence(t *testing.T, pod string) {
	t.Helper()
	top.At(t, pod).Must(t, "table inet silent {\nchain input {\ntype filter hook input priority 0;\nmeta l4proto tcp drop\n}\n}\n", "nft", "-f", "-")
}

func (n *namespace) suspects(t *testing.T) *kernel.Conn {
	t.Helper()
	r, err := kernel.Dial(n.Fd())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// noticed reads what the kernel noticed, without counters, and in order.
func noticed(t *testing.T, r *kernel.Conn) (list []serviceport.Suspicion) {
	t.Helper()
	list, err := inspect.ReadSuspects(r, kernel.Options{}.Served(), true)
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		if list[i].Packets == 0 {
			t.Errorf("%s has no packets", list[i].Endpoint)
		}
		list[i].Packets = 0
	}
	slices.SortFunc(list, func(a, b serviceport.Suspicion) int { return a.Endpoint.Compare(b.Endpoint) })
	return list
}

// noticedAfter asks, and reads what the kernel noticed. It asks again only if it took so long that what the kernel noticed
// may have ended before it was read.
func noticedAfter(t *testing.T, r *kernel.Conn, enough int, ask func()) []serviceport.Suspicion {
	t.Helper()
	for end := time.Now().Add(patient); ; {
		began := time.Now()
		ask()
		list := noticed(t, r)
		if len(list) >= enough || time.Since(began) < program.SuspectTimeout || time.Now().After(end) {
			return list
		}
	}
}

// suspectPorts are one service port for each kind of endpoint: c is silent, b refuses at port 9, a answers.
func suspectPorts(f program.Family) []contents.Port {
	one := func(n byte, e contents.Endpoint) contents.Port {
		return contents.Port{Family: f, Name: fmt.Sprintf("ns/svc-%d:p", n), Protocol: tcp, Cluster: []contents.Endpoint{e}, Frontends: []contents.Frontend{
			{Addr: serviceIP(f, n), Port: 80, ClusterIP: true, Pool: program.ClusterPool},
		}}
	}
	return []contents.Port{
		one(1, podEndpoint(f, "c", firstPodPort)), one(2, podEndpoint(f, "b", 9)), one(3, podEndpoint(f, "a", firstPodPort)),
	}
}

// TestSuspects: the kernel notices endpoints that do not answer and endpoints that refuse, and no others.
func TestSuspects(t *testing.T) {
	t.Parallel() // it mostly waits
	top := newTopology(t)
	e := top.node.engine(t)
	g := packetGlobals()
	g.Unanswered, g.Refusing = true, true
	e.SetGlobals(g)
	for _, f := range program.Families() {
		mustSet(t, e, suspectPorts(f)...)
	}
	mustApply(t, e)
	top.silence(t, "c")
	reader := top.node.suspects(t)
	for _, f := range program.Families() {
		for _, from := range []string{lab.Outside, lab.Node, "a"} {
			t.Run(fmt.Sprint(f, " from ", from), func(t *testing.T) {
				for range 200 {
					top.expectOutcome(t, from, question(tcp, netip.AddrPortFrom(serviceIP(f, 3), 80)), lab.Answered)
				}
				if list := noticed(t, reader); len(list) > 0 {
					t.Fatalf("200 good connections were noticed: %v", list)
				}
				list := noticedAfter(t, reader, 2, func() {
					q := question(tcp, netip.AddrPortFrom(serviceIP(f, 1), 80))
					q.Patience = repeated
					top.expectOutcome(t, from, q, lab.Dropped)
					top.expectOutcome(t, from, question(tcp, netip.AddrPortFrom(serviceIP(f, 2), 80)), lab.Refused)
				})
				want := []serviceport.Suspicion{
					{Endpoint: podEndpoint(f, "b", 9).Addr, Refusing: true}, {Endpoint: podEndpoint(f, "c", firstPodPort).Addr},
				}
				if !slices.Equal(list, want) {
					t.Errorf("noticed %v; wanted %v", list, want)
				}
				for _, set := range []string{program.Unanswered.Name(), program.Refusing.Name()} {
					top.node.nft(t, "flush", "set", f.String(), program.TableName, set)
				}
			})
		}
	}
}

// localPorts are the ports of endpoints at the node's own address: one answers, the queue of the other one is full.
const (
	answeringPort = 7001 + iota
	fullPort
)

// answer serves at an address of the node.
func (top *topology) answer(t *testing.T, at netip.AddrPort) {
	t.Helper()
	top.At(t, lab.Node).MustDo(t, func() error {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go lab.Accept(l, lab.Node, at.Port())
		return nil
	})
}

// hang listens at an address of the node and accepts nothing. It returns when the kernel drops further connections.
func (top *topology) hang(t *testing.T, at netip.AddrPort) {
	t.Helper()
	top.At(t, lab.Node).MustDo(t, func() error {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		raw, err := l.SyscallConn()
		if err != nil {
			return err
		}
		var shrink error
		if err := raw.Control(func(fd uintptr) { shrink = unix.Listen(int(fd), 0) }); err != nil || shrink != nil {
			return errors.Join(err, shrink)
		}
		for range 10 {
			conn, err := net.DialTimeout("tcp", at.String(), time.Second/2)
			if dropped := net.Error(nil); errors.As(err, &dropped) && dropped.Timeout() {
				return nil
			} else if err != nil {
				return err
			}
			t.Cleanup(func() { conn.Close() })
		}
		return errors.New("the queue does not fill")
	})
}

// TestSuspectsOnThisNode: endpoints at the node's own address are noticed when they do not answer, and only then. A
// connection of the node to itself passes the hooks output and input with the same packet.
func TestSuspectsOnThisNode(t *testing.T) {
	t.Parallel() // it mostly waits
	top := newTopology(t)
	e := top.node.engine(t)
	g := packetGlobals()
	g.Unanswered = true
	e.SetGlobals(g)
	for _, f := range program.Families() {
		for n, port := range map[byte]uint16{1: answeringPort, 2: fullPort} {
			mustSet(t, e, contents.Port{Family: f, Name: fmt.Sprintf("ns/svc-%d:p", n), Protocol: tcp,
				Cluster:   []contents.Endpoint{{Addr: netip.AddrPortFrom(nodeAddr(f), port), Local: true}},
				Frontends: []contents.Frontend{{Addr: serviceIP(f, n), Port: 80, ClusterIP: true, Pool: program.ClusterPool}}})
		}
		top.answer(t, netip.AddrPortFrom(nodeAddr(f), answeringPort))
		top.hang(t, netip.AddrPortFrom(nodeAddr(f), fullPort))
	}
	mustApply(t, e)
	reader := top.node.suspects(t)
	for _, f := range program.Families() {
		for _, from := range []string{lab.Outside, lab.Node, "a"} {
			t.Run(fmt.Sprint(f, " from ", from), func(t *testing.T) {
				for range 20 {
					top.expectOutcome(t, from, question(tcp, netip.AddrPortFrom(serviceIP(f, 1), 80)), lab.Answered)
				}
				if list := noticed(t, reader); len(list) > 0 {
					t.Errorf("20 good connections were noticed: %v", list)
				}
				list := noticedAfter(t, reader, 1, func() {
					q := question(tcp, netip.AddrPortFrom(serviceIP(f, 2), 80))
					q.Patience = repeated
					top.expectOutcome(t, from, q, lab.Dropped)
				})
				if want := []serviceport.Suspicion{{Endpoint: netip.AddrPortFrom(nodeAddr(f), fullPort)}}; !slices.Equal(list, want) {
					t.Errorf("noticed %v; wanted %v", list, want)
				}
				top.node.nft(t, "flush", "set", f.String(), program.TableName, program.Unanswered.Name())
			})
		}
	}
}

// TestNobodyTellsOfSuspects: the kernel sends no event when a packet adds an element. So readers have to poll. If this
// fails, the kernel has learned to tell, and polling can end.
func TestNobodyTellsOfSuspects(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	g := packetGlobals()
	g.Unanswered = true
	e.SetGlobals(g)
	mustSet(t, e, suspectPorts(program.IPv4)...)
	mustApply(t, e)
	top.silence(t, "c")
	events := top.monitor(t)
	list := noticedAfter(t, top.node.suspects(t), 1, func() {
		q := question(tcp, netip.AddrPortFrom(serviceIP(program.IPv4, 1), 80))
		q.Patience = repeated
		top.expectOutcome(t, lab.Node, q, lab.Dropped)
	})
	if len(list) != 1 {
		t.Fatalf("noticed %v", list)
	}
	top.node.nft(t, "add", "table", "ip", "last")
	for line := range events {
		if strings.Contains(line, program.Unanswered.Name()) {
			t.Errorf("an event: %s", line)
		}
		if strings.Contains(line, "last") {
			return // it comes after all others
		}
	}
	t.Error("no event at all: the test shows nothing")
}

// monitor returns the lines of "nft monitor" on the node, from a table that it makes on.
func (top *topology) monitor(t *testing.T) <-chan string {
	t.Helper()
	child := exec.Command("nft", "monitor")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := top.node.Do(child.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill() // it has no other end
		_ = child.Wait()
	})
	lines := make(chan string, 10_000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	for i := 0; ; i++ { // it has begun to listen when it tells of one of these
		top.node.nft(t, "add", "table", "ip", fmt.Sprint("first-", i))
		select {
		case <-lines:
			return lines
		case <-time.After(100 * time.Millisecond):
		}
		if i > 300 {
			t.Fatal("nft monitor says nothing")
		}
	}
}

// TestSuspectsAreOff: without the globals, the program has no rule for suspects.
func TestSuspectsAreOff(t *testing.T) {
	for _, f := range program.Families() {
		for _, c := range (program.Program{Family: f, IPVS: true}).Chains() {
			for _, r := range c.Rules {
				if sets, _ := r.References(); slices.Contains(sets, program.Unanswered.Name()) || slices.Contains(sets, program.Refusing.Name()) {
					t.Errorf("%s: %s", c.Name, r)
				}
			}
		}
	}
}

// TestSuspectsDoNotFill: where the set is full, connections work as always, and what is not in the set is not noticed.
func TestSuspectsDoNotFill(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	const size = 3
	for _, tb := range e.tables {
		tb.Defs[program.Unanswered].Size = size
	}
	g := packetGlobals()
	g.Unanswered = true
	e.SetGlobals(g)
	mustSet(t, e, suspectPorts(program.IPv4)[2])
	for n := range byte(2 * size) {
		mustSet(t, e, contents.Port{Family: program.IPv4, Name: fmt.Sprintf("ns/dead-%d:p", n), Protocol: tcp,
			Cluster:   []contents.Endpoint{podEndpoint(program.IPv4, "c", 7000+uint16(n))},
			Frontends: []contents.Frontend{{Addr: serviceIP(program.IPv4, 10+n), Port: 80, ClusterIP: true, Pool: program.ClusterPool}}})
	}
	mustApply(t, e)
	top.silence(t, "c")
	list := noticedAfter(t, top.node.suspects(t), size, func() {
		done := make(chan lab.Result)
		for n := range byte(2 * size) {
			q := question(tcp, netip.AddrPortFrom(serviceIP(program.IPv4, 10+n), 80))
			q.Patience = repeated
			client := top.At(t, lab.Outside)
			go func() { done <- client.Ask(q) }()
		}
		for range 2 * size {
			if r := <-done; r.Outcome != lab.Dropped {
				t.Errorf("a connection to a silent endpoint: %s", r)
			}
		}
	})
	if len(list) != size {
		t.Errorf("noticed %v; wanted %d endpoints", list, size)
	}
	top.expectOutcome(t, lab.Outside, question(tcp, netip.AddrPortFrom(serviceIP(program.IPv4, 3), 80)), lab.Answered)
}

// BenchmarkReadSuspects reads empty sets, as a daemon does five times a second.
func BenchmarkReadSuspects(b *testing.B) {
	n := newNamespace(b)
	e := n.engine(b)
	e.SetGlobals(contents.Globals{Unanswered: true, Refusing: true})
	mustApply(b, e)
	r, err := kernel.Dial(n.Fd())
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for b.Loop() {
		if _, err := inspect.ReadSuspects(r, kernel.Options{}.Served(), true); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAnswersNeedNoGoroutine: the kernel has answered when a request is sent, so nobody waits in a goroutine for each answer.
func TestAnswersNeedNoGoroutine(t *testing.T) {
	n := newNamespace(t)
	r, err := kernel.Dial(n.Fd())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	created := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(created)
	before := created[0].Value.Uint64()
	const questions = 1000
	for range questions {
		if _, err := r.Generation(); err != nil {
			t.Fatal(err)
		}
	}
	if metrics.Read(created); created[0].Value.Uint64()-before > questions/2 {
		t.Errorf("%d goroutines for %d questions", created[0].Value.Uint64()-before, questions)
	}
}
