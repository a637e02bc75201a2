package conntrack

import (
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func route(protocol uint8, dst, reply string) Route {
	return Route{protocol, netip.MustParseAddrPort(dst), netip.MustParseAddrPort(reply)}
}

func (n *namespace) count(t *testing.T, family state.Family) map[Route]Load {
	t.Helper()
	loads, err := Count(Options{NetNS: n.Fd()}, family)
	if err != nil {
		t.Fatal(err)
	}
	return loads
}

// TestCount puts flows in every state into the kernel's table.
func TestCount(t *testing.T) {
	n := newNamespace(t)
	if got := n.count(t, state.IPv4); len(got) != 0 {
		t.Fatalf("an empty table counts %v", got)
	}
	sport := 1000
	translated := func(src, dst, dport, to, rest string) {
		sport++
		port := strconv.Itoa(sport)
		args := "-I " + rest + " --timeout 300 --orig-src " + src + " --orig-dst " + dst + " --orig-port-src " + port + " --orig-port-dst " + dport +
			" --reply-src " + dst + " --reply-dst " + src + " --reply-port-src " + dport + " --reply-port-dst " + port + " --dst-nat " + to
		n.Must(t, "", "conntrack", strings.Fields(args)...)
	}
	const tcp, udp, sctp = "-p tcp --state ", "-p udp", "-p sctp --orig-vtag 1 --reply-vtag 2 --state "
	for _, s := range []string{"ESTABLISHED", "ESTABLISHED", "SYN_SENT", "FIN_WAIT", "CLOSE_WAIT", "TIME_WAIT", "CLOSE"} {
		translated("10.9.0.1", "10.96.0.10", "80", "10.0.0.1:8080", tcp+s)
	}
	translated("10.9.0.1", "10.96.0.10", "80", "10.0.0.2:8080", tcp+"ESTABLISHED")
	translated("10.9.0.1", "10.96.0.11", "80", "10.0.0.2:8080", tcp+"LAST_ACK")
	translated("10.9.0.1", "10.96.0.10", "53", "10.0.0.1:5353", udp)
	translated("10.9.0.1", "10.96.0.10", "53", "10.0.0.1:5353", udp+" -u SEEN_REPLY,ASSURED")
	translated("10.9.0.1", "10.96.0.10", "90", "10.0.0.1:90", sctp+"ESTABLISHED")
	translated("10.9.0.1", "10.96.0.10", "90", "10.0.0.1:90", sctp+"COOKIE_WAIT")
	translated("fd00:9::1", "fd00::10", "80", "[fd00:a::1]:8080", tcp+"ESTABLISHED")
	n.add(t, "tcp 10.9.0.1:1001 10.0.0.9:80 10.0.0.9:80", "tcp [fd00:9::1]:1001 [fd00:a::9]:80 [fd00:a::9]:80",
		"tcp 10.9.0.1:1002 10.96.0.12:80 10.0.0.1:80 ipvs")

	want := map[Route]Load{
		route(6, "10.96.0.10:80", "10.0.0.1:8080"):  {2, 5},
		route(6, "10.96.0.10:80", "10.0.0.2:8080"):  {1, 0},
		route(6, "10.96.0.11:80", "10.0.0.2:8080"):  {0, 1},
		route(17, "10.96.0.10:53", "10.0.0.1:5353"): {1, 1},
		route(132, "10.96.0.10:90", "10.0.0.1:90"):  {1, 1},
	}
	if got := n.count(t, state.IPv4); !maps.Equal(got, want) {
		t.Errorf("IPv4: counted %v, want %v", got, want)
	}
	want = map[Route]Load{route(6, "[fd00::10]:80", "[fd00:a::1]:8080"): {1, 0}}
	if got := n.count(t, state.IPv6); !maps.Equal(got, want) {
		t.Errorf("IPv6: counted %v, want %v", got, want)
	}
}

// TestCountConnections makes connections that a rule translates.
func TestCountConnections(t *testing.T) {
	n := newNamespace(t)
	n.Must(t, "addr add 10.0.0.1/32 dev lo\nroute add 10.96.0.0/16 dev lo\n", "ip", "-batch", "-")
	n.Must(t, "", "nft", "add table ip nat; add chain ip nat output { type nat hook output priority -100; }; "+
		"add rule ip nat output ip daddr 10.96.0.10 meta l4proto { tcp, udp } dnat to 10.0.0.1:8080")
	var conns []net.Conn
	err := n.Run(func() error {
		l, err := net.Listen("tcp", "10.0.0.1:8080")
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		for range 3 {
			c, err := net.Dial("tcp", "10.96.0.10:80")
			if err != nil {
				return err
			}
			t.Cleanup(func() { c.Close() })
			conns = append(conns, c)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	conns[0].Close() // waits for the other end
	want := map[Route]Load{route(6, "10.96.0.10:80", "10.0.0.1:8080"): {2, 1}}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got := n.count(t, state.IPv4)
		if maps.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("counted %v, want %v", got, want)
		}
	}
}

// TestCountedFlow reads entries that lack attributes.
func TestCountedFlow(t *testing.T) {
	var w nlmsg.Writer
	tuple := func(kind uint16, src, dst string) {
		whole, ip := w.Nest(kind), w.Nest(tupleIP)
		w.Bytes(ipv4Src, netip.MustParseAddr(src).AsSlice())
		w.Bytes(ipv4Dst, netip.MustParseAddr(dst).AsSlice())
		w.Unnest(ip)
		proto := w.Nest(tupleProto)
		w.Uint8(protoNum, unix.IPPROTO_TCP)
		w.Unnest(proto)
		w.Unnest(whole)
	}
	tuple(attrTupleOrig, "10.9.0.1", "10.96.0.10")
	tuple(attrTupleReply, "10.0.0.1", "10.9.0.1")
	var f countedFlow
	if f.parse(nlmsg.NewAttributes(w.Buf)) {
		t.Error("a flow without a status counts as translated")
	}
	w.Uint32(attrStatus, statusDNAT)
	for cut := range w.Buf {
		f = countedFlow{}
		if f.parse(nlmsg.NewAttributes(w.Buf[:cut])) {
			t.Errorf("cut to %d of %d bytes it still counts", cut, len(w.Buf))
		}
	}
	if f = (countedFlow{}); !f.parse(nlmsg.NewAttributes(w.Buf)) || f.active() {
		t.Errorf("read as %+v, want a translated flow that is not active, because it has no state", f)
	}
}
