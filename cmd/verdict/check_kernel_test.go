//go:build !nokernel

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/verdict-proxy/verdict/cmd/verdict/preflight"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

// check runs "verdict check -o json" in a namespace.
func check(t *testing.T, ns *netns.Namespace, args ...string) (found map[string]preflight.Finding, exit int) {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"check", "-o", "json"}, args...)...)
	var out strings.Builder
	cmd.Stdout = &out
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit status says it
	var list []preflight.Finding
	if err := json.Unmarshal([]byte(out.String()), &list); err != nil {
		t.Fatalf("%v in\n%s", err, &out)
	}
	found = map[string]preflight.Finding{}
	for _, f := range list {
		found[f.Check] = f
		if (f.Status == preflight.OK) != (f.Remedy == "") {
			t.Errorf("%+v: a remedy belongs to everything that is not ok", f)
		}
	}
	return found, cmd.ProcessState.ExitCode()
}

// TestCheck looks at a host on which everything is as it should be, and then at one on which nothing is.
func TestCheck(t *testing.T) {
	ns := netns.New(t)
	good := func(name string) string {
		if strings.HasPrefix(name, "net.ipv4") || strings.HasPrefix(name, "net.ipv6.conf.all.forwarding") {
			return name + "=1"
		}
		return name + "=0"
	}
	ns.MustDo(t, func() error {
		return ns.Sysctl(good("net.ipv4.ip_forward"), good("net.ipv6.conf.all.forwarding"), good("net.ipv6.conf.all.disable_ipv6"))
	})
	found, exit := check(t, ns, "--backend=nft", "--manifests="+t.TempDir())
	for name, f := range found {
		if f.Status != preflight.OK {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if exit != 0 || len(found) < 11 {
		t.Errorf("exit %d with %d checks", exit, len(found))
	}

	ns.Must(t, "", "ip", "link", "set", "lo", "up")
	ns.Must(t, "", "ip", "link", "add", "cilium_host", "type", "veth", "peer", "name", "kube-dummy-if")
	ns.Must(t, "table ip nat { chain KUBE-SERVICES { }; }; table ip6 kube-proxy { }; "+
		"table ip filter { chain CILIUM_FORWARD { }; chain KUBE-ROUTER-SERVICES { }; }", "nft", "-f", "-")
	ns.MustDo(t, func() error {
		return ns.Sysctl("net.ipv6.conf.all.disable_ipv6=1")
	})
	listener := exec.Command(binary, "run", "--manifests="+t.TempDir(), "--backend=nft", "--metrics-bind-address=")
	if err := ns.Start(listener); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Process.Kill(); _ = listener.Wait() }()
	for end := time.Now().Add(lab.Limit); !strings.Contains(found["--healthz-bind-address"].Detail, "runs already"); {
		if time.Now().After(end) {
			t.Fatalf("Verdict is not recognized: %+v", found["--healthz-bind-address"])
		}
		found, _ = check(t, ns, "--backend=nft", "--manifests=/does/not/exist")
	}
	ns.MustDo(t, func() error { return ns.Sysctl("net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0") }) // a daemon sets them at its start
	found, exit = check(t, ns, "--backend=ipvs", "--ipvs-fallback=false", "--manifests=/does/not/exist")
	want := map[string]preflight.Status{
		"kernel": preflight.OK, "nf_tables": preflight.OK, "IPVS": preflight.Error, "kube-proxy": preflight.Warning,
		"Cilium": preflight.Warning, "kube-router": preflight.Warning, "--healthz-bind-address": preflight.OK,
		"--metrics-bind-address": preflight.OK, "net.ipv4.ip_forward": preflight.Error, "net.ipv6.conf.all.forwarding": preflight.Warning,
		"net.ipv6.conf.all.disable_ipv6": preflight.Warning, "manifests": preflight.Error,
	}
	for name, status := range want {
		if found[name].Status != status {
			t.Errorf("%s: %+v, want %s", name, found[name], status)
		}
	}
	if detail := found["kube-proxy"].Detail; !strings.Contains(detail, "table ip6 kube-proxy") || !strings.Contains(detail, "1 chain of iptables-nft") {
		t.Errorf("kube-proxy: %s", detail)
	}
	for name, chain := range map[string]string{"Cilium": "chain CILIUM_FORWARD, device cilium_host", "kube-router": "chain KUBE-ROUTER-SERVICES, device kube-dummy-if"} {
		if detail := found[name].Detail; !strings.Contains(detail, chain) {
			t.Errorf("%s: %s, want %s", name, detail, chain)
		}
	}
	if exit != exitFailure {
		t.Errorf("exit %d, want %d", exit, exitFailure)
	}
}

// TestCheckRoutes: without a route, a program of the node does not reach cluster IPs. The check names it, and its remedy helps.
func TestCheckRoutes(t *testing.T) {
	node, pod, dir := netns.New(t), netns.New(t), t.TempDir()
	if err := netns.Connect(node, "eth0", pod, "eth0"); err != nil {
		t.Fatal(err)
	}
	const service = "kind: Service\napiVersion: v1\nmetadata: {name: %[1]s}\nspec: {clusterIPs: [%[2]q], ipFamilies: [%[3]s], ports: [{port: 80}]}\n---\n" +
		"kind: EndpointSlice\napiVersion: discovery.k8s.io/v1\nmetadata: {name: %[1]s, labels: {kubernetes.io/service-name: %[1]s}}\n" +
		"addressType: %[3]s\nports: [{port: 8080}]\nendpoints: [{addresses: [%[4]q]}]\n"
	families := []struct{ name, node, pod, bits, ip, services string }{
		{"IPv4", "192.0.2.129", "192.0.2.130", "/25", "10.96.0.1", "10.96.0.0/16"},
		{"IPv6", "fd00:2::1", "fd00:2::2", "/64", "fd00:96::1", "fd00:96::/112"},
	}
	for _, f := range families {
		node.Must(t, "", "ip", "address", "add", f.node+f.bits, "dev", "eth0", "nodad")
		pod.Must(t, "", "ip", "address", "add", f.pod+f.bits, "dev", "eth0", "nodad")
		writeManifest(t, dir, f.name+".yaml", fmt.Sprintf(service, strings.ToLower(f.name), f.ip, f.name, f.pod))
	}
	var server net.Listener
	pod.MustDo(t, func() (err error) { server, err = net.Listen("tcp", ":8080"); return err })
	defer server.Close()
	runDaemon(t, node, dir)
	connects := func(ip string) error {
		c, err := node.DialContext(t.Context(), "tcp", net.JoinHostPort(ip, "80"))
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	ranges := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}}
	for _, f := range families {
		ranges.Spec.CIDRs = append(ranges.Spec.CIDRs, f.services)
	}
	missing := func() (list []string) { // as the API server says where Services are
		node.MustDo(t, func() error {
			_, services := preflight.Cluster(t.Context(), fake.NewClientset(ranges), "192.0.2.129")
			for _, f := range preflight.Routes(services) {
				list = append(list, strings.TrimPrefix(f.Check, "route to "))
			}
			return nil
		})
		return list
	}
	if got := missing(); !slices.Equal(got, []string{families[0].ip, families[1].ip}) {
		t.Errorf("no route to %q", got)
	}
	lab.Must(t, node.Sysctl("net.ipv4.ip_forward=1"))
	for _, f := range families {
		name := "route to " + map[string]string{"IPv4": "192.0.2.1", "IPv6": "2001:db8::1"}[f.name]
		if err := connects(f.ip); !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("%s: without a route: %v", f.name, err)
		}
		if found, exit := check(t, node, "--backend=nft", "--manifests="+dir); found[name].Status != preflight.Warning || exit != 0 {
			t.Errorf("%s: exit %d, %+v", f.name, exit, found)
		} else if remedy := found[name].Remedy; !strings.Contains(remedy, "ip route add RANGE dev DEVICE") {
			t.Errorf("%s: %s", f.name, remedy)
		}
		node.Must(t, "", "ip", "route", "add", f.services, "dev", "eth0")
		if err := connects(f.ip); err != nil {
			t.Errorf("%s: with the remedy: %v", f.name, err)
		}
		node.Must(t, "", "ip", "route", "add", map[string]string{"IPv4": "0.0.0.0/0", "IPv6": "::/0"}[f.name], "dev", "eth0")
		if found, _ := check(t, node, "--backend=nft", "--manifests="+dir); found[name].Check != "" {
			t.Errorf("%s: with a default route: %+v", f.name, found[name])
		}
		node.Must(t, "", "ip", "route", "delete", map[string]string{"IPv4": "0.0.0.0/0", "IPv6": "::/0"}[f.name], "dev", "eth0")
	}
	if got := missing(); len(got) > 0 {
		t.Errorf("with the remedy: no route to %q", got)
	}
}

// TestCheckForwarding: a chain that stops all forwarded packets stops all pods. One that accepts something may know what it does.
func TestCheckForwarding(t *testing.T) {
	ns := netns.New(t)
	for chain, want := range map[string]preflight.Status{
		"type filter hook forward priority 0; policy drop;":                        preflight.Warning,
		"type filter hook forward priority 0; counter; reject;":                    preflight.Warning,
		"type filter hook forward priority 0; policy drop; ct status dnat accept;": "",
		"type filter hook forward priority 0; ip saddr 192.0.2.1 drop;":            "",
		"type filter hook input priority 0; policy drop;":                          "",
	} {
		ns.Must(t, "table inet foreign { chain any { "+chain+" }; }", "nft", "-f", "-")
		found, _ := check(t, ns, "--backend=nft", "--manifests="+t.TempDir())
		if f := found["forwarding"]; f.Status != want || want != "" && !strings.Contains(f.Detail, "chain inet foreign any ") {
			t.Errorf("%s: %+v", chain, f)
		}
		ns.Must(t, "", "nft", "delete", "table", "inet", "foreign")
	}
}

// TestCheckBesideKubeProxy follows config/deploy/README.md: the operator of a cluster with kube-proxy checks a node, without
// any flag. Nothing is wrong there.
func TestCheckBesideKubeProxy(t *testing.T) {
	ns := netns.New(t)
	ns.Must(t, "", "nft", "add table ip kube-proxy; add chain ip kube-proxy services; add rule ip kube-proxy services counter")
	ns.MustDo(t, func() error { return ns.Sysctl("net.ipv4.ip_forward=1") })
	var listener net.Listener
	ns.MustDo(t, func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:10256")
		return err
	})
	defer listener.Close()
	found, exit := check(t, ns)
	for _, name := range []string{"kube-proxy", "--healthz-bind-address", "API server"} {
		if found[name].Status != preflight.Warning {
			t.Errorf("%s: %+v, want a warning", name, found[name])
		}
	}
	if exit != 0 {
		t.Errorf("exit %d: %v", exit, found)
	}
	ns.Must(t, "", "nft", "delete table ip kube-proxy")
	if found, exit := check(t, ns); found["--healthz-bind-address"].Status != preflight.Error || exit != 1 {
		t.Errorf("a listener that is not kube-proxy's: exit %d, %+v", exit, found["--healthz-bind-address"])
	}
}

// TestCheckRealServer: what a machine needs before it can get packets of a Service as they are.
func TestCheckRealServer(t *testing.T) {
	const v4, v6, flag = "203.0.113.1", "2001:db8::1", "--real-server=203.0.113.1,2001:db8::1"
	ns := netns.New(t)
	ns.Must(t, "", "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
	ns.Must(t, "", "ip", "address", "add", v4+"/32", "dev", "eth0")
	failed := func(found map[string]preflight.Finding) (list []string) {
		for name, f := range found {
			if f.Status == preflight.Error {
				list = append(list, name)
			}
		}
		slices.Sort(list)
		return list
	}
	found, exit := check(t, ns, flag)
	want := []string{v6, v4, "net.ipv4.conf.all.arp_announce", "net.ipv4.conf.all.arp_ignore"}
	if got := failed(found); exit != 1 || !slices.Equal(got, want) {
		t.Errorf("exit %d, errors %v, want %v", exit, got, want)
	}
	const probing = "net.ipv4.tcp_mtu_probing"
	if found[probing].Status != preflight.Warning {
		t.Errorf("%+v", found[probing])
	}
	for _, f := range found {
		for command := range strings.SplitSeq(f.Remedy, "; ") {
			if command, _, _ = strings.Cut(command, ", "); f.Status == preflight.Error || f.Check == probing {
				ns.Must(t, command, "sh", "-e")
			}
		}
	}
	if found, exit := check(t, ns, flag); exit != 0 || len(failed(found)) > 0 || found[probing].Status != preflight.OK {
		t.Errorf("after its remedies: exit %d, %v", exit, found)
	}
	if out, err := exec.Command(binary, "check", "--real-server=web").CombinedOutput(); err == nil || !strings.Contains(string(out), `"web"`) {
		t.Errorf("a name instead of an address: %v, %s", err, out)
	}
}
