//go:build e2e

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
func example(t *testing.T, name string, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../config/deploy/examples/fleet", name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(replace...).Replace(string(text))
}

// daemon starts a program that ends with the test.
func (b *bed) daemon(n *lab.Namespace, dir, name string, env []string, command ...string) {
	b.t.Helper()
	p, err := lab.NewProcess(lab.ProcessOptions{Name: name, Namespace: n, Dir: dir, Command: command, Env: env})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if b.t.Failed() {
			b.t.Logf("%s of %s:\n%s", name, n.Name, p.Log(20))
		}
		_ = p.Kill()
	})
}

// bird starts BIRD in a place.
func (b *bed) bird(n *lab.Namespace, config string) (socket string) {
	b.t.Helper()
	dir := b.t.TempDir()
	if err := lab.WriteFile(dir, "bird.conf", []byte(config)); err != nil {
		b.t.Fatal(err)
	}
	socket = filepath.Join(dir, "bird.ctl")
	b.daemon(n, dir, "bird", nil, "bird", "-f", "-c", filepath.Join(dir, "bird.conf"), "-s", socket, "-P", filepath.Join(dir, "pid"))
	return socket
}

// hops waits until the router and the gateway have a route of each family over that many balancers.
func (b *bed) hops(want int) {
	b.t.Helper()
	b.until(fmt.Sprintf("%d balancers announce their routes", want), func() error {
		for _, at := range []struct {
			*lab.Namespace
			to string
		}{{b.router, vip4}, {b.router, vip6}, {b.gateway, "default"}, {b.gateway, "::/0"}} {
			family := map[bool]string{true: "-6", false: "-4"}[strings.Contains(at.to, ":")]
			text, err := at.Command("ip", family, "-o", "route", "show", "proto", "bird", at.to)
			if got := strings.Count(text, "via "); err != nil || got != want {
				return fmt.Errorf("%s has %d next hops to %s: %w\n%s", at.Name, got, at.to, err, text)
			}
		}
		return nil
	})
}

// TestBIRD: with BIRD on all of them, as in the examples, routes follow the death of a balancer, and the end of Verdict on
// one. No open connection is lost.
func TestBIRD(t *testing.T) {
	b := newBed(t, "mh", "--fleet")
	b.ip(b.router, "route del "+vip4, "route del "+vip6)
	b.ip(b.gateway, "route del default", "route del ::/0")
	b.bird(b.router, example(t, "router.conf"))
	b.bird(b.gateway, example(t, "router.conf", "router id 10.8.1.1", "router id 10.9.0.254", "65000", "65002",
		"10.8.1.2", "10.9.0.1", "10.8.2.2", "10.9.0.2", "10.8.3.2", "10.9.0.3", "fd00:8:0:1::2", "fd00:9::1", "fd00:8:0:2::2", "fd00:9::2", "fd00:8:0:3::2", "fd00:9::3"))
	script, err := filepath.Abs("../../config/deploy/examples/fleet/announce.sh")
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range b.balancers {
		socket := b.bird(n.Namespace, example(t, "balancer.conf", "10.8.1.", fmt.Sprintf("10.8.%d.", i+1), "fd00:8:0:1:", fmt.Sprintf("fd00:8:0:%d:", i+1)))
		b.daemon(n.Namespace, n.dir, "announce", []string{"BIRD_SOCKET=" + socket}, script)
	}
	b.hops(3)
	for _, f := range lab.Families() {
		b.hold(f, 10).expect(t, "with three balancers")
	}
	open := b.hold(lab.IPv4, 200)
	b.ip(b.balancers[0].Namespace, "link set dev up down", "link set dev below down")
	b.hops(2)
	open.expect(t, "after the links of one went down")
	b.kill(b.balancers[1])
	b.balancers[1].down = true
	b.hops(1)
	open.expect(t, "after Verdict ended on another one")
}

func (h *held) expect(t *testing.T, when string) {
	t.Helper()
	if asking, silent := h.use(patience); asking+silent > 0 {
		t.Errorf("%s: %d asking and %d silent clients lost their connections", when, asking, silent)
	}
}
