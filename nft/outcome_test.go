//go:build !nokernel

package nft

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// lossyKernel loses batches on the way to the real kernel, or answers on the way back.
type lossyKernel struct {
	kernel.NFTables
	loseBatch, loseAnswer, failLookup bool
	refuse                            bool
}

func (k *lossyKernel) Send(b *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
	if k.loseBatch {
		return kernel.Unknown, nil, errLost
	}
	if k.refuse {
		return kernel.Rejected, &nlmsg.Ack{Seq: b.First, Errno: unix.EBUSY}, unix.EBUSY
	}
	outcome, why, err := k.NFTables.Send(b)
	if k.loseAnswer {
		return kernel.Unknown, nil, errLost
	}
	return outcome, why, err
}

func (k *lossyKernel) Lookup(f program.Family, set program.SetID, key []byte) (kernel.Found, bool, error) {
	if k.failLookup {
		return kernel.Found{}, false, unix.EINTR
	}
	return k.NFTables.Lookup(f, set, key)
}

// unknownChange is a change whose answer is lost.
type unknownChange struct {
	name string
	do   func(*testing.T, *Engine)
}

func unknownChanges() []unknownChange {
	return []unknownChange{
		{name: "a port added", do: func(t *testing.T, e *Engine) { mustSet(t, e, manyPorts(program.IPv6, 10, 1)...) }},
		{name: "a port deleted", do: func(_ *testing.T, e *Engine) { e.Delete(program.IPv4, "ns/svc-0:http") }},
		{name: "an endpoint replaced", do: func(t *testing.T, e *Engine) {
			p := manyPorts(program.IPv4, 0, 1)[0]
			p.Cluster[1] = endpoints("10.200.0.1:80")[0]
			mustSet(t, e, p)
		}},
		{name: "a sticky endpoint removed", do: func(t *testing.T, e *Engine) {
			p := stickyExample().ports[0]
			p.Local = p.Local[:1]
			mustSet(t, e, p)
		}},
		{name: "ranges", do: func(_ *testing.T, e *Engine) {
			e.SetGlobals(contents.Globals{ServiceCIDRs: prefixes("10.96.0.0/16")})
		}},
	}
}

// TestUnknownOutcome loses the batch before the commit, or the answer after it. The engine must find the right outcome,
// or report that it is unknown. The next Apply writes what differs, and then everything must be right.
func TestUnknownOutcome(t *testing.T) {
	lossy := map[string]*lossyKernel{
		"batch lost":                  {loseBatch: true},
		"answer lost":                 {loseAnswer: true},
		"batch and read-back lost":    {loseBatch: true, failLookup: true},
		"answer and read-back lost":   {loseAnswer: true, failLookup: true},
		"nothing lost, as comparison": {},
	}
	for _, change := range unknownChanges() {
		for loss, k := range lossy {
			t.Run(loss+", "+change.name, func(t *testing.T) {
				n := newNamespace(t)
				e := n.engine(t)
				mustSet(t, e, append(manyPorts(program.IPv4, 0, 20), stickyExample().ports...)...)
				mustApply(t, e)
				real := e.conn
				e.conn = &lossyKernel{NFTables: real, loseBatch: k.loseBatch, loseAnswer: k.loseAnswer, failLookup: k.failLookup}

				change.do(t, e)
				r, err := e.Apply()
				e.conn = real
				k.checkConclusion(t, change, r, err)
				again := mustApply(t, e)
				if again.Full != (r.Outcome != kernel.Applied) {
					t.Fatalf("outcome %s, and the next Apply wrote the whole tables: %t", r.Outcome, again.Full)
				}
				if again.Full && again.Added > 20 {
					t.Errorf("the next Apply wrote %d elements; want what differs", again.Added)
				}
				fresh := newNamespace(t)
				fresh.load(t, e.render())
				compareListings(t, "wrong in the end", n.list(t), fresh.list(t))
			})
		}
	}
}

// checkConclusion compares the outcome that the engine reports with the real one.
func (k *lossyKernel) checkConclusion(t *testing.T, change unknownChange, r Result, err error) {
	t.Helper()
	happened := kernel.Applied
	if k.loseBatch {
		happened = kernel.Rejected
	}
	lost := k.loseBatch || k.loseAnswer
	switch {
	case r.Outcome == kernel.Unknown && lost:
		if !errors.Is(err, errLost) {
			t.Fatalf("unknown with the error %v, which does not name the cause", err)
		}
		if !k.failLookup {
			t.Fatal("unknown, although the stamp in the kernel shows the outcome")
		}
	case r.Outcome != happened:
		t.Fatalf("outcome %s, but really %s", r.Outcome, happened)
	case k.failLookup && lost:
		t.Fatalf("outcome %s, although the engine could not know", r.Outcome)
	case (err != nil) != (r.Outcome != kernel.Applied):
		t.Fatalf("outcome %s with error %v", r.Outcome, err)
	}
}

// TestUnknownFirstApply loses the answer to the first transaction, which writes the whole tables.
func TestUnknownFirstApply(t *testing.T) {
	for _, k := range []lossyKernel{{loseAnswer: true}, {loseAnswer: true, failLookup: true}} {
		n := newNamespace(t)
		e := n.engine(t)
		k.NFTables = e.conn
		e.conn = &k
		mustSet(t, e, manyPorts(program.IPv4, 0, 5)...)
		r, err := e.Apply()
		if k.failLookup && (r.Outcome != kernel.Unknown || !errors.Is(err, errLost)) || !k.failLookup && (r.Outcome != kernel.Applied || err != nil) {
			t.Fatalf("read-back lost: %t; outcome %s, error %v", k.failLookup, r.Outcome, err)
		}
		e.conn = k.NFTables
		if again := mustApply(t, e); again.Full != k.failLookup {
			t.Fatalf("read-back lost: %t; the next Apply wrote the whole tables: %t", k.failLookup, again.Full)
		}
		fresh := newNamespace(t)
		fresh.load(t, e.render())
		compareListings(t, "wrong in the end", n.list(t), fresh.list(t))
	}
}

// TestStartOver has the kernel refuse the transactions that take tables over: the difference, and then everything. The
// next one deletes the tables first.
func TestStartOver(t *testing.T) {
	n := newNamespace(t)
	stickyExample().install(t, n.engine(t))
	n.nft(t, "add element ip verdict affinity { 0:2 . 77 timeout 1h : 0:2 }")
	e := n.engine(t)
	real := e.conn
	e.conn = &lossyKernel{NFTables: real, refuse: true}
	mustSet(t, e, manyPorts(program.IPv4, 0, 5)...)
	for _, what := range []string{"difference", "whole tables"} {
		if r, err := e.Apply(); r.Outcome != kernel.Rejected || !errors.Is(err, unix.EBUSY) {
			t.Fatalf("%s: outcome %s, error %v", what, r.Outcome, err)
		}
	}
	e.conn = real
	checkRepaired(t, n, e)
	n.nft(t, "add element ip verdict affinity { 0:2 . 77 timeout 1h : 0:2 }")
	e.SetGlobals(contents.Globals{MasqueradeAll: true}) // other rules
	if r := mustApply(t, e); !r.Full {
		t.Fatal("not written as a whole")
	}
	if listed := n.list(t); !strings.Contains(listed, "0:2 . 77 timeout 1h") {
		t.Fatal("affinity was lost although nothing was refused")
	}
}
