package nft

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// movingKernel refuses a batch with a device that is not there, as the kernel does.
type movingKernel struct {
	kernel.NFTables
	gone  []string
	why   unix.Errno
	sizes []int // of the batches with devices
}

func (k *movingKernel) Send(b *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
	for _, m := range b.Messages {
		o := m.Operation
		if o == nil || o.Kind != program.AddFlowtable && o.Kind != program.DeleteFlowtable {
			continue
		}
		if len(o.Devices) > 0 {
			k.sizes = append(k.sizes, len(o.Devices))
		}
		if slices.ContainsFunc(o.Devices, func(name string) bool { return slices.Contains(k.gone, name) }) {
			why := &nlmsg.Ack{Seq: m.Seq, Errno: k.why}
			return kernel.Rejected, why, why.Err()
		}
	}
	return k.NFTables.Send(b)
}

// devices lists those of the flowtables of both families, in the order of the kernel.
func (m *Memory) devices(t *testing.T) (lists [2][]string) {
	t.Helper()
	for i, f := range program.Families() {
		list, err := m.kernel.Flowtables(f)
		if err != nil {
			t.Fatal(err)
		}
		lists[i] = slices.Sorted(slices.Values(list[program.FastPathTable].Devices))
	}
	return lists
}

// TestFollowDevices: both flowtables get the devices that are wanted, and lose the others. One that has just gone keeps no other one away
// and is no error; anything else is one.
func TestFollowDevices(t *testing.T) {
	m := OpenMemory(Options{})
	fastPathExample().install(t, m.Engine)
	k := &movingKernel{NFTables: m.kernel, why: unix.ENOENT}
	m.conn = k
	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprintf("veth%03d", i)
	}
	for _, step := range []struct {
		name         string
		wanted, gone []string
		why          unix.Errno
		have         []string
		err          error
	}{
		{name: "first ones", wanted: []string{"eth0", "veth1", "veth2"}, have: []string{"eth0", "veth1", "veth2"}},
		{name: "nothing new", wanted: []string{"eth0", "veth1", "veth2"}, have: []string{"eth0", "veth1", "veth2"}},
		{name: "some come, one of them is gone, and one goes", wanted: []string{"eth0", "veth2", "veth3", "veth4", "veth5"}, gone: []string{"veth4"}, why: unix.ENOENT,
			have: []string{"eth0", "veth2", "veth3", "veth5"}},
		{name: "one comes, and is gone", wanted: []string{"eth0", "veth2", "veth3", "veth5", "veth6"}, gone: []string{"veth6"}, why: unix.ENOENT,
			have: []string{"eth0", "veth2", "veth3", "veth5"}},
		{name: "the kernel cannot have one", wanted: []string{"eth0", "tun0", "veth7"}, gone: []string{"tun0"}, why: unix.EOPNOTSUPP,
			have: []string{"eth0", "veth7"}, err: unix.EOPNOTSUPP},
		{name: "one that goes is gone", wanted: []string{"eth0"}, gone: []string{"veth7"}, why: unix.ENOENT, have: []string{"eth0", "veth7"}},
		{name: "more than a transaction has", wanted: many, have: many},
		{name: "none", have: nil},
	} {
		k.gone, k.why, k.sizes = step.gone, step.why, nil
		if err := m.FollowDevices(step.wanted); !errors.Is(err, step.err) || step.err == nil && err != nil {
			t.Errorf("%s: %v, want %v", step.name, err, step.err)
		}
		if got := m.devices(t); !slices.Equal(got[0], step.have) || !slices.Equal(got[1], step.have) {
			t.Errorf("%s: the devices are %q, want %q", step.name, got, step.have)
		}
		if step.name == "nothing new" && len(k.sizes) > 0 || len(k.sizes) > 0 && slices.Max(k.sizes) > maxDevices {
			t.Errorf("%s: transactions with %d devices", step.name, k.sizes)
		}
	}
	bare := OpenMemory(Options{})
	mustApply(t, bare.Engine)
	if err := bare.FollowDevices([]string{"eth0"}); err != nil {
		t.Errorf("without the fast path: %v", err)
	}
}
