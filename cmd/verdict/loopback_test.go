//go:build !nokernel

package main

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/nft/program"
)

// neighborhood is a node and another host on the same link. A service of the node listens on all addresses, so also on
// 127.0.0.1. The other host sends packets for 127.0.0.1 to the node all the time.
type neighborhood struct {
	node, neighbor *netns.Namespace
	manifests      string
	wanted         atomic.Int64 // packets to the node's own address that the service got
	unwanted       atomic.Int64 // packets to 127.0.0.1 that the service got
}

const (
	nodeAddress   = "192.0.2.1"
	servicePort   = 7777
	routeLocalnet = "net.ipv4.conf.all.route_localnet"
)

func newNeighborhood(t *testing.T) *neighborhood {
	t.Helper()
	n := &neighborhood{node: netns.New(t), neighbor: netns.Bare(t), manifests: t.TempDir()}
	for _, err := range []error{
		n.node.Quiet(), n.neighbor.Quiet(), netns.Connect(n.node, "eth0", n.neighbor, "eth0"),
		n.node.AddAddress("eth0", netip.MustParsePrefix(nodeAddress+"/24")),
		n.neighbor.AddAddress("eth0", netip.MustParsePrefix("192.0.2.2/24")),
		n.neighbor.Sysctl(routeLocalnet + "=1"), n.node.Sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// The neighbor's own loopback link is down, so that it can have a route to 127.0.0.1.
	n.neighbor.Must(t, "", "ip", "route", "add", "127.0.0.1/32", "via", nodeAddress, "dev", "eth0")
	n.listen(t)
	n.send(t)
	return n
}

func (n *neighborhood) listen(t *testing.T) {
	t.Helper()
	n.node.MustDo(t, func() error {
		l, err := net.ListenUDP("udp4", &net.UDPAddr{Port: servicePort})
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go n.count(l)
		return nil
	})
}

func (n *neighborhood) count(l *net.UDPConn) {
	text := make([]byte, 100)
	for {
		length, err := l.Read(text)
		switch {
		case err != nil:
			return // the test is over
		case string(text[:length]) == nodeAddress:
			n.wanted.Add(1)
		default:
			n.unwanted.Add(1)
		}
	}
}

// send sends one packet to 127.0.0.1 and then one to the node's address, every millisecond until the test ends.
func (n *neighborhood) send(t *testing.T) {
	t.Helper()
	to := []string{"127.0.0.1", nodeAddress}
	conns := make([]net.Conn, len(to))
	n.neighbor.MustDo(t, func() (err error) {
		for i := range to {
			if conns[i], err = net.Dial("udp4", net.JoinHostPort(to[i], strconv.Itoa(servicePort))); err != nil {
				return err
			}
		}
		return nil
	})
	ticker, stop, stopped := time.NewTicker(time.Millisecond), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			for i, c := range conns {
				_, _ = c.Write([]byte(to[i])) // fails while the neighbor has no answer to its ARP request
			}
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		ticker.Stop()
		for _, c := range conns {
			c.Close()
		}
	})
}

// expect waits until the kernel has the sysctl and the tables, and until the node got further packets. Since the last
// call, none of those to 127.0.0.1 may have reached the service.
func (n *neighborhood) expect(t *testing.T, stage, sysctl string, tables ...string) {
	t.Helper()
	is, want := "", fmt.Sprint(sysctl, tables)
	for end := time.Now().Add(3 * time.Minute); is != want; time.Sleep(10 * time.Millisecond) {
		if is = fmt.Sprint(n.sysctl(t), n.tables(t)); time.Now().After(end) {
			t.Fatalf("%s: the kernel has %s, want %s", stage, is, want)
		}
	}
	if got := n.unwantedPackets(t); got != 0 {
		t.Errorf("%s: %d packets to 127.0.0.1 reached the service", stage, got)
	}
}

// unwantedPackets returns how many packets to 127.0.0.1 reached the service since the last call. It waits for packets
// that were sent after those.
func (n *neighborhood) unwantedPackets(t *testing.T) int64 {
	t.Helper()
	enough := n.wanted.Load() + 20
	await(t, "packets to the node's address", func() bool { return n.wanted.Load() >= enough })
	return n.unwanted.Swap(0)
}

func (n *neighborhood) sysctl(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(n.node.Must(t, "", "sysctl", "-n", routeLocalnet))
}

// tables lists the tables of IPv4. The one with the program has a "+" when it has the guard.
func (n *neighborhood) tables(t *testing.T) []string {
	t.Helper()
	var list []string
	for _, part := range strings.Split(n.node.Must(t, "", "nft", "list", "chains", "ip"), "table ip ")[1:] {
		name, chains, _ := strings.Cut(part, " ")
		if name == program.TableName && strings.Contains(chains, "loopback-guard") {
			name += "+"
		}
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// The tables at the stages of the tests.
const (
	plainTable   = program.TableName
	guardedTable = program.TableName + "+"
	guardTable   = program.LoopbackTableName
)

// confined runs a command with a read-only /proc/sys, as a container runtime does.
const confined = `mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec "$0" "$@"`

// process is a running proxy.
type process struct {
	cmd *exec.Cmd
	log syncBuffer
}

// started waits until the proxy has written its tables. Those of an earlier one may be there before.
func (p *process) started(t *testing.T) {
	t.Helper()
	await(t, "the proxy has written its tables", func() bool { return strings.Contains(p.log.String(), "tables written") })
}

// daemon starts a proxy.
func (n *neighborhood) daemon(t *testing.T, nodePorts string, shell ...string) *process {
	t.Helper()
	args := slices.Concat(shell, []string{binary, "run", "--backend=nft", "--manifests=" + n.manifests,
		"--nodeport-addresses=" + nodePorts, "--healthz-bind-address=", "--metrics-bind-address="})
	p := &process{cmd: exec.Command(args[0], args[1:]...)}
	p.cmd.Stderr = &p.log
	if len(shell) > 0 {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	}
	n.node.MustDo(t, p.cmd.Start)
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	return p
}

// end ends the proxy and returns what it logged.
func (p *process) end(s syscall.Signal) string {
	_ = p.cmd.Process.Signal(s) // it may have ended by itself
	_ = p.cmd.Wait()            // its error is the signal
	return p.log.String()
}

func (n *neighborhood) run(t *testing.T, args ...string) {
	t.Helper()
	n.node.Must(t, "", binary, append([]string{"run", "--backend=nft"}, args...)...)
}

const (
	localhost = "primary,localhost"
	primary   = "primary"
)

// TestNeighborNeverReachesLoopback goes through the life of node ports on 127.0.0.1. The neighbor sends all the time,
// also between the stages.
func TestNeighborNeverReachesLoopback(t *testing.T) {
	n := newNeighborhood(t)
	n.expect(t, "before", "0")
	p := n.daemon(t, localhost)
	n.expect(t, "running", "1", guardedTable, guardTable)
	p.end(syscall.SIGTERM)
	n.expect(t, "stopped", "1", guardedTable, guardTable)
	p = n.daemon(t, primary)
	n.expect(t, "the flag is gone", "0", plainTable)
	p.end(syscall.SIGTERM)
	n.run(t, "--cleanup")
	n.expect(t, "after the first cleanup", "0")

	p = n.daemon(t, localhost)
	n.expect(t, "running again", "1", guardedTable, guardTable)
	p.end(syscall.SIGKILL)
	n.expect(t, "killed", "1", guardedTable, guardTable)
	n.run(t, "--cleanup")
	n.expect(t, "after the second cleanup", "0")

	n.node.Must(t, "", "sysctl", "-qw", routeLocalnet+"=1")
	if n.unwantedPackets(t); n.unwantedPackets(t) == 0 {
		t.Error("without the guard no packet to 127.0.0.1 reaches the service: this test cannot fail")
	}
}

// TestSysctlOfOthersStays: someone else has set the sysctl before. The guard comes and goes, the sysctl stays.
func TestSysctlOfOthersStays(t *testing.T) {
	n := newNeighborhood(t)
	n.node.Must(t, "", "sysctl", "-qw", routeLocalnet+"=1")
	for range 2 { // the second one finds the record of the first one
		p := n.daemon(t, localhost)
		p.started(t)
		n.unwantedPackets(t)
		n.expect(t, "running", "1", guardedTable, guardTable)
		p.end(syscall.SIGKILL)
	}
	n.run(t, "--cleanup")
	if got := fmt.Sprint(n.sysctl(t), n.tables(t)); got != "1[]" {
		t.Errorf("after the cleanup the kernel has %s, want 1[]", got)
	}
}

// TestLoopbackWithoutARecord: someone deleted the table with the record, or an earlier version never wrote it.
func TestLoopbackWithoutARecord(t *testing.T) {
	for name, next := range map[string]func(*testing.T, *neighborhood){
		"the flag is gone": func(t *testing.T, n *neighborhood) {
			n.daemon(t, primary)
			n.expect(t, "the flag is gone", "0", plainTable)
		},
		"cleanup": func(t *testing.T, n *neighborhood) {
			n.run(t, "--cleanup")
			n.expect(t, "after the cleanup", "0")
		},
		"the flag stays": func(t *testing.T, n *neighborhood) {
			n.daemon(t, localhost).end(syscall.SIGKILL)
			p := n.daemon(t, localhost)
			n.expect(t, "running again", "1", guardedTable, guardTable)
			p.end(syscall.SIGTERM)
			n.run(t, "--cleanup")
			n.expect(t, "after the cleanup", "0")
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNeighborhood(t)
			p := n.daemon(t, localhost)
			n.expect(t, "running", "1", guardedTable, guardTable)
			p.end(syscall.SIGKILL)
			n.node.Must(t, "", "nft", "delete", "table", "ip", guardTable)
			n.expect(t, "without the record", "1", guardedTable)
			next(t, n)
		})
	}
}

// TestLoopbackLeftOpen: a killed proxy leaves the sysctl, and someone flushes the ruleset with the record. The next one
// cannot know who has set it, and says once what follows. It says nothing when all is well.
func TestLoopbackLeftOpen(t *testing.T) {
	n := newNeighborhood(t)
	p := n.daemon(t, localhost)
	n.expect(t, "running", "1", guardedTable, guardTable)
	p.end(syscall.SIGKILL)
	n.node.Must(t, "", "nft", "flush", "ruleset")
	for _, tt := range []struct {
		sysctl, nodePorts string
		lines             int
	}{{"1", primary, 1}, {"0", primary, 0}, {"1", localhost, 0}} {
		n.node.Must(t, "", "sysctl", "-qw", routeLocalnet+"="+tt.sysctl)
		p := n.daemon(t, tt.nodePorts)
		p.started(t)
		log := p.end(syscall.SIGTERM)
		if got := strings.Count(log, "CVE-2020-8558"); got != tt.lines || got != strings.Count(log, "remedy=\"sysctl -w "+routeLocalnet+"=0") {
			t.Errorf("%s=%s and node ports on %s: %d lines, want %d:\n%s", routeLocalnet, tt.sysctl, tt.nodePorts, got, tt.lines, log)
		}
	}
}

// TestLoopbackWithoutTheRightToWriteSysctls: the init container sets and restores the sysctl. A daemon that cannot
// restore it leaves the guard.
func TestLoopbackWithoutTheRightToWriteSysctls(t *testing.T) {
	n := newNeighborhood(t)
	n.run(t, "--init-only", "--nodeport-addresses="+localhost)
	n.expect(t, "initialized", "1", guardTable)
	p := n.daemon(t, localhost, "sh", "-c", confined)
	n.expect(t, "running", "1", guardedTable, guardTable)
	p.end(syscall.SIGTERM)

	p = n.daemon(t, primary, "sh", "-c", confined)
	n.expect(t, "the flag is gone, no init container", "1", plainTable, guardTable)
	log := p.end(syscall.SIGTERM)
	if !strings.Contains(log, "goes on dropping packets to 127.0.0.0/8") || !strings.Contains(log, "--init-only") {
		t.Errorf("the log does not say that the sysctl stays and what helps:\n%s", log)
	}

	n.run(t, "--init-only", "--nodeport-addresses="+primary)
	n.expect(t, "initialized without the flag", "0", plainTable)
	n.daemon(t, primary, "sh", "-c", confined)
	n.expect(t, "running without the flag", "0", plainTable)
}

// TestGuardIsKept: what others do to the table ip verdict-loopback while the proxy runs is undone, with its record.
func TestGuardIsKept(t *testing.T) {
	n := newNeighborhood(t)
	p := n.daemon(t, localhost)
	n.expect(t, "running", "1", guardedTable, guardTable)
	guard := func() string {
		out, err := n.node.Command("nft", "list", "table", "ip", guardTable)
		if err != nil {
			return "none"
		}
		return out
	}
	want, began := guard(), time.Now()
	for _, script := range []string{
		"delete table ip verdict-loopback",
		"add table ip verdict-loopback { flags dormant; }",
		"add chain ip verdict-loopback loopback-guard { policy drop; }",
		"flush chain ip verdict-loopback loopback-guard",
		"insert rule ip verdict-loopback loopback-guard accept",
		"add chain ip verdict-loopback mine { type filter hook input priority 0; policy drop; }",
		"rename chain ip verdict-loopback loopback-guard mine",
	} {
		if err := n.node.Load(script); err != nil {
			t.Fatal(err)
		}
		await(t, "the guard after "+script, func() bool { return guard() == want })
		n.expect(t, script, "1", guardedTable, guardTable)
	}
	log := p.end(syscall.SIGTERM)
	const said = `another process changed the guard of 127.0.0.0/8`
	most := 1 + int(time.Since(began)/time.Minute) // one line a minute
	if n := strings.Count(log, said); n == 0 || n > most || !strings.Contains(log, `"process":"nft"`) && !strings.Contains(log, "process=nft") {
		t.Errorf("the log does not say once a minute who changed the guard:\n%s", log)
	}
}
