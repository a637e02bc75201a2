//go:build !nokernel

package nft

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// narrow is a kernel that takes only one message in a batch. One of the batches goes wrong.
type narrow struct {
	kernel.NFTables
	batches int
	badAt   int // the number of that batch, counted from 1; 0: none
	bad     func(*narrow, *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error)
	after   func(batch int)
}

func (k *narrow) Capacity() int { return 1 }

func (k *narrow) Send(b *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
	k.batches++
	if k.batches == k.badAt {
		return k.bad(k, b)
	}
	outcome, why, err := k.NFTables.Send(b)
	if k.after != nil {
		k.after(k.batches)
	}
	return outcome, why, err
}

// TestParts writes tables in as many batches as possible. They must be the same as if written in one, and no packet may
// reach them before they are complete.
func TestParts(t *testing.T) {
	for _, x := range examples() {
		t.Run(x.name, func(t *testing.T) {
			whole, parts := newNamespace(t), newNamespace(t)
			x.install(t, whole.engine(t))
			e := parts.engine(t)
			hooked := 0 // the batch after which there are base chains
			k := &narrow{NFTables: e.conn, after: func(batch int) {
				if hooked == 0 && strings.Contains(parts.nft(t, "list", "chains"), " hook ") {
					hooked = batch
				}
			}}
			e.conn = k
			x.install(t, e)
			if k.batches < 3 || hooked != k.batches {
				t.Errorf("base chains came with batch %d of %d, want the last batch of several", hooked, k.batches)
			}
			compareListings(t, "written in parts and as a whole", parts.list(t), whole.list(t))
		})
	}
}

// TestPartsInterrupted: whatever happens to one of the batches, everything is right after the next Apply.
func TestPartsInterrupted(t *testing.T) {
	x := stickyExample()
	want := newNamespace(t)
	x.install(t, want.engine(t))
	for name, bad := range map[string]func(*narrow, *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error){
		"refused": func(_ *narrow, b *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
			return kernel.Rejected, &nlmsg.Ack{Seq: b.First, Errno: unix.EBUSY}, unix.EBUSY
		},
		"lost": func(*narrow, *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) { return kernel.Unknown, nil, errLost },
		"answer lost": func(k *narrow, b *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
			_, _, _ = k.NFTables.Send(b)
			return kernel.Unknown, nil, errLost
		},
	} {
		for at := 1; ; at++ {
			k := &narrow{badAt: at, bad: bad}
			t.Run(fmt.Sprintf("%s/%d", name, at), func(t *testing.T) { k.interrupt(t, x, want) })
			if k.batches < at {
				break // there are no more
			}
		}
	}
}

func (k *narrow) interrupt(t *testing.T, x example, want *namespace) {
	n := newNamespace(t)
	e := n.engine(t)
	k.NFTables = e.conn
	e.conn = k
	e.SetGlobals(x.globals)
	mustSet(t, e, x.ports...)
	r, err := e.Apply()
	if failed := k.batches == k.badAt; failed != (r.Outcome != kernel.Applied) || failed != (err != nil) || k.batches > k.badAt {
		t.Fatalf("batch %d of %d went wrong: outcome %s, error %v", k.badAt, k.batches, r.Outcome, err)
	}
	e.conn = k.NFTables
	mustApply(t, e)
	compareListings(t, "after the next apply", n.list(t), want.list(t))
}
