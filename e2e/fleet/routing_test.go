//go:build e2e || ipvs

package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// example reads a file of config/deploy/examples/fleet, with some texts replaced.
func example(t testing.TB, name string, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../config/deploy/examples/fleet", name))
	lab.Must(t, err)
	return strings.NewReplacer(replace...).Replace(string(text))
}

// daemon starts a program that ends with the test.
func (b *bed) daemon(n *lab.Namespace, dir, name string, env []string, command ...string) {
	b.t.Helper()
	p, err := lab.NewProcess(lab.ProcessOptions{Name: name, Namespace: n, Dir: dir, Command: command, Env: env})
	lab.Must(b.t, err)
	b.t.Cleanup(func() {
		if b.t.Failed() {
			b.t.Logf("%s of %s:\n%s", name, n.Name, p.Log(20))
		}
		_ = p.Kill()
	})
}

// routing is a routing daemon.
type routing struct {
	protocol         string // of its routes in the kernel
	router, balancer string // example files
	// start starts it in a place, and returns the environment of announce.sh.
	start func(b *bed, n *lab.Namespace, config string) (env string)
}

func daemons() map[string]routing {
	return map[string]routing{
		"bird": {"bird", "router.conf", "balancer.conf", (*bed).bird},
		"frr":  {"bgp", "frr-router.conf", "frr-balancer.conf", (*bed).frr},
	}
}

// bird starts BIRD.
func (b *bed) bird(n *lab.Namespace, config string) (env string) {
	b.t.Helper()
	dir := b.t.TempDir()
	b.write(dir, "bird.conf", config)
	socket := filepath.Join(dir, "bird.ctl")
	b.daemon(n, dir, "bird", nil, "bird", "-f", "-c", filepath.Join(dir, "bird.conf"), "-s", socket, "-P", filepath.Join(dir, "pid"))
	return "BIRD_SOCKET=" + socket
}

// frr starts the daemons of FRR. Their paths are short: a socket has no room for more than 107 bytes.
func (b *bed) frr(n *lab.Namespace, config string) (env string) {
	b.t.Helper()
	dir, err := os.MkdirTemp("", "frr")
	lab.Must(b.t, err)
	b.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b.write(dir, "frr.conf", config)
	n.Must(b.t, "", "chown", "frr:frr", dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"zebra", "bgpd", "bfdd"} {
		command := []string{"/usr/lib/frr/" + name, "-f", "/dev/null", "-i", at(name + ".pid"), "-z", at("zserv.api"),
			"--vty_socket", dir, "-P", "0", "--log", "stdout"}
		if name == "bfdd" {
			command = append(command, "--bfdctl", at("bfdd.sock"))
		}
		b.daemon(n, dir, name, nil, command...)
		b.until(name+" listens", func() error {
			_, err := os.Stat(at(name + ".vty"))
			return err
		})
	}
	b.until("FRR has its configuration", func() error {
		text, err := n.Command("vtysh", "--vty_socket", dir, "--config_dir", dir, "-f", at("frr.conf"))
		if err != nil {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return err
	})
	return "FRR_SOCKETS=" + dir
}

func (b *bed) write(dir, name, text string) {
	b.t.Helper()
	lab.Must(b.t, lab.WriteFile(dir, name, []byte(text)))
}

// hops waits until the router and the gateway have a route of each family over that many balancers.
func (b *bed) hops(protocol string, want int) {
	b.t.Helper()
	b.until(fmt.Sprintf("%d balancers announce their routes", want), func() error {
		for _, at := range []struct {
			*lab.Namespace
			to string
		}{{b.router, vip4}, {b.router, vip6}, {b.gateway, "default"}, {b.gateway, "::/0"}} {
			family := map[bool]string{true: "-6", false: "-4"}[strings.Contains(at.to, ":")]
			text, err := at.Command("ip", family, "-o", "route", "show", "proto", protocol, at.to)
			if got := strings.Count(text, "via "); err != nil || got != want {
				return fmt.Errorf("%s has %d next hops to %s: %w\n%s", at.Name, got, at.to, err, text)
			}
		}
		return nil
	})
}

// TestRoutingDaemon: with a routing daemon on all of them, as in the examples, routes follow a balancer that drains and returns,
// one whose links are cut, and the end of Verdict on one. No open connection is lost.
func TestRoutingDaemon(t *testing.T) {
	for name, by := range daemons() {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, "mh", "--fleet")
			b.announce(name, by)
			b.hops(by.protocol, 3)
			for _, f := range lab.Families() {
				b.hold(f, 10).expect(t, "with three balancers")
			}
			open := b.hold(lab.IPv4, 200)
			drained := b.balancers[2]
			drained.Must(t, "", binary, "drain", "--settle=2s", "--timeout=1s")
			b.hops(by.protocol, 2)
			open.expect(t, "after one has drained")
			b.start(drained)
			b.hops(by.protocol, 3)
			open.expect(t, "after it serves again")
			b.ip(b.balancers[0].Namespace, "link set dev up down", "link set dev below down")
			b.hops(by.protocol, 2)
			open.expect(t, "after the links of one went down")
			b.kill(b.balancers[1])
			b.balancers[1].down = true
			b.hops(by.protocol, 1)
			open.expect(t, "after Verdict ended on another one")
		})
	}
}

// announce has a routing daemon make the routes.
func (b *bed) announce(name string, by routing) {
	b.t.Helper()
	b.ip(b.router, "route del "+vip4, "route del "+vip6)
	b.ip(b.gateway, "route del default", "route del ::/0")
	by.start(b, b.router, example(b.t, by.router))
	by.start(b, b.gateway, example(b.t, by.router, "router id 10.8.1.1", "router id 10.9.0.254", "router-id 10.8.1.1", "router-id 10.9.0.254", "65000", "65002",
		"10.8.1.2", "10.9.0.1", "10.8.2.2", "10.9.0.2", "10.8.3.2", "10.9.0.3", "fd00:8:0:1::2", "fd00:9::1", "fd00:8:0:2::2", "fd00:9::2", "fd00:8:0:3::2", "fd00:9::3"))
	script, err := filepath.Abs("../../config/deploy/examples/fleet/announce.sh")
	lab.Must(b.t, err)
	for i, n := range b.balancers {
		env := by.start(b, n.Namespace, example(b.t, by.balancer, "10.8.1.", fmt.Sprintf("10.8.%d.", i+1), "fd00:8:0:1:", fmt.Sprintf("fd00:8:0:%d:", i+1)))
		b.daemon(n.Namespace, n.dir, "announce", []string{env}, script, name)
	}
}

func (h *held) expect(t *testing.T, when string) {
	t.Helper()
	if asking, silent := h.use(patience); asking+silent > 0 {
		t.Errorf("%s: %d asking and %d silent clients lost their connections", when, asking, silent)
	}
}
