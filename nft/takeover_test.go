//go:build !nokernel

package nft

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestTakeoverKeepsAffinity restarts the engine. The new engine gets the service ports in another order, with other
// ports before them, and with changes. Clients stay with their endpoints, because tokens stay the same.
func TestTakeoverKeepsAffinity(t *testing.T) {
	forEachKind(t, func(t *testing.T, top *topology, e *Engine, f program.Family, protocol uint8) {
		port, at := stickyPort(f, protocol, time.Hour), places(f)
		port.Name = "test/" + strings.Repeat("long", 40) + ":p" // longer than a comment
		mustSet(t, e, append(otherSticky(f), port)...)
		mustApply(t, e)
		first := top.askAll(t, f, protocol, at[0])
		tokens := top.tokens(t, f)

		for restart := range 3 {
			e = top.node.engine(t)
			e.SetGlobals(packetGlobals())
			mustSet(t, e, append(manyPorts(f, 0, 10), port)...)
			mustSet(t, e, otherSticky(f)...)
			mustApply(t, e)
			if now := top.tokens(t, f); !slices.Equal(now, tokens) {
				t.Fatalf("restart %d: tokens changed from %v to %v", restart, tokens, now)
			}
			first.expectSame(t, top.askAll(t, f, protocol, at[restart]), fmt.Sprintf("after restart %d", restart))
		}
		gone := port.Cluster[2]
		port.Cluster = append(port.Cluster[:2:2], port.Cluster[3:]...)
		e = top.node.engine(t)
		mustSet(t, e, port)
		mustApply(t, e)
		kept := first.without(gone)
		kept.expectSame(t, top.askAll(t, f, protocol, at[0]), "after a restart that removed another endpoint")
	})
}

// otherSticky are ports that could take the numbers of others.
func otherSticky(f program.Family) []contents.Port {
	list := manyPorts(f, 100, 5)
	for i := range list {
		list[i].Affinity = time.Minute
	}
	return list
}

// tokens lists the elements of the map of tokens.
func (top *topology) tokens(t *testing.T, f program.Family) []string {
	t.Helper()
	listed := parseListing(t, top.node.nft(t, "list", "map", f.String(), program.TableName, program.StickyEndpoints.Name()))
	return listed[f.String()+" map "+program.StickyEndpoints.Name()].Elements
}

// TestTakeoverReplaces starts an engine over tables in different states. Afterwards, our tables are as if there had
// been none, and the tables of other programs are as before.
func TestTakeoverReplaces(t *testing.T) {
	// "%" stands for the end of a line, which nft requires after each block.
	script := func(s string) string { return strings.NewReplacer("%", "\n", "\n", " ").Replace(s) }
	others := script(`
		table ip other {% map services { type ipv4_addr : verdict; elements = { 10.0.0.1 : goto there };% }%
			chain there { counter accept;% }%
			chain in { type nat hook prerouting priority dstnat; policy accept; ip daddr vmap @services;% }% }%
		table inet verdict {% chain input { type filter hook input priority 0; policy accept;% ct state new accept;% }% }%
		table ip6 nat {% chain postrouting { type nat hook postrouting priority srcnat; policy accept;% masquerade;% }% }%`)
	tests := map[string]string{
		"nothing": "",
		"stale chains and sets": `table ip verdict {% comment "verdict layout 1"%
			set stale { type ipv4_addr; elements = { 10.0.0.1 };% }%
			map dispatch { type classid : verdict; elements = { 1:0 : goto random-77, 2:0 : goto random-78 };% }%
			chain random-77 { ip saddr @stale drop;% }%
			chain random-78 { goto random-77;% }%
			chain nat-prerouting { type nat hook prerouting priority 42; policy drop;% jump random-78;% }% }%`,
		"verdict maps under our names": `table ip6 verdict {% comment "verdict layout 1"%
			map services { type ipv6_addr : verdict; elements = { fd00::1 : goto x };% }%
			chain x { counter;% }% }%`,
		"affinity by address": `table ip verdict {% comment "verdict layout 1"%
			map affinity { typeof meta priority . ip saddr : meta priority; size 1048576; flags dynamic,timeout;
				elements = { 0:2 . 10.0.0.1 timeout 3h : 10:2 };% }%
			chain recall { meta priority set meta priority . ip saddr map @affinity;% }% }%`,
		"refusals without limits": `table ip verdict {% comment "verdict layout 1"%
			set holds-refusals { type ipv4_addr . inet_proto . inet_service; counter; elements = { 10.96.0.1 . tcp . 80 };% }%
			set held-back { type ipv4_addr . inet_service; size 65536; flags dynamic,timeout; counter;
				elements = { 10.0.0.1 . 80 timeout 3h };% }%
			chain refusal-tcp { meta l4proto tcp ct original ip saddr . ct original proto-src @held-back return;%
				ip daddr . meta l4proto . th dport @holds-refusals drop;% }% }%`,
		"another layout": `table ip verdict {% comment "verdict layout 99"%
			map affinity { type ipv4_addr : ipv4_addr; flags dynamic,timeout; size 10;% }%
			chain x { type filter hook input priority 0; policy accept;% drop;% }% }%`,
		"no comment": `table ip6 verdict {% chain x { type filter hook input priority 0; policy accept;% drop;% }%
			chain y { jump z;% }%
			chain z { counter;% }% }%`,
		"empty": `table ip verdict {% comment "verdict layout 1"% }%`,
	}
	fresh := newNamespace(t)
	fresh.load(t, others)
	kindsExample().install(t, fresh.engine(t))
	for name, found := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNamespace(t)
			n.load(t, others+script(found))
			kindsExample().install(t, n.engine(t))
			compareListings(t, "not the same as without earlier tables", n.list(t), fresh.list(t))
			stickyExample().install(t, n.engine(t))
			kindsExample().install(t, n.engine(t))
			want, got := meaningOf(t, parseListing(t, fresh.list(t))), meaningOf(t, parseListing(t, n.list(t)))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("not the same after two more takeovers (- wanted, + got):\n%s", diff)
			}
		})
	}
}

func TestCleanup(t *testing.T) {
	n := newNamespace(t)
	options := Options{NetNS: n.Fd()}
	if err := kernel.Cleanup(kernel.Options{NetNS: options.NetNS}); err != nil {
		t.Fatalf("without tables: %v", err)
	}
	n.load(t, "table inet verdict {\n}\ntable ip other {\n}")
	others := n.list(t)
	stickyExample().install(t, n.engine(t))
	if err := kernel.Cleanup(kernel.Options{NetNS: options.NetNS}); err != nil {
		t.Fatal(err)
	}
	if now := n.list(t); now != others {
		t.Fatalf("after the cleanup:\n%s\nwanted:\n%s", now, others)
	}
	if err := kernel.Cleanup(kernel.Options{NetNS: options.NetNS}); err != nil {
		t.Fatalf("a second time: %v", err)
	}
}
