//go:build !nokernel

package nft

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

func restartEngine(t *testing.T, n *namespace) *Engine {
	e := n.engine(t)
	e.SetGlobals(packetGlobals())
	return e
}

// TestRestartChangesNothing restarts the engine. It gets the same ports in another order, and its first transaction has
// no element of a service port. So the counters go on.
func TestRestartChangesNothing(t *testing.T) {
	n := newNamespace(t)
	e := restartEngine(t, n)
	ports := append(restartPorts(program.IPv4), restartPorts(program.IPv6)...)
	mustSet(t, e, ports...)
	mustApply(t, e)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	before := n.list(t)
	count(t, n, ports[0])

	for range 3 {
		slices.Reverse(ports)
		e = restartEngine(t, n)
		mustSet(t, e, ports...)
		r := mustApply(t, e)
		if changes := portElements(r); len(changes) > 0 {
			t.Fatalf("the first transaction changes %d elements:\n%s", len(changes), strings.Join(changes[:min(20, len(changes))], "\n"))
		}
		if listed := n.nft(t, "list", "map", "ip", program.TableName, program.Services.Name()); !strings.Contains(listed, "counter packets 7 bytes 420") {
			t.Fatal("the counter of a frontend was lost")
		}
		compareListings(t, "before and after a restart", before, n.list(t))
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// count gives the counter of a port's frontend a value.
func count(t *testing.T, n *namespace, p contents.Port) {
	t.Helper()
	fe := p.Frontends[0]
	key := fe.Addr.String() + " . tcp . " + strconv.Itoa(int(fe.Port))
	listed := n.nft(t, "get", "element", "ip", program.TableName, program.Services.Name(), "{ "+key+" }")
	data, _, _ := strings.Cut(listed[strings.LastIndex(listed, " : ")+3:], " ")
	n.load(t, "delete element ip verdict services { "+key+" }\nadd element ip verdict services { "+key+
		" counter packets 7 bytes 420 comment \""+p.Name+"\" : "+data+" }\n")
}

// TestRestartWritesTheDifference restarts the engine with other ports, over tables in which others have edited elements.
// The first transaction has the difference only, and the kernel means what a new build means.
func TestRestartWritesTheDifference(t *testing.T) {
	n, other := newNamespace(t), newNamespace(t)
	e := restartEngine(t, n)
	ports := restartPorts(program.IPv4)
	mustSet(t, e, ports...)
	mustApply(t, e)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	n.load(t, "flush map ip verdict sticky-slots\nadd element ip verdict endpoints { 0:2 . 9 : 10.9.9.9 . 9 }\n"+
		"add element ip verdict services { 192.0.2.99 . tcp . 9 : 0:2 }\n")

	ports = slices.Delete(ports, 3, 4)
	ports[7].Cluster = ports[7].Cluster[1:]
	ports[10].Frontends = nil
	e = restartEngine(t, n)
	mustSet(t, e, ports...)
	r := mustApply(t, e)
	if n := len(portElements(r)); n == 0 || n > 60 {
		t.Errorf("%d elements change:\n%s", n, strings.Join(portElements(r), "\n"))
	}
	fresh := restartEngine(t, other)
	mustSet(t, fresh, ports...)
	mustApply(t, fresh)
	got, want := meaningOf(t, parseListing(t, n.list(t))), meaningOf(t, parseListing(t, other.list(t)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a new build means something else (- new build, + restart):\n%s", diff)
	}
}

// TestRestartDuringAnotherEngine: another engine writes the table after the first one has read it. The kernel refuses
// the difference, and the next Apply writes everything.
func TestRestartDuringAnotherEngine(t *testing.T) {
	n := newNamespace(t)
	first := restartEngine(t, n)
	mustSet(t, first, restartPorts(program.IPv4)...)
	mustApply(t, first)
	e := restartEngine(t, n)
	mustSet(t, e, restartPorts(program.IPv4)...)
	k := &meddlingKernel{NFTables: e.conn, meddle: func() {
		mustSet(t, first, manyPorts(program.IPv4, 50, 1)...)
		mustApply(t, first)
	}}
	e.conn = k
	if r, err := e.Apply(); r.Outcome != kernel.Rejected || err == nil {
		t.Fatalf("outcome %s, error %v", r.Outcome, err)
	}
	mustApply(t, e)
	if listed := n.list(t); strings.Contains(listed, "svc-50") {
		t.Error("the port of the other engine is still there")
	}
}

// meddlingKernel has something happen before the first batch.
type meddlingKernel struct {
	kernel.NFTables
	meddle func()
}

func (k *meddlingKernel) Send(b *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
	if k.meddle != nil {
		k.meddle()
		k.meddle = nil
	}
	return k.NFTables.Send(b)
}

// TestRestartFindsOtherRules has others replace a rule by another one while no engine is there.
func TestRestartFindsOtherRules(t *testing.T) {
	n := newNamespace(t)
	e := restartEngine(t, n)
	mustSet(t, e, restartPorts(program.IPv4)...)
	mustApply(t, e)
	before := n.list(t)
	replace := "flush chain ip verdict random-1\nadd rule ip verdict random-1 accept\n"
	n.load(t, replace)
	if intact, err := e.Intact(); intact || err != nil {
		t.Errorf("a chain with another rule: intact %t, %v", intact, err)
	}
	mustApply(t, e)
	compareListings(t, "after a repair", n.list(t), before)

	n.load(t, replace)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = restartEngine(t, n)
	mustSet(t, e, restartPorts(program.IPv4)...)
	mustApply(t, e)
	compareListings(t, "after a restart", n.list(t), before)
}
