//go:build !nokernel

package conntrack

import (
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

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
		route(6, "10.96.0.10:80", "10.0.0.1:8080"):  {Active: 2, Inactive: 5},
		route(6, "10.96.0.10:80", "10.0.0.2:8080"):  {Active: 1, Inactive: 0},
		route(6, "10.96.0.11:80", "10.0.0.2:8080"):  {Active: 0, Inactive: 1},
		route(17, "10.96.0.10:53", "10.0.0.1:5353"): {Active: 1, Inactive: 1},
		route(132, "10.96.0.10:90", "10.0.0.1:90"):  {Active: 1, Inactive: 1},
	}
	if got := n.count(t, state.IPv4); !maps.Equal(got, want) {
		t.Errorf("IPv4: counted %v, want %v", got, want)
	}
	want = map[Route]Load{route(6, "[fd00::10]:80", "[fd00:a::1]:8080"): {Active: 1, Inactive: 0}}
	if got := n.count(t, state.IPv6); !maps.Equal(got, want) {
		t.Errorf("IPv6: counted %v, want %v", got, want)
	}
}

// TestCountWays: flows of a route are told apart by their clients, and by whether the endpoint sees the client. Those of IPVS count if
// somebody asks for them, and those that nobody translated never do.
func TestCountWays(t *testing.T) {
	n := newNamespace(t)
	add := func(args string) {
		n.Must(t, "", "conntrack", strings.Fields("-I -p tcp --state ESTABLISHED --timeout 300 "+args)...)
	}
	const to = " --orig-dst 10.96.0.10 --orig-port-dst 80 --reply-src 10.96.0.10 --reply-port-src 80 --dst-nat 10.0.0.1:8080"
	add("--orig-src 10.9.0.1 --orig-port-src 1 --reply-dst 10.9.0.1 --reply-port-dst 1" + to)
	add("--orig-src 10.9.0.2 --orig-port-src 2 --reply-dst 10.9.0.2 --reply-port-dst 2" + to)
	add("--orig-src 10.9.0.2 --orig-port-src 3 --reply-dst 10.9.0.2 --reply-port-dst 3 --src-nat 192.168.7.1" + to)
	n.add(t, "tcp 10.9.0.1:1001 10.0.0.9:80 10.0.0.9:80", "tcp 10.9.0.1:1002 10.96.0.12:80 10.0.0.1:80 ipvs")
	last := func(client netip.Addr) uint8 { return client.As4()[3] }
	web := route(6, "10.96.0.10:80", "10.0.0.1:8080")
	want := map[Way]Load{{web, 1, false}: {Active: 1, Inactive: 0}, {web, 2, false}: {Active: 1, Inactive: 0}, {web, 2, true}: {Active: 1, Inactive: 0}}
	for _, ipvs := range []bool{false, true} {
		if ipvs {
			want[Way{route(6, "10.96.0.12:80", "10.0.0.1:80"), 1, false}] = Load{Active: 1}
		}
		got, err := CountWays(Options{NetNS: n.Fd()}, state.IPv4, ipvs, last)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("with IPVS %t: counted %v, want %v: %v", ipvs, got, want, err)
		}
	}
}

// TestCountConnections makes connections that a rule translates.
func TestCountConnections(t *testing.T) {
	n := newNamespace(t)
	n.Must(t, "addr add 10.0.0.1/32 dev lo\nroute add 10.96.0.0/16 dev lo\n", "ip", "-batch", "-")
	n.Must(t, "", "nft", "add table ip nat; add chain ip nat output { type nat hook output priority -100; }; "+
		"add rule ip nat output ip daddr 10.96.0.10 meta l4proto { tcp, udp } dnat to 10.0.0.1:8080")
	var conns []net.Conn
	n.MustDo(t, func() error {
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
	conns[0].Close() // waits for the other end
	want := map[Route]Load{route(6, "10.96.0.10:80", "10.0.0.1:8080"): {Active: 2, Inactive: 1}}
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got := n.count(t, state.IPv4)
		if maps.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("counted %v, want %v", got, want)
		}
	}
}
