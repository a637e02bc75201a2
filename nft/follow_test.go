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
	sent  func() // is called after each batch; nil: nothing is
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
	outcome, ack, err := k.NFTables.Send(b)
	if k.sent != nil {
		k.sent()
	}
	return outcome, ack, err
}

// offered lists the devices by which connections are offered.
func (m *Memory) offered(t *testing.T) (lists [2][]string) {
	t.Helper()
	for i, f := range program.Families() {
		err := m.kernel.DumpElements(f, program.FastPathDevices, func(e kernel.Found) { lists[i] = append(lists[i], unix.ByteSliceToString(e.Key)) })
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(lists[i])
	}
	return lists
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
	k := &movingKernel{NFTables: m.kernel, why: unix.ENOENT, sent: func() {
		for i, names := range m.offered(t) {
			if wrong := lacking(names, m.devices(t)[i]); len(wrong) > 0 {
				t.Errorf("connections by %q are offered, which are not in the flowtable", wrong)
			}
		}
	}}
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
		_ = m.FollowDevices(step.wanted) // the error is that of before
		offered := lacking(step.have, lacking(step.have, step.wanted))
		if got := m.offered(t); !slices.Equal(got[0], offered) || !slices.Equal(got[1], offered) {
			t.Errorf("%s: connections by %q are offered, want %q", step.name, got, offered)
		}
	}
	bare := OpenMemory(Options{})
	mustApply(t, bare.Engine)
	if err := bare.FollowDevices([]string{"eth0"}); err != nil {
		t.Errorf("without the fast path: %v", err)
	}
}

// TestOffered: by which devices connections are offered follows the flowtable: through a restart, the edit of another process, a new
// flowtable, a transaction that the kernel refuses, and the end of the fast path.
func TestOffered(t *testing.T) {
	m := OpenMemory(Options{})
	fastPathExample().install(t, m.Engine)
	wanted := []string{"eth0", "veth1"}
	follow := func(times int) {
		for range times {
			if err := m.FollowDevices(wanted); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(when string, want ...string) {
		t.Helper()
		if got := m.offered(t); !slices.Equal(got[0], want) || !slices.Equal(got[1], want) {
			t.Errorf("%s: connections by %q are offered, want %q", when, got, want)
		}
	}
	follow(1)
	check("when the flowtable gets the devices")
	follow(1)
	check("a call later", wanted...)

	var err error
	if m, err = m.Restart(Options{}); err != nil {
		t.Fatal(err)
	}
	fastPathExample().install(t, m.Engine)
	check("after a restart", wanted...)
	follow(1)
	check("a call later", wanted...)

	edit := &program.Transaction{}
	for _, f := range program.Families() {
		w := edit.For(f)
		w.Remove(program.FastPathDevices, w.Element("", func(b *program.Builder) { b.Device("eth0") }, nil))
		w.Insert(program.FastPathDevices, w.Element("", func(b *program.Builder) { b.Device("lo") }, nil))
	}
	if _, err := kernel.SendAlone(m.kernel, edit); err != nil {
		t.Fatal(err)
	}
	check("after an edit of another process", "lo", "veth1")
	found := kernel.Interference{}
	for _, f := range program.Families() {
		found.At(kernel.TableSet{Family: f, Set: program.FastPathDevices}).Many = true
	}
	if _, err := m.Repair(found); err != nil {
		t.Fatal(err)
	}
	check("after the repair", wanted...)

	globals := fastPathExample().globals
	globals.FastPath = 0
	m.SetGlobals(globals)
	mustApply(t, m.Engine)
	check("without the fast path")
	m.SetGlobals(fastPathExample().globals)
	mustApply(t, m.Engine)
	check("with a new flowtable")
	follow(2)
	check("when it has devices", wanted...)

	refused := errors.New("refused")
	m.conn = &refusingKernel{m.kernel, refused}
	wanted = []string{"eth0"}
	if err := m.FollowDevices(wanted); !errors.Is(err, refused) {
		t.Errorf("a refusal is %v", err)
	}
	if got := m.devices(t); len(got[0]) != 2 {
		t.Errorf("a device is gone while connections by it are offered: %q", got)
	}
	m.conn = m.kernel
	follow(1)
	check("after the refusal", wanted...)
}

// refusingKernel refuses each batch.
type refusingKernel struct {
	kernel.NFTables
	why error
}

func (k *refusingKernel) Send(*kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
	return kernel.Rejected, nil, k.why
}
