//go:build !nokernel

package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// sourcesCase has ranges around one of x's addresses, and whether that address may connect.
type sourcesCase struct {
	name    string
	sources []netip.Prefix
	allowed bool
}

// neighbor is the range of a length beside the one that has the address: their last bits differ.
func neighbor(a netip.Addr, length int) netip.Prefix {
	b := a.AsSlice()
	b[(length-1)/8] ^= 0x80 >> ((length - 1) % 8)
	other, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(other, length).Masked()
}

// sourcesCases has a range of every length around an address, and ranges beside it.
func sourcesCases(a netip.Addr) []sourcesCase {
	at := func(length int) netip.Prefix { return netip.PrefixFrom(a, length) }
	bits := a.BitLen()
	list := []sourcesCase{
		{"none", nil, false},
		{"everyone", []netip.Prefix{at(0)}, true},
		{"nested", []netip.Prefix{at(bits / 2), at(bits / 4), at(bits / 4).Masked()}, true},
		{"nested, beside it", []netip.Prefix{neighbor(a, bits/4), neighbor(a, bits/2)}, false},
		{"many lengths", []netip.Prefix{neighbor(a, 9), neighbor(a, 16), neighbor(a, 17), at(bits)}, true},
	}
	// The first address of a short range is not the start of a longer one.
	short := at(bits / 4).Masked()
	list = append(list, sourcesCase{"a longer range with the same first address", []netip.Prefix{
		netip.PrefixFrom(short.Addr(), bits),
	}, false})
	for length := 1; length <= bits; length++ {
		list = append(list, sourcesCase{fmt.Sprintf("/%d", length), []netip.Prefix{at(length)}, true}) // not masked
		if length%program.LengthsEach < 2 {
			list = append(list, sourcesCase{fmt.Sprintf("/%d beside", length), []netip.Prefix{neighbor(a, length)}, false})
		}
	}
	return list
}

// TestSourceRanges gives each case a service port of its own, with a frontend that has a pool. A second frontend has
// none: its packets pass if its clients are allowed, and are reset by the refusal. Others get no answer.
func TestSourceRanges(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	e.SetGlobals(packetGlobals())
	for _, f := range program.Families() {
		for i, c := range sourcesCases(clientAddr(f)) {
			mustSet(t, e, sourcesPort(f, i, c.sources))
		}
		mustApply(t, e)
	}
	for _, f := range program.Families() {
		for i, c := range sourcesCases(clientAddr(f)) {
			t.Run(f.String()+"/"+c.name, func(t *testing.T) {
				t.Parallel() // a client waits when its packets are dropped
				want := map[bool][2]lab.Outcome{true: {lab.Answered, lab.Refused}, false: {lab.Dropped, lab.Dropped}}[c.allowed]
				for n, fe := range sourcesPort(f, i, c.sources).Frontends {
					q := question(tcp, netip.AddrPortFrom(fe.Addr, fe.Port))
					if q.From = clientAddr(f); !c.allowed {
						q.Patience = impatient
					}
					top.expectOutcome(t, lab.Outside, q, want[n])
				}
			})
		}
	}
}

func sourcesPort(f program.Family, i int, sources []netip.Prefix) contents.Port {
	served, unserved := external("192.0.2.1", uint16(1000+i)), external("192.0.2.1", uint16(2000+i))
	served.Addr, unserved.Addr = externalIP(f, 40), externalIP(f, 40)
	return contents.Port{
		Family: f, Name: fmt.Sprintf("test/ranges-%d:p", i), Protocol: tcp, Cluster: podEndpoints(f, "a"), Sources: sources,
		Frontends: []contents.Frontend{limited(served), limited(refused(unserved, program.Reject))},
	}
}

// TestSourceRangesChange changes the ranges of a service port in both directions. Others keep theirs.
func TestSourceRangesChange(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	for _, f := range program.Families() {
		client, bits := clientAddr(f), clientAddr(f).BitLen()
		other := sourcesPort(f, 1, []netip.Prefix{netip.PrefixFrom(client, bits)})
		mustSet(t, e, other)
		for step, c := range []sourcesCase{
			{"one address", []netip.Prefix{netip.PrefixFrom(client, bits)}, true},
			{"a shorter range", []netip.Prefix{netip.PrefixFrom(client, 8)}, true},
			{"one beside", []netip.Prefix{neighbor(client, 8)}, false},
			{"both", []netip.Prefix{neighbor(client, 8), netip.PrefixFrom(client, 9)}, true},
			{"none", nil, false},
			{"everyone", []netip.Prefix{everyone(f)}, true},
			{"the same again", []netip.Prefix{netip.PrefixFrom(client, bits)}, true},
		} {
			port := sourcesPort(f, 0, c.sources)
			mustSet(t, e, port)
			if r := mustApply(t, e); r.Full != (step == 0 && f == program.IPv4) {
				t.Errorf("%s, %s: the tables were written as a whole: %t", f, c.name, r.Full)
			}
			q, want := question(tcp, netip.AddrPortFrom(port.Frontends[0].Addr, port.Frontends[0].Port)), lab.Answered
			if !c.allowed {
				q.Patience, want = impatient, lab.Dropped
			}
			top.expectOutcome(t, lab.Outside, q, want)
			top.expectOutcome(t, lab.Outside, question(tcp, netip.AddrPortFrom(other.Frontends[0].Addr, other.Frontends[0].Port)), lab.Answered)
		}
	}
}

// TestSourceRangeGroups: a group of prefix lengths has a chain from when a range first needs it until everything is compared
// again. The chain comes in a transaction of its own, before the ranges. A chain that others change is repaired.
func TestSourceRangeGroups(t *testing.T) {
	for _, f := range program.Families() {
		x := newInterfered(t, 0)
		sends := &countingKernel{NFTables: x.engine.conn}
		x.engine.conn = sends
		apply := func(what string, bits, transactions int, groups ...string) {
			t.Helper()
			sends.sent = 0
			x.set(t, sourcesPort(f, 0, []netip.Prefix{netip.PrefixFrom(clientAddr(f), bits).Masked()}))
			r := mustApply(t, x.engine)
			if sends.sent != transactions {
				t.Errorf("%s: %d transactions, want %d:\n%s", what, sends.sent, transactions, r.Text())
			}
			wantGroups(t, x.namespace, f, groups...)
			if intact, err := x.engine.Intact(); !intact || err != nil {
				t.Errorf("%s: intact: %t, %v", what, intact, err)
			}
		}
		wantGroups(t, x.namespace, f)
		apply("the first range", 32, 2, "25-32")
		apply("the same group", 27, 1, "25-32")
		apply("another group", 9, 2, "25-32", "9-16")
		apply("back", 30, 1, "25-32", "9-16")

		before := x.listing(t)
		x.load(t, fmt.Sprintf("flush chain %s verdict source-ranges-25-32\ninsert rule %s verdict source-ranges drop", f, f))
		if _, err := x.engine.Repair(x.next(t)); err != nil {
			t.Fatal(err)
		}
		compareListings(t, "the chains are not as they were", x.listing(t), before)

		x.load(t, fmt.Sprintf("delete table %s verdict", f))
		if _, err := x.engine.Repair(x.next(t)); err != nil {
			t.Fatal(err)
		}
		wantGroups(t, x.namespace, f, "25-32")
	}
}

// countingKernel counts transactions.
type countingKernel struct {
	kernel.NFTables
	sent int
}

func (k *countingKernel) Send(b *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
	k.sent++
	return k.NFTables.Send(b)
}

// wantGroups checks which groups have a chain, and that these are the ones that the program looks at.
func wantGroups(t *testing.T, ns *namespace, f program.Family, groups ...string) {
	t.Helper()
	text := ns.nft(t, "list", "table", f.String(), "verdict")
	var chains, jumps []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "chain source-ranges-"); ok {
			chains = append(chains, strings.TrimSuffix(name, " {"))
		}
		if _, to, ok := strings.Cut(line, " jump source-ranges-"); ok {
			jumps = append(jumps, to)
		}
	}
	slices.Sort(chains)
	slices.Sort(jumps)
	slices.Sort(groups)
	if !slices.Equal(chains, groups) || !slices.Equal(jumps, groups) {
		t.Errorf("%s: chains %q, and jumps to %q; want %q", f, chains, jumps, groups)
	}
}
