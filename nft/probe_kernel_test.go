//go:build !nokernel

package nft

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// TestProbe: this kernel has everything, and the probe leaves nothing behind.
func TestProbe(t *testing.T) {
	n := newNamespace(t)
	list, err := kernel.Probe(kernel.Options{NetNS: n.Fd()})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2*len(program.Features()) {
		t.Errorf("%d features, want %d in each family", len(list), len(program.Features()))
	}
	for _, x := range list {
		if x.Err != nil {
			t.Errorf("%s %s: %v", x.Family, x.Name, x.Err)
		}
	}
	if rules := n.nft(t, "list", "ruleset"); rules != "" {
		t.Errorf("the probe left this behind:\n%s", rules)
	}
}

// TestProbeRefusal has this kernel refuse something that no kernel knows. Only that is reported, and the tables of an
// engine stay as they are.
func TestProbeRefusal(t *testing.T) {
	n := newNamespace(t)
	e := n.engine(t)
	mustSet(t, e, manyPorts(program.IPv4, 0, 3)...)
	mustApply(t, e)
	before := n.list(t)
	list := append(program.Features(), program.Feature{Name: "hop", Module: "nft_hop_*", Base: program.Features()[0].Base, Rules: func(program.Program) []rule.Rule {
		return []rule.Rule{{rule.Statement{Exprs: []expr.Any{&expr.Dynset{SetName: "affinity", Operation: 77}}}}}
	}})
	result, err := kernel.TryFeatures(e.conn, []program.Family{program.IPv4, program.IPv6}, list)
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	for _, x := range result {
		if x.Err == nil {
			continue
		}
		missing = append(missing, x.Family.String()+" "+x.Name+" "+x.Module)
		if !errors.Is(x.Err, unix.EOPNOTSUPP) || !strings.Contains(x.Err.Error(), "verdict-probe") {
			t.Errorf("%s: %v", x.Name, x.Err)
		}
	}
	if got, want := strings.Join(missing, ", "), "ip hop nft_hop_ipv4, ip6 hop nft_hop_ipv6"; got != want {
		t.Errorf("missing: %s; want %s", got, want)
	}
	compareListings(t, "the probe changed the ruleset", n.list(t), before)
}

// withoutExpression is a kernel without the module of an expression.
type withoutExpression struct {
	kernel.NFTables
	name string
}

func (k withoutExpression) Send(b *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
	for _, m := range b.Messages {
		message := string(b.Buf[m.Start:])
		if (m.Operation.Kind == program.AddRule || m.Operation.Kind == program.AddSet) && strings.Contains(message[:nextMessage(message)], "\x01\x00"+k.name+"\x00") {
			return kernel.Rejected, &nlmsg.Ack{Seq: m.Seq, Errno: unix.ENOENT}, unix.ENOENT
		}
	}
	return k.NFTables.Send(b)
}

// nextMessage is the length of the message at the beginning of a batch.
func nextMessage(batch string) int {
	m := nlmsg.NewMessages([]byte(batch))
	m.Next()
	return nlmsg.HeaderSize + len(m.Body)
}

// TestProbeModules removes one module after the other from the kernel. The probe names it each time.
func TestProbeModules(t *testing.T) {
	n := newNamespace(t)
	c := n.engine(t).conn
	for _, name := range []string{"numgen", "hash", "ct", "fib", "reject", "nat", "masq", "limit", "dynset"} {
		result, err := kernel.TryFeatures(withoutExpression{c, name}, []program.Family{program.IPv4}, program.Features())
		if err != nil {
			t.Fatal(err)
		}
		missing := 0
		for _, x := range result {
			if x.Err == nil {
				continue
			}
			missing++
			if !strings.Contains(x.Module, "nft_"+name) && name != "dynset" {
				t.Errorf("without %s: the probe names %s of %s", name, x.Name, x.Module)
			}
		}
		if missing == 0 {
			t.Errorf("without %s: the probe finds nothing missing", name)
		}
	}
}

// faintKernel answers nothing but an error.
type faintKernel struct {
	kernel.NFTables
	err error
}

func (k faintKernel) Send(*kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
	return kernel.Unknown, nil, k.err
}

// TestProbeIsUnsure: a kernel that is short of memory, or a process without rights, says nothing about features.
func TestProbeIsUnsure(t *testing.T) {
	c := newNamespace(t).engine(t).conn
	for _, faint := range []error{unix.ENOBUFS, unix.ENOMEM, unix.EINTR, unix.EPERM, unix.EBUSY} {
		result, err := kernel.TryFeatures(faintKernel{c, faint}, []program.Family{program.IPv6}, program.Features())
		if !errors.Is(err, faint) || len(result) > 0 {
			t.Errorf("%v: %d features, error %v; want no features and this error", faint, len(result), err)
		}
	}
}

// BenchmarkProbe is what the start of verdict spends on a kernel that has everything.
func BenchmarkProbe(b *testing.B) {
	n := newNamespace(b)
	for b.Loop() {
		if _, err := kernel.Probe(kernel.Options{NetNS: n.Fd()}); err != nil {
			b.Fatal(err)
		}
	}
}
