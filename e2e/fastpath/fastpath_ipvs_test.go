//go:build ipvs

package fastpath

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// way is how packets come to the Service.
type way struct {
	family   lab.Family
	protocol lab.Protocol
	place    string
	name     string
	port     uint16
}

func ways() (list []way) {
	for _, f := range lab.Families() {
		for _, p := range []lab.Protocol{lab.TCP, lab.UDP} {
			list = append(list, way{f, p, "a", "VIP1", servicePort}, way{f, p, lab.Outside, "NODE", nodePort})
		}
	}
	return list
}

func (w way) String() string { return fmt.Sprintf("%s %s %s", w.family, w.protocol, w.name) }

func (w way) to() netip.AddrPort { return lab.AddressPort(w.family, w.name, w.port) }

func (w way) question() lab.Question {
	return lab.Question{Protocol: w.protocol, To: w.to(), Patience: patience}
}

// open opens a connection and makes it pass so many packets that it may take the fast path.
func (b *bed) open(t *testing.T, w way) *lab.Flow {
	t.Helper()
	flow, _ := b.At(t, w.place).Hold(t, w.question())
	exchange(t, flow, after)
	return flow
}

// takes waits until a connection is on the fast path. The kernel takes connections out when a route changes, such as when a link comes up,
// and lets them in again with a later answer.
func (b *bed) takes(t *testing.T, w way, exchange func(), from ...int) {
	t.Helper()
	lab.Eventually(t, w.String()+" takes the fast path", func() error {
		line := b.track(w.family, w.protocol, w.to(), from...)
		if offloaded(line) {
			return nil
		}
		exchange()
		return fmt.Errorf("the connection is %q", line)
	})
}

// TestOffload: a connection takes the fast path after some packets, and not before. Then no chain sees its packets, and the answers are
// as before: the endpoint sees the same source, masqueraded or not.
func TestOffload(t *testing.T) {
	b := newBed(t, "")
	b.World.Node.Must(t, counter, "nft", "-f", "-")
	for _, w := range ways() {
		t.Run(w.String(), func(t *testing.T) {
			flow, answer := b.At(t, w.place).Hold(t, w.question())
			exchange(t, flow, 2)
			if line := b.track(w.family, w.protocol, w.to()); line == "" || offloaded(line) {
				t.Fatalf("after a few packets, the connection is %q, want one that is not on the fast path", line)
			}
			exchange(t, flow, after)
			b.takes(t, w, func() { exchange(t, flow, 1) })
			lab.Eventually(t, "the forward hook sees no packets", func() error {
				before := b.seen()
				for range 20 {
					if r := flow.Send(patience); r.Outcome != lab.Answered || r.Answer != answer {
						t.Fatalf("on the fast path, a question ends with %s, want the answer %v", r, answer)
					}
				}
				if n := b.seen() - before; n > 2 { // an acknowledgment that was on its way
					return fmt.Errorf("it sees %d of 40", n)
				}
				return nil
			})
			flow.Close()
		})
	}
	if text := b.Log(1000); strings.Contains(text, "level=ERROR") || strings.Contains(text, "fast path") {
		t.Error(text)
	}
}

// stays reports an error if a connection leaves the rules.
func (b *bed) stays(t *testing.T, w way, why string) {
	t.Helper()
	b.open(t, w)
	if line := b.track(w.family, w.protocol, w.to()); line == "" || offloaded(line) {
		t.Errorf("%s: with %s, the connection is %q", w, why, line)
	}
}

// TestKeptAway: the annotation keeps a Service away, and a connection that another table has translated never takes the fast path.
func TestKeptAway(t *testing.T) {
	b := newBed(t, `verdict-proxy.github.io/fast-path: "off"`)
	for _, w := range ways() {
		b.stays(t, w, "the annotation")
	}
	b.World.Node.Must(t, fmt.Sprintf(`table ip other { chain d { type nat hook prerouting priority -101; ip daddr %s tcp dport 9999 dnat to %s:8080; }
		chain m { type nat hook postrouting priority 101; ct status dnat masquerade; }
		}`,
		lab.MustText(lab.IPv4, "NODE"), lab.MustText(lab.IPv4, "C")), "nft", "-f", "-")
	b.stays(t, way{lab.IPv4, lab.TCP, lab.Outside, "NODE", 9999}, "DNAT by another table")
}

// ends waits until a connection is not on the fast path any more, and fails if that takes much longer than the kernel's look at all
// connections, which it has each second. Under Linux 7.3, one that has ended stays there until no packet has come for 30 s.
func (b *bed) ends(t *testing.T, w way, what string, from ...int) {
	t.Helper()
	began := time.Now()
	lab.Eventually(t, fmt.Sprintf("%s leaves the fast path after %s", w, what), func() error {
		if line := b.track(w.family, w.protocol, w.to(), from...); offloaded(line) {
			return fmt.Errorf("the connection is %q", line)
		}
		return nil
	})
	limit := 2 * time.Second
	if isLinux(t, 7, 1) {
		limit += 30 * time.Second
	}
	if took := time.Since(began); took > emulated*limit {
		t.Errorf("%s: after %s, the connection is on the fast path for %v", w, what, took)
	}
}

// emulated is how much longer steps take on an emulated processor.
const emulated = 3

// TestEnd: connections that end by themselves leave the fast path, and those to an endpoint that is gone end as they would without it.
func TestEnd(t *testing.T) {
	b := newBed(t, `verdict-proxy.github.io/on-removal: "reset"`)
	for _, w := range ways()[:2] {
		conn := b.dial(t, w)
		lab.Must(t, conn.Close())
		b.ends(t, w, "FIN", port(conn))
		if line := b.track(w.family, w.protocol, w.to(), port(conn)); strings.Contains(line, "ESTABLISHED") {
			t.Errorf("connection tracking has not seen the end: %q", line)
		}
		conn = b.dial(t, w)
		lab.Must(t, conn.SetLinger(0), conn.Close())
		b.ends(t, w, "RST", port(conn))
	}
	tcp, udp := ways()[0], way{lab.IPv6, lab.UDP, "a", "VIP1", servicePort}
	open, flow := b.open(t, tcp), b.open(t, udp)
	b.web(`verdict-proxy.github.io/on-removal: "reset"`, "d")
	lab.Eventually(t, "the connection to the endpoint that is gone ends", func() error {
		if r := open.Send(time.Second); r.Outcome != lab.Broken {
			return fmt.Errorf("the question ends with %s", r)
		}
		return nil
	})
	lab.Eventually(t, "the flow goes to the endpoint that is left", func() error {
		if r := flow.Send(time.Second); r.Outcome != lab.Answered || r.Answer.Pod != "d" {
			return fmt.Errorf("the question ends with %s %s", r, r.Answer.Pod)
		}
		return nil
	})
}

// dial opens a connection of TCP that takes the fast path.
func (b *bed) dial(t *testing.T, w way) *net.TCPConn {
	t.Helper()
	conn, err := b.At(t, w.place).DialContext(t.Context(), "tcp", w.to().String())
	lab.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ask(t, conn, "?\n", after)
	b.takes(t, w, func() { ask(t, conn, "?\n", 1) }, port(conn))
	return conn.(*net.TCPConn)
}

// port is the client's.
func port(conn net.Conn) int { return conn.LocalAddr().(*net.TCPAddr).Port }

// ask sends lines and reads an answer to each. The server has sent one before.
func ask(t *testing.T, conn net.Conn, line string, times int) {
	t.Helper()
	lab.Must(t, conn.SetDeadline(time.Now().Add(patience)))
	answer := make([]byte, 1000)
	for range times {
		_, err := conn.Write([]byte(line))
		_, errRead := conn.Read(answer)
		lab.Must(t, err, errRead)
	}
}

// TestHairpin: an endpoint reaches itself through the Service.
func TestHairpin(t *testing.T) {
	b := newBed(t, "")
	b.web("", "a")
	for _, f := range lab.Families() {
		w := way{f, lab.TCP, "a", "VIP1", servicePort}
		lab.Eventually(t, "the endpoint serves", func() error {
			if r := b.At(t, "a").Ask(w.question()); r.Outcome != lab.Answered || r.Answer.Pod != "a" {
				return fmt.Errorf("the question ends with %s", r)
			}
			return nil
		})
		exchange(t, b.open(t, w), after)
	}
}

// TestMTU: the path to the endpoint gets a smaller MTU while a connection is on the fast path.
func TestMTU(t *testing.T) {
	b := newBed(t, "")
	for _, w := range []way{ways()[0], {lab.IPv6, lab.TCP, "a", "VIP1", servicePort}} {
		conn := b.dial(t, w)
		large := strings.Repeat("x", 20000) + "\n"
		ask(t, conn, large, 3)
		b.World.Node.Must(t, "", "ip", "link", "set", lab.InnerLink, "mtu", "1300")
		ask(t, conn, large, 3)
		b.World.Node.Must(t, "", "ip", "link", "set", lab.InnerLink, "mtu", "1500")
	}
}

// TestCheckNamesForeignChains: "verdict check" names the chains of others whose rules packets on the fast path skip, and no others.
func TestCheckNamesForeignChains(t *testing.T) {
	b := newBed(t, "")
	b.World.Node.Must(t, `table inet foreign {
		chain marks { type filter hook postrouting priority 0; ip dscp set cs1; }
		chain first { type nat hook postrouting priority 90; tcp dport 1 accept; }
		chain input { type filter hook input priority 0; tcp dport 1 drop; }
		chain empty { type filter hook forward priority 0; }
	}`, "nft", "-f", "-")
	text, _ := b.World.Node.Command(binary, "check", "--fast-path=services", "--backend=nft", "--manifests="+b.Manifests) // other findings do not matter
	want := "connections on the fast path skip the rules of inet foreign marks: "
	if !strings.Contains(text, want) {
		t.Errorf("verdict check prints\n%s\nwant %q", text, want)
	}
	if text, _ := b.World.Node.Command(binary, "check", "--backend=nft", "--manifests="+b.Manifests); strings.Contains(text, "fast path") {
		t.Errorf("without the option, verdict check prints\n%s", text)
	}
}

// TestDevices: devices that come get the fast path, and one that goes while others come fails nothing, nor does it keep a change of a
// Service waiting.
func TestDevices(t *testing.T) {
	b := newBed(t, "")
	for round := range 5 {
		b.World.Node.Must(t, "", "sh", "-c", `
			for i in 1 2 3 4 5 6 7 8; do ip link add late-$i type veth peer name peer-$i; done
			for i in 1 2 3 4 5 6 7; do ip link delete late-$i; done`)
		pod := []string{"d", "c"}[round%2]
		b.web("", pod)
		b.untilAt(t, pod)
		b.untilDevices("late-8")
		b.untilDevices("peer-8")
		b.World.Node.Must(t, "", "ip", "link", "delete", "late-8")
	}
	lab.Eventually(t, "the fast path has no device that is gone", func() error {
		for _, text := range b.devices() {
			if strings.Contains(text, "late-") {
				return fmt.Errorf("the flowtable is %q", text)
			}
		}
		return nil
	})
	b.dial(t, ways()[0])
	if text := b.Log(1000); strings.Contains(text, "level=ERROR") {
		t.Error(text)
	}
}

// TestRepair: what others do to the flowtable and its devices is undone.
func TestRepair(t *testing.T) {
	b := newBed(t, "")
	b.World.Node.Must(t, "flush chain ip verdict to-fast-path; delete flowtable ip verdict fast-path", "nft", "-f", "-")
	b.untilDevices(lab.OutsideLink)
	b.World.Node.Must(t, fmt.Sprintf("delete flowtable ip verdict fast-path { hook ingress priority 0; devices = { %s }; }", lab.OutsideLink), "nft", "-f", "-")
	b.untilDevices(lab.OutsideLink)
	for _, family := range []string{"ip", "ip6"} {
		b.World.Node.Must(t, fmt.Sprintf("delete element %s verdict fast-path-devices { %q }; add element %[1]s verdict fast-path-devices { \"lo\" }",
			family, lab.OutsideLink), "nft", "-f", "-")
	}
	b.untilDevices(lab.OutsideLink)
	lab.Eventually(t, "no connection by lo is offered", func() error {
		if text := b.devices(); strings.Contains(text[0]+text[1], `"lo"`) {
			return fmt.Errorf("the devices are %q", text)
		}
		return nil
	})
	b.dial(t, ways()[0])
}

// TestOff: a restart without the option removes everything, and connections go on.
func TestOff(t *testing.T) {
	b := newBed(t, "")
	flow := b.open(t, ways()[0])
	lab.Must(t, b.Stop())
	b.run("--fast-path=off")
	if text := b.World.Node.Must(t, "", "nft", "list", "ruleset"); strings.Contains(text, "flowtable") || strings.Contains(text, "flow add") || strings.Contains(text, lab.OutsideLink) {
		t.Errorf("the ruleset is\n%s", text)
	}
	b.ends(t, ways()[0], "a restart without the option")
	exchange(t, flow, 5)
}
