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

// pickyKernel refuses every batch that adds the pool of one service port.
type pickyKernel struct {
	kernel.NFTables
	name  string
	errno unix.Errno
	mute  bool // it does not say which element of a message it refuses
	sent  int
}

func (k *pickyKernel) Send(b *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
	k.sent++
	for _, m := range b.Messages {
		if m.Operation != nil || m.Set != program.Pools || m.Deletion {
			continue
		}
		for i, e := range m.Elements(b.Tx) {
			if e.Label == k.name {
				why := &nlmsg.Ack{Seq: m.Seq, Errno: k.errno, Offset: b.OffsetOf(m, i)}
				if k.mute {
					why.Offset = 0
				}
				return kernel.Rejected, why, why.Err()
			}
		}
	}
	return k.NFTables.Send(b)
}

// TestRefusedPort: when the kernel refuses the tables as a whole because of one service port, the error names the port,
// and without the port everything else is written, in the tables that are there.
func TestRefusedPort(t *testing.T) {
	m := OpenMemory(Options{})
	ports := manyPorts(program.IPv4, 0, 40)
	mustSet(t, m.Engine, ports[:10]...)
	mustApply(t, m.Engine)
	m.conn = &pickyKernel{NFTables: m.kernel, name: ports[23].Name, errno: unix.EINVAL}

	mustSet(t, m.Engine, ports[10:]...)
	var refused *RefusedError
	if r, err := m.Apply(); r.Outcome != kernel.Rejected || r.Full || errors.As(err, &refused) {
		t.Fatalf("a change: full %t, error %v; want a rejection that may be the fault of others", r.Full, err)
	}
	if r, err := m.Apply(); !r.Full || !errors.As(err, &refused) || refused.Port != (contents.PortID{Family: program.IPv4, Name: ports[23].Name}) {
		t.Fatalf("full %t, error %v; want one that names %s", r.Full, err, ports[23].Name)
	}
	m.Delete(refused.Port.Family, refused.Port.Name)
	if text := mustApply(t, m.Engine).Text(); strings.Contains(text, "delete table") {
		t.Errorf("the tables were made again, without the affinity of clients:\n%s", text)
	}
	if n := m.tables[0].Want.Count(program.Pools); n != 39 {
		t.Errorf("%d ports are served, want 39", n)
	}
	for _, p := range append(ports[:23:23], ports[24:]...) {
		if !strings.Contains(m.String(), `comment "`+p.Name+`"`) {
			t.Errorf("%s is not served", p.Name)
		}
	}
}

// forgetful is a kernel whose lists leave out endpoints, as while it resizes their map.
type forgetful struct{ kernel.NFTables }

func (k forgetful) DumpElements(f program.Family, set program.SetID, found func(kernel.Found)) error {
	if set == program.Endpoints {
		return nil
	}
	return k.NFTables.DumpElements(f, set, found)
}

// TestRefusedDifference: the kernel refuses a difference that was read wrongly. No service port is to blame.
func TestRefusedDifference(t *testing.T) {
	m := OpenMemory(Options{})
	ports := manyPorts(program.IPv4, 0, 3)
	mustSet(t, m.Engine, ports...)
	mustApply(t, m.Engine)
	m.conn, m.mode = forgetful{m.kernel}, comparing
	changed := ports[1]
	changed.Cluster = endpoints("10.9.9.9:80")
	mustSet(t, m.Engine, changed)
	var refused *RefusedError
	if r, err := m.Apply(); r.Outcome != kernel.Rejected || errors.As(err, &refused) {
		t.Fatalf("outcome %v, error %v; want a rejection that names no service port", r.Outcome, err)
	}
	mustApply(t, m.Engine)
	if text := m.String(); !strings.Contains(text, "10.9.9.9") {
		t.Errorf("the change is missing:\n%s", text)
	}
}

// TestRefusedForLackOfMemory: no service port is to blame.
func TestRefusedForLackOfMemory(t *testing.T) {
	m := OpenMemory(Options{})
	m.conn = &pickyKernel{NFTables: m.kernel, name: "ns/svc-3:http", errno: unix.ENOMEM}
	mustSet(t, m.Engine, manyPorts(program.IPv4, 0, 5)...)
	var refused *RefusedError
	if r, err := m.Apply(); !r.Full || !errors.Is(err, unix.ENOMEM) || errors.As(err, &refused) {
		t.Fatalf("full %t, error %v; want an error that names no service port", r.Full, err)
	}
}

// TestRefusedWithoutName: the kernel says only which message it refuses. The engine finds the element with one more
// transaction, however many elements the message has.
func TestRefusedWithoutName(t *testing.T) {
	m := OpenMemory(Options{})
	ports := manyPorts(program.IPv4, 0, 2000)
	mustSet(t, m.Engine, ports...)
	k := &pickyKernel{NFTables: m.kernel, name: ports[1234].Name, errno: unix.EINVAL, mute: true}
	mustApply(t, m.Engine)
	m.conn = k
	m.mode = replacing
	var refused *RefusedError
	r, err := m.Apply()
	if !errors.As(err, &refused) || refused.Port != (contents.PortID{Family: program.IPv4, Name: ports[1234].Name}) {
		t.Fatalf("full %t, error %v; want one that names %s", r.Full, err, ports[1234].Name)
	}
	if k.sent != 2 {
		t.Errorf("%d transactions, want 2", k.sent)
	}
	m.Delete(refused.Port.Family, refused.Port.Name)
	mustApply(t, m.Engine)
	if n := m.tables[0].Want.Count(program.Pools); n != 1999 {
		t.Errorf("%d ports are served, want 1,999", n)
	}
}

// fullKernel has no memory for batches that are larger than its limit.
type fullKernel struct {
	kernel.NFTables
	limit int
	sizes []int // of the batches
}

func (k *fullKernel) Send(b *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
	k.sizes = append(k.sizes, len(b.Buf))
	if len(b.Buf) > k.limit {
		for _, m := range b.Messages {
			if m.Operation == nil {
				why := &nlmsg.Ack{Seq: m.Seq, Errno: unix.ENOMEM}
				return kernel.Rejected, why, why.Err()
			}
		}
	}
	return k.NFTables.Send(b)
}

// TestChangesWithoutMemory: a memory limit lets the kernel refuse a large change. The engine then writes the difference,
// and never the tables as a whole, which would need far more memory. A smaller change succeeds.
func TestChangesWithoutMemory(t *testing.T) {
	m := OpenMemory(Options{})
	ports := manyPorts(program.IPv4, 0, 1000)
	mustSet(t, m.Engine, ports[:900]...)
	mustApply(t, m.Engine)
	k := &fullKernel{NFTables: m.kernel, limit: 1000}
	m.conn = k
	mustSet(t, m.Engine, ports[900:]...)
	for range 3 {
		r, err := m.Apply()
		if r.Outcome != kernel.Rejected || !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "memory limit of the pod") {
			t.Fatalf("%s: %v", r.Outcome, err)
		}
	}
	for i, size := range k.sizes {
		if size > k.sizes[0]*2 {
			t.Errorf("attempt %d has %d bytes, the change has %d", i+1, size, k.sizes[0])
		}
	}
	for _, p := range ports[901:] {
		m.Delete(p.Family, p.Name)
	}
	if r := mustApply(t, m.Engine); r.Bytes > k.limit {
		t.Errorf("%d bytes were written, want the difference", r.Bytes)
	}
	if !strings.Contains(m.String(), `comment "`+ports[900].Name+`"`) {
		t.Errorf("%s is not served", ports[900].Name)
	}
}
