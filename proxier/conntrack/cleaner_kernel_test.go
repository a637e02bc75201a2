//go:build !nokernel

package conntrack

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestClean works on the kernel's table. A minus sign marks the flows that must go.
func TestClean(t *testing.T) {
	tests := []struct {
		name      string
		old, next *plan.Service
		flows     []string
	}{
		{"endpoint removed", service("10.96.0.10:53>10.0.0.1:53 10.0.0.2:53"), service("10.96.0.10:53>10.0.0.2:53"), []string{
			"-udp 10.9.0.1:1001 10.96.0.10:53 10.0.0.1:53",
			"-udp 10.9.0.2:1001 10.96.0.10:53 10.0.0.1:53",
			"udp 10.9.0.1:1002 10.96.0.10:53 10.0.0.2:53",
			"udp 10.9.0.1:1003 10.96.0.11:53 10.0.0.1:53",
			"udp 10.9.0.1:1004 10.96.0.10:54 10.0.0.1:53",
			"udp 10.9.0.1:1005 10.0.0.1:53 10.0.0.1:53",
			"tcp 10.9.0.1:1001 10.96.0.10:53 10.0.0.1:53",
			"sctp 10.9.0.1:1001 10.96.0.10:53 10.0.0.1:53",
		}},
		{"IPv6 endpoint removed", service("[fd00::10]:53>[fd00:a::1]:53"), service("[fd00::10]:53>[fd00:a::2]:53"), []string{
			"-udp [fd00:9::1]:1001 [fd00::10]:53 [fd00:a::1]:53",
			"udp [fd00:9::1]:1002 [fd00::10]:53 [fd00:a::2]:53",
			"udp [fd00:9::1]:1003 [fd00::11]:53 [fd00:a::1]:53",
			"tcp [fd00:9::1]:1001 [fd00::10]:53 [fd00:a::1]:53",
			"udp 10.9.0.1:1001 10.96.0.10:53 10.0.0.1:53",
		}},
		{"both families", service("10.96.0.10:53>10.0.0.1:53", "[fd00::10]:53>[fd00:a::1]:53"), service("10.96.0.10:53>", "[fd00::10]:53>"), []string{
			"-udp [fd00:9::1]:1001 [fd00::10]:53 [fd00:a::1]:53",
			"-udp 10.9.0.1:1001 10.96.0.10:53 10.0.0.1:53",
		}},
		{"scaled to zero", service("10.96.0.10:53 *4:30053>10.0.0.1:53"), service("10.96.0.10:53 *4:30053>"), []string{
			"-udp 10.9.0.1:1001 10.96.0.10:53 10.0.0.1:53",
			"-udp 10.9.0.1:1002 192.168.0.1:30053 10.0.0.1:53",
			"-udp 10.9.0.1:1003 192.168.0.2:30053 10.0.0.1:53",
			"udp 10.9.0.1:1004 192.168.7.7:30053 10.0.0.1:53",
			"udp 10.9.0.1:1005 192.168.7.8:30053 192.168.7.8:30053",
			"tcp 10.9.0.1:1006 192.168.0.1:30053 10.0.0.1:53",
		}},
		{"endpoints appear", service("10.96.0.10:53>"), service("10.96.0.10:53>10.0.0.1:53"), []string{
			"-udp 10.9.0.1:1001 10.96.0.10:53 10.96.0.10:53",
			"udp 10.9.0.1:1002 10.96.0.10:53 10.0.0.1:53",
			"udp 10.9.0.1:1003 10.96.0.10:53 10.96.0.10:53 7",
		}},
		{"an endpoint has the address and port of the frontend", service("10.96.0.10:53>10.96.0.10:53 10.0.0.1:53"), service("10.96.0.10:53>10.96.0.10:53"), []string{
			"-udp 10.9.0.1:1001 10.96.0.10:53 10.0.0.1:53",
			"udp 10.9.0.1:1002 10.96.0.10:53 10.96.0.10:53",
		}},
		{"node port moved", service("*4:30053>10.0.0.1:53"), service("*4:30054>10.0.0.1:53"), []string{
			"-udp 10.9.0.1:1001 192.168.0.1:30053 10.0.0.1:53",
			"-udp 10.9.0.1:1002 192.168.0.2:30054 192.168.0.2:30054",
			"udp 10.9.0.1:1003 192.168.0.2:30054 10.0.0.1:53",
		}},
		{"IPv6 node port", service("*6:30053>[fd00:a::1]:53"), service("*6:30053>[fd00:a::2]:53"), []string{
			"-udp [fd00:9::1]:1001 [fd00:1::1]:30053 [fd00:a::1]:53",
			"udp [fd00:9::1]:1002 [fd00:1::1]:30053 [fd00:a::2]:53",
			"udp [fd00:9::1]:1003 [fd00:7::7]:30053 [fd00:a::1]:53",
		}},
		{"Service removed", service("10.96.0.10:53>10.0.0.1:53"), service(), []string{
			"-udp 10.9.0.1:1001 10.96.0.10:53 10.0.0.1:53",
			"udp 10.9.0.1:1002 10.96.0.10:53 10.96.0.10:53",
		}},
		{"source ranges are tighter", service("from=10.0.0.0/8,192.0.2.7/32 203.0.113.1:53 *4:30053>10.0.0.1:53", "from=fd00::/8 [2001:db8::1]:53>[fd00:a::1]:53"),
			service("from=10.8.0.0/16,10.9.0.2/31,192.0.2.7/32 203.0.113.1:53 *4:30053>10.0.0.1:53", "from=fd00:9::/64 [2001:db8::1]:53>[fd00:a::1]:53"), []string{
				"-udp 10.9.0.1:1001 203.0.113.1:53 10.0.0.1:53",
				"udp 10.9.0.2:1001 203.0.113.1:53 10.0.0.1:53",
				"udp 10.9.0.3:1001 203.0.113.1:53 10.0.0.1:53",
				"-udp 10.9.0.4:1001 203.0.113.1:53 10.0.0.1:53",
				"udp 192.0.2.7:1001 203.0.113.1:53 10.0.0.1:53",
				"-udp 192.0.2.8:1001 203.0.113.1:53 10.0.0.1:53",
				"udp 10.9.0.1:1002 192.168.0.1:30053 10.0.0.1:53", // ranges do not hold for node ports
				"tcp 10.9.0.1:1001 203.0.113.1:53 10.0.0.1:53",
				"sctp 10.9.0.1:1001 203.0.113.1:53 10.0.0.1:53",
				"udp [fd00:9::1]:1001 [2001:db8::1]:53 [fd00:a::1]:53",
				"-udp [fd00:9:1::1]:1001 [2001:db8::1]:53 [fd00:a::1]:53",
			}},
		{"source ranges come", service("203.0.113.1:53>10.0.0.1:53"), service("from=10.8.0.0/16 203.0.113.1:53>10.0.0.1:53"), []string{
			"-udp 10.9.0.1:1001 203.0.113.1:53 10.0.0.1:53",
			"udp 10.8.0.1:1001 203.0.113.1:53 10.0.0.1:53",
		}},
		{"source ranges at an address that is forwarded without NAT", service("unchanged 203.0.113.1:53>10.0.0.1:53"),
			service("from=10.8.0.0/16 unchanged 203.0.113.1:53>10.0.0.1:53"), []string{
				"-udp 10.9.0.1:1001 203.0.113.1:53 203.0.113.1:53",
				"udp 10.8.0.1:1001 203.0.113.1:53 203.0.113.1:53",
			}},
		{"source ranges go", service("from=10.8.0.0/16 203.0.113.1:53>10.0.0.1:53"), service("203.0.113.1:53>10.0.0.1:53"), []string{
			"udp 10.9.0.1:1001 203.0.113.1:53 10.0.0.1:53",
		}},
		{"restart with source ranges", nil, service("from=10.8.0.0/16 203.0.113.1:53>10.0.0.1:53"), []string{
			"-udp 10.9.0.1:1001 203.0.113.1:53 10.0.0.1:53",
			"udp 10.8.0.1:1001 203.0.113.1:53 10.0.0.1:53",
		}},
		{"restart", nil, service("10.96.0.10:53 *4:30053>10.0.0.1:53", "10.96.0.11:53>"), []string{
			"udp 10.9.0.1:1001 10.96.0.10:53 10.0.0.1:53",
			"-udp 10.9.0.1:1002 10.96.0.10:53 10.0.0.2:53",
			"-udp 10.9.0.1:1003 10.96.0.11:53 10.0.0.1:53",
			"udp 10.9.0.1:1004 192.168.0.1:30053 10.0.0.1:53",
			"-udp 10.9.0.1:1005 192.168.0.1:30053 10.0.0.2:53",
		}},
	}
	for _, tt := range tests {
		for _, many := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/many=%v", tt.name, many), func(t *testing.T) {
				if many {
					addMany(tt.next)
				}
				n := newNamespace(t)
				var want []string
				for _, f := range tt.flows {
					if kept := !strings.HasPrefix(f, "-"); kept {
						want = append(want, strings.TrimSuffix(f, " 7"))
					}
					n.add(t, strings.TrimPrefix(f, "-"))
				}
				results, err := n.cleaner(t).Clean(stale(tt.old, tt.next), nodePortAddrs)
				if err != nil {
					t.Fatal(err)
				}
				slices.Sort(want)
				if got := n.flows(t); !slices.Equal(got, want) {
					t.Errorf("left:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				deleted := 0
				for _, r := range results {
					deleted += r.Deleted
				}
				if deleted != len(tt.flows)-len(want) {
					t.Errorf("%d flows reported as deleted, want %d", deleted, len(tt.flows)-len(want))
				}
			})
		}
	}
}

// TestRealTranslation has the kernel make the flows: packets to a Service's address, translated by NAT rules.
func TestRealTranslation(t *testing.T) {
	for _, family := range []struct{ name, vip, old, next, client string }{
		{"ip", "10.96.0.10", "192.0.2.1", "192.0.2.2", "0.0.0.0"},
		{"ip6", "fd00:96::10", "fd00:a::1", "fd00:a::2", "::"},
	} {
		t.Run(family.name, func(t *testing.T) {
			n := newNamespace(t)
			for _, a := range []string{family.old, family.next} {
				n.Must(t, "", "ip", "addr", "add", a, "dev", "lo")
			}
			n.Must(t, "", "ip", "route", "add", family.vip, "dev", "lo")
			vip, old, next := addrPort(family.vip), addrPort(family.old), addrPort(family.next)
			translate(t, n, family.name, family.vip, old)
			for port := 2000; port < 2003; port++ {
				sendUDP(t, n, netip.AddrPortFrom(netip.MustParseAddr(family.client), uint16(port)), vip)
			}
			expectAnswerer(t, n, old, 3)

			translate(t, n, family.name, family.vip, next)
			sendUDP(t, n, netip.AddrPortFrom(netip.MustParseAddr(family.client), 2000), vip)
			expectAnswerer(t, n, old, 3) // without a cleaning, the flow goes on to the old endpoint

			s := stale(service(vip.String()+">"+old.String()), service(vip.String()+">"+next.String()))
			if _, err := n.cleaner(t).Clean(s, nil); err != nil {
				t.Fatal(err)
			}
			expectAnswerer(t, n, old, 0)
			sendUDP(t, n, netip.AddrPortFrom(netip.MustParseAddr(family.client), 2000), vip)
			expectAnswerer(t, n, next, 1)
		})
	}
}

func translate(t *testing.T, n *namespace, family, vip string, to netip.AddrPort) {
	t.Helper()
	n.Must(t, fmt.Sprintf(`
		table %[1]s test
		delete table %[1]s test
		table %[1]s test {
			chain out {
				type nat hook output priority -100
				%[1]s daddr %[2]s udp dport 53 dnat to %[3]s
			}
		}`, family, vip, to), "nft", "-f", "-")
}

func sendUDP(t *testing.T, n *namespace, from, to netip.AddrPort) {
	t.Helper()
	n.MustDo(t, func() error {
		c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		return errors.Join(err, c.Close())
	})
}

// expectAnswerer counts the UDP flows that an endpoint answers.
func expectAnswerer(t *testing.T, n *namespace, endpoint netip.AddrPort, want int) {
	t.Helper()
	flows := n.flows(t)
	got := 0
	for _, f := range flows {
		w := strings.Fields(f)
		if w[0] == "udp" && w[3] == endpoint.String() && w[2] != w[3] {
			got++
		}
	}
	if got != want {
		t.Errorf("%d flows to %v, want %d:\n%s", got, endpoint, want, strings.Join(flows, "\n"))
	}
}

// TestManyFlows deletes more flows than go into one message, and looks through a big table.
func TestManyFlows(t *testing.T) {
	n := newNamespace(t)
	const each = 1500
	n.fill(t, each, "10.96.0.10", "10.0.0.1")
	n.fill(t, each, "10.96.0.11", "10.0.0.1")
	s := stale(service("10.96.0.10:53>10.0.0.1:53"), service("10.96.0.10:53>10.0.0.2:53"))
	results, err := n.cleaner(t).Clean(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 || results[0].Family != state.IPv4 || results[0].Deleted != each {
		t.Errorf("results %+v, want %d flows of IPv4", results, each)
	}
	if got := len(n.flows(t)); got != each {
		t.Errorf("%d flows left, want %d", got, each)
	}
}

// fill makes many UDP flows to port 53 of an address, answered by port 53 of an endpoint.
func (n *namespace) fill(t testing.TB, count int, dst, endpoint string) {
	t.Helper()
	n.MustDo(t, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer h.Close()
		d, e := netip.MustParseAddr(dst), netip.MustParseAddr(endpoint)
		for i := range count {
			client := netip.AddrFrom4([4]byte{10, d.As4()[3], byte(i >> 8), byte(i)})
			f := netlink.ConntrackFlow{
				FamilyType: nl.FAMILY_V4, TimeOut: 300,
				Forward: netlink.IPTuple{SrcIP: client.AsSlice(), DstIP: d.AsSlice(), SrcPort: uint16(i>>16) + 1000, DstPort: 53, Protocol: unix.IPPROTO_UDP},
				Reverse: netlink.IPTuple{SrcIP: e.AsSlice(), DstIP: client.AsSlice(), SrcPort: 53, DstPort: uint16(i>>16) + 1000, Protocol: unix.IPPROTO_UDP},
			}
			if err := h.ConntrackCreate(netlink.ConntrackTable, nl.FAMILY_V4, &f); err != nil {
				return fmt.Errorf("flow %d: %w", i, err)
			}
		}
		return nil
	})
}

// TestDeletesThisVeryFlow: a later flow with the same tuple has another number, and must stay.
func TestDeletesThisVeryFlow(t *testing.T) {
	n := newNamespace(t)
	const line = "udp 10.9.0.1:1001 10.96.0.10:53 10.0.0.1:53"
	n.add(t, line)
	c := n.cleaner(t)
	var key []byte
	if err := c.table.dump(state.IPv4, filter{protocol: unix.IPPROTO_UDP}, func(e *entry) { key = slices.Clone(e.key) }); err != nil {
		t.Fatal(err)
	}
	other := slices.Clone(key)
	other[len(other)-1] ^= 1 // the last attribute is the number
	removed, err := c.table.remove(state.IPv4, [][]byte{other})
	if got := n.flows(t); removed != 0 || err != nil || len(got) != 1 {
		t.Errorf("removing another flow: %d, %v, left %v", removed, err, got)
	}
	removed, err = c.table.remove(state.IPv4, [][]byte{key, key})
	if got := n.flows(t); removed != 1 || err != nil || len(got) != 0 {
		t.Errorf("removing a flow twice: %d, %v, left %v", removed, err, got)
	}
}

// TestRefusedDeletion: remove returns an error of the kernel, and still reads the other answers.
func TestRefusedDeletion(t *testing.T) {
	n := newNamespace(t)
	n.add(t, "udp 10.9.0.1:1001 10.96.0.10:53 10.0.0.1:53")
	c := n.cleaner(t)
	var good []byte
	if err := c.table.dump(state.IPv4, filter{protocol: unix.IPPROTO_UDP}, func(e *entry) { good = slices.Clone(e.key) }); err != nil {
		t.Fatal(err)
	}
	var bad request
	bad.Unnest(bad.Nest(attrTupleOrig)) // a tuple without addresses
	removed, err := c.table.remove(state.IPv4, [][]byte{bad.Buf, good})
	if removed != 1 || !errors.Is(err, unix.EINVAL) {
		t.Errorf("removed %d, error %v; want 1 and invalid argument", removed, err)
	}
}

// TestParseRefusesDamage: an entry must not be used if its key does not identify one flow, because a deletion without a
// tuple deletes all flows.
func TestParseRefusesDamage(t *testing.T) {
	n := newNamespace(t)
	n.add(t, "udp 10.9.0.1:1001 10.96.0.10:53 10.0.0.1:53")
	c := n.cleaner(t)
	k := c.table.(*kernel)
	var body []byte
	k.out.dump(state.IPv4, filter{protocol: unix.IPPROTO_UDP})
	if err := k.Send(k.out.Buf); err != nil {
		t.Fatal(err)
	}
	m, err := k.Receive()
	if err != nil || !m.Next() {
		t.Fatalf("no answer: %v", err)
	}
	body = slices.Clone(m.Body[nlmsg.FamilySize:])
	e := entry{Flow: Flow{Zone: 9}} // from the entry before
	if !e.parse(nlmsg.NewAttributes(body)) || len(e.key) == 0 || e.Zone != 0 {
		t.Fatalf("a complete entry is refused, or mixed up with the one before: %+v", e)
	}
	for cut := range len(body) {
		if e.parse(nlmsg.NewAttributes(body[:cut])) && (!e.Dst.IsValid() || !e.Reply.IsValid() || len(e.key) == 0) {
			t.Errorf("cut at %d: %+v", cut, e)
		}
	}
}

// BenchmarkClean measures the two ways between which maxFiltered decides: a question for one frontend, and a question
// for all UDP flows, in an empty and in a full table.
func BenchmarkClean(b *testing.B) {
	for _, flows := range []int{0, 50_000} {
		n := newNamespace(b)
		n.fill(b, flows, "10.96.0.99", "10.0.0.1")
		c := n.cleaner(b)
		for what, to := range map[string]filter{
			"one": {protocol: unix.IPPROTO_UDP, to: netip.MustParseAddrPort("10.96.0.10:53")}, "all": {protocol: unix.IPPROTO_UDP},
		} {
			b.Run(fmt.Sprintf("flows=%d/%s", flows, what), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := c.table.dump(state.IPv4, to, func(*entry) {}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// addMany adds so many frontends that Clean asks one question for all of them.
func addMany(s *plan.Service) {
	for i := range maxFiltered + 1 {
		s.Ports = append(s.Ports, service(fmt.Sprintf("10.97.0.%d:53>", i), fmt.Sprintf("[fd00:97::%d]:%d>", i, 1000+i)).Ports...)
	}
}

func addrPort(addr string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(addr), 53) }

// TestFormer reads flows of the real kernel. The test says which frontends the earlier process served.
func TestFormer(t *testing.T) {
	n := newNamespace(t)
	n.add(t,
		"udp 192.0.2.1:2000 10.96.0.10:53 10.0.0.1:53", "udp 192.0.2.1:2001 10.96.0.10:53 10.0.0.2:53",
		"udp 192.0.2.1:2002 10.96.0.11:53 10.0.0.1:53",
		"udp 192.0.2.1:2003 192.168.0.1:30053 10.0.0.1:53",
		"udp 192.0.2.1:2004 10.96.0.12:53 10.96.0.12:53",
		"tcp 192.0.2.1:2005 10.96.0.13:53 10.0.0.1:53",
		"udp [fd00::1]:2000 [fd00:96::10]:53 [fd00:a::1]:53",
	)
	served := []Frontend{
		frontend("10.96.0.10:53"), frontend("10.96.0.12:53"), frontend("10.96.0.13:53"), frontend("10.96.0.99:53"), frontend("[fd00:96::10]:53"),
		frontend("192.168.0.1:30053"),
	}
	asked := map[Frontend]int{}
	list, err := Former(Options{NetNS: n.Fd()}, func(f Frontend) (bool, error) {
		asked[f]++
		for _, s := range served {
			if s == f {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Frontend{frontend("10.96.0.10:53"), frontend("192.168.0.1:30053"), frontend("[fd00:96::10]:53")}
	if diff := cmp.Diff(show(want), show(list)); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
	for f, times := range asked {
		if times > 1 {
			t.Errorf("%v was asked for %d times", f, times)
		}
	}
	if _, asks := asked[frontend("10.96.0.99:53")]; asks {
		t.Error("a frontend without flows was asked for")
	}
}

// TestCleanByNamespace: a cleaning for one namespace leaves the flows of another one alone, which go with the next. What a cleaning
// of both took is the cause of the one with the flows.
func TestCleanByNamespace(t *testing.T) {
	n, tr := newNamespace(t), NewTracker()
	const flows = 20
	set := func(namespace, addr string, endpoint int) {
		tr.Set(state.Name{Namespace: namespace, Name: "dns"}, service(fmt.Sprintf("%s:53>10.0.0.%d:53", addr, endpoint)))
	}
	left := map[string]int{"10.96.0.10": flows, "10.96.0.11": 1}
	for addr, of := range map[string]string{"10.96.0.10": "hostile", "10.96.0.11": "shop"} {
		set(of, addr, 1)
		for i := range left[addr] {
			n.add(t, fmt.Sprintf("udp 10.9.0.1:%d %s:53 10.0.0.1:53", 1000+i, addr))
		}
	}
	settle(tr)
	set("hostile", "10.96.0.10", 2)
	set("shop", "10.96.0.11", 2)
	c := n.cleaner(t)
	clean := func(namespaces ...string) Stale {
		t.Helper()
		s := tr.Stale(namespaces...)
		if _, err := c.Clean(s, nil); err != nil {
			t.Fatal(err)
		}
		return s
	}
	both := clean("none", "shop") // of which the first one has nothing to clean
	if got := both.Causes(flowsOfWalk + 1); got["none"] != flowsOfWalk/2 || got["shop"] != flowsOfWalk/2+1 {
		t.Errorf("a flow and a walk are caused by %v", got)
	}
	tr.Done()
	if got := n.flows(t); len(got) != flows || !slices.Equal(tr.Waiting(), []string{"hostile"}) {
		t.Fatalf("left: %v; %v waits; want the flows of the other namespace", got, tr.Waiting())
	}
	set("shop", "10.96.0.11", 3)
	all := clean(tr.Waiting()...)
	if got := all.Causes(flowsOfWalk + flows); got["shop"] != flowsOfWalk/2 || got["hostile"] != flowsOfWalk/2+flows {
		t.Errorf("%d flows and a walk are caused by %v", flows, got)
	}
	if tr.Done(); len(n.flows(t)) > 0 || len(tr.Waiting()) > 0 {
		t.Errorf("left: %v; %v waits", n.flows(t), tr.Waiting())
	}
}
