//go:build ipvs

package ipvs

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/ipvsctl"
)

// TestOthers: Verdict leaves the virtual servers of other tools alone, and works without schedulers that the kernel
// lacks.
func TestOthers(t *testing.T) {
	timeouts := append([]string{"--ipvs-tcp-timeout=1000s", "--ipvs-tcpfin-timeout=50s", "--ipvs-udp-timeout=70s"}, hybrid()...)
	strict := append([]string{"--ipvs-strict-arp"}, hybrid()...)
	exclude := append([]string{"--ipvs-exclude-cidrs=$EXT2_HOST"}, hybrid()...)
	each(t, []test{
		{"another tool's virtual servers", hybrid(), othersServers},
		{"a key that another tool has", hybrid(), takenKey},
		{"excluded ranges", exclude, excludedRanges},
		{"addresses of other hosts", []string{"--backend=hybrid"}, addressesOfHosts},
		{"addresses of other hosts, backend ipvs", []string{"--backend=ipvs"}, addressesOfHosts},
		{"cleanup", ipvs(), cleanup},
		{"somebody empties IPVS", hybrid(), somebodyClears},
		{"somebody empties nf_tables", append(hybrid(), "--table-owner=off"), somebodyFlushes},
		{"timeouts", timeouts, timeoutsAreSet},
		{"who asks for the hardware address", hybrid(), func(b *bed) { hardwareAddress(b, b.family == lab.IPv4) }},
		{"who asks for the hardware address, strict ARP", strict, func(b *bed) { hardwareAddress(b, false) }},
		{"a scheduler is missing", hybrid(), missingScheduler},
		{"kubeadm's ConfigMap", hybrid(), configMapOfKubeadm},
	})
}

// foreign makes a virtual server with one endpoint, as another tool would.
func (b *bed) foreign(addr netip.Addr, port uint16) (listing string) {
	b.Helper()
	at := netip.AddrPortFrom(addr, port).String()
	b.node("ipvsadm", "-A", "-t", at, "-s", "wrr")
	b.node("ipvsadm", "-a", "-t", at, "-r", netip.AddrPortFrom(lab.PodAddress(b.family, "d"), 8081).String(), "-m", "-w", "7")
	b.Cleanup(func() { _, _ = b.World().Node.Command("ipvsadm", "-D", "-t", at) }) // it may be gone already
	return b.kernel(addr)
}

// logs waits until verdict's log says something.
func (b *bed) logs(text string) {
	b.Helper()
	b.until(5*time.Second, fmt.Sprintf("the log says %q", text), func() bool { return strings.Contains(b.Process().Log(60), text) })
}

// othersServers: on an address of its own, and on one that Verdict uses as well.
func othersServers(b *bed) {
	b.must(b.Settle())
	own := b.vip.Next()
	before := b.foreign(own, 80)
	b.plain("lc")
	beside := b.foreign(b.vip, 81)
	b.settled("endpoints web c")
	b.reschedule("")
	b.reschedule("lc")
	b.must(b.Restart(onlyNFT()...))
	b.must(b.Settle())
	b.must(b.Restart(hybrid()...))
	b.must(b.Settle())
	b.settled("delete Service web")
	b.until(drained, "ours is gone", func() bool { return !strings.Contains(b.kernel(b.vip), "-s lc") })
	if after := b.kernel(own); after != before {
		b.Errorf("the other tool has\n%s, and had\n%s", after, before)
	}
	for line := range strings.Lines(b.kernel(b.vip)) {
		if !strings.Contains(beside, line) {
			b.Errorf("left at our address: %s", line)
		}
	}
}

// takenKey: nft serves the port until the key is free.
func takenKey(b *bed) {
	b.must(b.Settle())
	before := b.foreign(b.vip, 80)
	b.serve("lc", "ports: [{port: 80}]")
	b.settled("endpoints web b c")
	if got := b.spread("x", b.at(80), 20); got["b"]+got["c"] != 20 || len(got) != 2 {
		b.Errorf("the endpoints answered %v", got)
	}
	b.logs(ipvsctl.ErrForeign.Error())
	if after := b.kernel(b.vip); after != before {
		b.Errorf("the other tool has\n%s, and had\n%s", after, before)
	}
	b.node("ipvsadm", "-D", "-t", netip.AddrPortFrom(b.vip, 80).String())
	clients := []*client{b.control(), b.connecting("x", b.at(80)), b.connecting("a", b.at(80))}
	b.until(30*time.Second, "IPVS serves it", func() bool { return strings.Contains(b.kernel(b.vip), "-s lc") })
	time.Sleep(300 * time.Millisecond)
	b.end(clients)
}

// excludedRanges: Verdict makes nothing there, and leaves what is there.
func excludedRanges(b *bed) {
	b.must(b.Settle())
	excluded := b.address("EXT2")
	before := b.foreign(excluded, 81)
	b.serve("lc", "externalIPs: [$EXT2], ports: [{port: 80}]")
	b.settled("endpoints web b c")
	b.steps("probe tcp from x to $EXT2:80 => b c source node\nprobe tcp from node to $EXT2:80 => b c source node")
	b.logs("--ipvs-exclude-cidrs")
	if after := b.kernel(excluded); after != before {
		b.Errorf("IPVS has\n%s there, and had\n%s", after, before)
	}
	if b.isLocal(excluded) {
		b.Errorf("%s is local", excluded)
	}
}

// addressesOfHosts: a Service names the other node and the gateway, as a user may do in externalIPs, and this node, as
// servicelb of k3s does in the status. None becomes local, nft serves them, and IPVS serves the cluster IP.
func addressesOfHosts(b *bed) {
	b.steps(`
apply
    kind: Service
    metadata: {name: web, annotations: {verdict-proxy.github.io/scheduler: lc}}
    spec: {type: LoadBalancer, clusterIPs: ["VIP"], externalIPs: [$REMOTE], ports: [{port: 80}]}
    status: {loadBalancer: {ingress: [{ip: $GATEWAY}, {ip: $NODE}]}}
`)
	b.settled("endpoints web b c")
	b.expectScheduler("lc")
	for _, name := range []string{"REMOTE", "GATEWAY"} {
		if b.isLocal(b.address(name)) {
			b.Errorf("%s is local", name)
		}
	}
	b.steps(`
probe tcp from node to $REMOTE:80 => b c source node
probe tcp from x to $NODE:80 => b c source node
probe tcp from a to $GATEWAY:80 => b c source node`)
	b.logs("outside --ipvs-external-cidrs")
	b.logs("is an address of this node")
}

// cleanup removes everything of Verdict, with or without connections, and nothing else.
func cleanup(b *bed) {
	b.serve("lc", everyFrontend)
	b.settled("endpoints web b c")
	own := b.vip.Next()
	before := b.foreign(own, 80)
	b.node("nft", "add table inet other; add chain inet other c")
	b.Cleanup(func() { _, _ = b.World().Node.Command("nft", "delete table inet other") })
	b.node("ip", "route", "add", "local", own.String(), "dev", "lo", "table", "local")
	b.Cleanup(func() {
		_, _ = b.World().Node.Command("ip", "route", "del", "local", own.String(), "dev", "lo", "table", "local")
	})
	b.hold("x", b.at(80))
	b.steps("stop")
	b.node(os.Getenv(binaryVariable), "run", "--cleanup")
	if text := b.kernel(netip.Addr{}); text != before {
		b.Errorf("left in IPVS:\n%s, want only\n%s", text, before)
	}
	if text := b.node("nft", "list", "tables"); strings.Contains(text, "verdict") || !strings.Contains(text, "inet other") {
		b.Errorf("left in nf_tables:\n%s", text)
	}
	if b.isLocal(b.vip) || b.isLocal(b.address("EXT1")) || !b.isLocal(own) {
		b.Errorf("local addresses:\n%s", b.node("ip", "route", "show", "table", "local"))
	}
	b.node(os.Getenv(binaryVariable), "run", "--cleanup") // once more: nothing to do
	b.steps("start")
	b.must(b.Settle())
	b.expectScheduler("lc")
}

// somebodyClears: Verdict notices it and makes everything again.
func somebodyClears(b *bed) {
	b.plain("lc")
	b.node("ipvsadm", "-C")
	b.until(30*time.Second, "all is there again", func() bool { return b.weight("a") == 1 && b.weight("d") == 1 })
	b.spread("x", b.at(80), 10)
	b.node("ip", "route", "del", "local", b.vip.String(), "dev", "lo", "table", "local", "proto", "118")
	b.until(30*time.Second, "the address is local again", func() bool { return b.isLocal(b.vip) })
	b.spread("x", b.at(80), 10)
}

// somebodyFlushes: no connection through IPVS fails. Verdict runs with --table-owner=off, so it has to write the guard
// again.
func somebodyFlushes(b *bed) {
	b.serve("lc", "externalIPs: [$EXT1], ports: [{port: 80}]")
	b.settled("endpoints web b c")
	f, pod := b.hold("x", b.at(80))
	b.node("nft", "flush", "ruleset")
	b.until(30*time.Second, "the tables are there again", func() bool { return strings.Contains(b.node("nft", "list", "tables"), "ip6 verdict") })
	b.expectAlive(f, pod)
	b.steps(`
probe tcp from x to $EXT1:8080 => refused
probe tcp from x to $EXT1:80 => b c source node`)
}

func timeoutsAreSet(b *bed) {
	b.must(b.Settle())
	if text := b.node("ipvsadm", "-Ln", "--timeout"); !strings.Contains(text, "1000 50 70") {
		b.Errorf("the kernel has %s", text)
	}
}

// hardwareAddress: the node answers ARP for an address that is local for IPVS, unless --ipvs-strict-arp is set, because
// ARP takes every local address for one of the link. Neighbor discovery does not.
func hardwareAddress(b *bed, answers bool) {
	b.Cleanup(func() {
		b.must(b.World().Node.Sysctl("net.ipv4.conf.all.arp_ignore=0", "net.ipv4.conf.all.arp_announce=0"))
	})
	b.serve("lc", "externalIPs: [$EXT2], ports: [{port: 80}]")
	b.settled("endpoints web b")
	q := b.at(80)
	q.To, q.Patience = netip.AddrPortFrom(b.address("EXT2"), 80), 5*time.Second
	x, route := b.place("x"), []string{"ip", "route", "replace", q.To.Addr().String(), "dev", "eth0"}
	_, err := x.Command(route[0], route[1:]...)
	b.must(err)
	b.Cleanup(func() { _, err := x.Command("ip", "route", "del", q.To.Addr().String(), "dev", "eth0"); b.must(err) })
	_, err = x.Command("ip", "neigh", "flush", "to", q.To.Addr().String()) // forget what an earlier test has learned
	b.must(err)
	want := lab.Unreachable
	if answers {
		want = lab.Answered
	}
	if r := x.Ask(q); r.Outcome != want {
		b.Errorf("a neighbor: %s, want %s", r, want)
	}
}

// missingScheduler: the module of one is hidden from the kernel, as on a node that does not ship it.
func missingScheduler(b *bed) {
	const setting = "/proc/sys/kernel/modprobe"
	was, err := os.ReadFile(setting)
	b.must(err)
	hiding := filepath.Join(b.TempDir(), "modprobe")
	script := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *ip_vs_twos*) exit 1;; esac\nexec %s \"$@\"\n", strings.TrimSpace(string(was)))
	b.must(os.WriteFile(hiding, []byte(script), 0o755))
	b.steps("stop")
	b.node("rmmod", "ip_vs_twos")
	b.must(os.WriteFile(setting, []byte(hiding), 0))
	b.Cleanup(func() { b.must(os.WriteFile(setting, was, 0)) })

	b.must(b.Restart(hybrid()...))
	b.serve("twos", "ports: [{port: 80}]")
	b.settled("endpoints web b c")
	b.logs("ip_vs_twos")
	b.logs("the kernel has no scheduler twos (module ip_vs_twos)")
	b.logs("endpoints are picked at random, by weight")
	if got := b.spread("x", b.at(80), 20); len(got) != 2 || b.kernel(b.vip) != "" {
		b.Errorf("the endpoints answered %v, IPVS has\n%s", got, b.kernel(b.vip))
	}
	b.must(b.Restart(ipvs()...))
	b.must(b.Settle())
	b.expectScheduler("rr")
	b.logs("rr is used")
	b.steps("stop") // one process serves a namespace
	_, err = b.World().Node.Command(os.Getenv(binaryVariable), "run", "--manifests="+b.TempDir(), "--backend=ipvs", "--ipvs-fallback=false", "--ipvs-scheduler=twos")
	if err == nil || !strings.Contains(err.Error(), "--ipvs-scheduler=twos: the kernel does not have it (module ip_vs_twos)") {
		b.Errorf("as the default: %v", err)
	}
	b.must(b.Restart(hybrid()...))
}
