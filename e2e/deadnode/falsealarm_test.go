//go:build e2e

package deadnode

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

var falseAlarmTime = flag.Duration("false-alarm-time", 8*time.Second, "how long each false alarm goes on")

// alarm is something that looks like a dead endpoint, but is none.
type alarm struct {
	name string
	// before prepares the world; nil: nothing. Begin makes it happen, while the load goes on.
	before func(*bed)
	begin  func(*bed)
	// from and rate are those of the load.
	from string
	rate int
	// noticed: the kernel must notice endpoints, or else the test shows nothing.
	noticed bool
	slow    bool // some connections take more than 300 ms
	// endpoints other than ten.
	endpoints []place
	said      string // what the log must say besides
}

func alarms() []alarm {
	slow := make(chan struct{})
	return []alarm{
		{name: "loss of 2 percent", from: lab.Outside, rate: 200, noticed: true, begin: func(b *bed) {
			b.rule(lab.Remote, "prerouting", -300, "numgen random mod 100 < 2 drop")
			b.rule("b", "prerouting", -300, "numgen random mod 100 < 2 drop")
		}},
		{name: "path of 300 ms", from: lab.Outside, rate: 50, slow: true, begin: (*bed).slowPath},
		{name: "backlog overflow", from: lab.Outside, rate: 50, noticed: true,
			before: func(b *bed) { b.busy(slow) }, begin: func(*bed) { close(slow) },
			endpoints: []place{{"a", 8080, lab.NodeName}, {"a", 8081, lab.NodeName}, {"c", 9, lab.RemoteNodeName}}},
		{name: "endpoint drops one client", from: lab.Outside, rate: 50, noticed: true, begin: func(b *bed) {
			b.rule("a", "input", 0, "ip saddr "+lab.PodAddress(lab.IPv4, "b").String()+" drop")
			l := b.load("b", vip(lab.IPv4), 10)
			b.t.Cleanup(func() { l.end() })
		}},
		{name: "policy keeps the node away", from: "a", rate: 50, noticed: true,
			before: func(b *bed) {
				b.rule("c", "input", 0, "ip saddr "+lab.MustText(lab.IPv4, "NODE_INNER")+" meta l4proto tcp drop")
			},
			begin: func(b *bed) { b.rule(lab.Remote, "prerouting", -300, "numgen random mod 100 < 10 drop") }},
		{name: "client sends SYNs and nothing more", from: lab.Outside, rate: 50, begin: func(b *bed) {
			// The client's own resets would end the connections at the endpoints.
			b.rule("y", "prerouting", -300, "tcp sport 80 drop")
			l := b.load("y", vip(lab.IPv4), 50)
			b.t.Cleanup(func() { l.end() })
		}},
		{name: "endpoints on many nodes fall at once", from: lab.Outside, rate: 50, noticed: true, before: (*bed).witness,
			begin:     func(b *bed) { b.silence("b", "c") },
			endpoints: []place{{"a", 8080, lab.NodeName}, {"b", 8080, "node-3"}, {"c", 8080, lab.RemoteNodeName}},
			said:      "endpoints of a Service on many nodes fell at the same time"},
		{name: "the node loses its network", from: lab.Outside, rate: 50, noticed: true, before: (*bed).witness,
			begin:     func(b *bed) { b.silence("b", "c", "d") },
			endpoints: []place{{"a", 8080, lab.NodeName}, {"b", 8080, "node-3"}, {"c", 8080, lab.RemoteNodeName}},
			said:      "this node has lost its network"},
		{name: "scan of the range of Services", from: lab.Outside, rate: 50, begin: (*bed).scan},
	}
}

// witness adds a Service of another namespace with an endpoint on a node of its own: pod d.
func (b *bed) witness() {
	b.write("witness.yaml", fmt.Sprintf(`---
{apiVersion: v1, kind: Service, metadata: {namespace: other, name: web}, spec: {clusterIPs: [10.96.0.200], ports: [{name: http, port: 80}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: other, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [%q], nodeName: node-4, conditions: {ready: true}}]
`, lab.PodAddress(lab.IPv4, "d")))
}

// silence has the node lose all packets from some pods.
func (b *bed) silence(pods ...string) {
	var list []string
	for _, p := range pods {
		list = append(list, lab.PodAddress(lab.IPv4, p).String())
	}
	b.rule(lab.Node, "prerouting", -300, "ip saddr { "+strings.Join(list, ", ")+" } drop")
}

// busy makes a server in pod c that accepts connections slowly once slow is closed, so that its queue is full.
func (b *bed) busy(slow <-chan struct{}) {
	var fd int
	b.At(b.t, "c").MustDo(b.t, func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Port: 9}), unix.Listen(fd, 1))
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, _, err := unix.Accept(fd)
			if err != nil {
				return
			}
			select {
			case <-slow:
				time.Sleep(300 * time.Millisecond)
			default:
			}
			_, _ = unix.Write(conn, []byte("x")) // a client that misses it reports it
			_ = unix.Close(conn)
		}
	}()
	b.t.Cleanup(func() {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR)
		<-done
		_ = unix.Close(fd)
	})
}

// slowPath has packets to pod c take 300 ms more, in a program that reads them from a device and writes them back: not
// every kernel has netem.
func (b *bed) slowPath() {
	const link, table = "slow", 101
	remote := b.At(b.t, lab.Remote)
	tun, err := remote.TUN(link)
	lab.Must(b.t, err)
	to := netip.PrefixFrom(lab.PodAddress(lab.IPv4, "c"), 32)
	err = errors.Join(
		remote.SetUp(link), remote.AddRoute(netns.Route{To: to, Link: "veth-c", Table: table}), remote.Divert(link, table),
	)
	lab.Must(b.t, err)
	remote.Must(b.t, "", "ip", "route", "replace", to.String(), "dev", link)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1<<16)
		for {
			n, err := tun.Read(buf)
			if err != nil {
				return // closed
			}
			packet := slices.Clone(buf[:n])
			time.AfterFunc(300*time.Millisecond, func() { _, _ = tun.Write(packet) }) // a packet that is lost is repeated
		}
	}()
	b.t.Cleanup(func() {
		_ = tun.Close()
		<-done
	})
}

// scan sends one packet to each of many addresses and ports of the range of Services, from outside, over and over.
func (b *bed) scan() {
	from, end := b.At(b.t, "y"), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			case <-time.After(2 * time.Millisecond):
			}
			to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(i >> 4), byte(11 + i%16)}), uint16(80+i%3))
			_ = from.Do(func() error {
				conn, err := net.DialTimeout("tcp", to.String(), time.Millisecond)
				if err == nil {
					err = conn.Close()
				}
				return err
			})
		}
	}()
	b.t.Cleanup(func() { close(end); <-done })
}

// TestFalseAlarms: nothing that only looks like a dead endpoint has one ejected. The proxy ejects endpoints in all of
// these tests: TestNodeVanishes shows that it would. The alarms go on side by side, each in a world of its own.
func TestFalseAlarms(t *testing.T) {
	for i, a := range alarms() {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			undisturbed(t, func() (*bed, error) { return alarms()[i].raise(t) })
		})
	}
}

// raise raises the alarm under load, and returns what is wrong then.
func (a alarm) raise(t *testing.T) (*bed, error) {
	if a.endpoints == nil {
		a.endpoints = tenEndpoints()
	}
	b := newBedAfter(t, a.before, eject, a.endpoints)
	if a.said != "" { // it is about endpoints that have answered
		b.untilAsked(a.endpoints)
	}
	l := b.load(a.from, vip(lab.IPv4), a.rate)
	time.Sleep(time.Second) // for the first looks
	a.begin(b)
	time.Sleep(*falseAlarmTime)
	const notices = "asking an endpoint"
	for _, text := range []string{a.said, map[bool]string{true: notices}[a.noticed]} {
		b.waitFor(text)
	}
	list := l.end()
	failed, slowest := 0, time.Duration(0)
	for _, at := range list {
		slowest = max(slowest, at.Took)
		if at.Outcome != rate.Answered {
			failed++
		}
	}
	text := b.process.Log(1_000_000)
	t.Logf("%d connections, %d failed; %d suspicions", len(list), failed, strings.Count(text, notices))
	switch {
	case a.slow && slowest < 300*time.Millisecond:
		return b, fmt.Errorf("the slowest connection took %s: the path is not slow", slowest)
	case strings.Contains(text, "get no new connections"):
		return b, errors.New("endpoints were ejected")
	case !a.noticed && strings.Contains(text, notices):
		return b, errors.New("the kernel noticed an endpoint")
	}
	return b, nil
}
