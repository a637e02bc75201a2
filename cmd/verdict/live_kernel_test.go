//go:build !nokernel

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// TestLiveSettings changes fields of the configuration file one after the other. After each change, the daemon that runs
// has written what one would write that starts with the new file.
func TestLiveSettings(t *testing.T) {
	ns, dir := netns.New(t), t.TempDir()
	for _, address := range []string{"192.0.2.1/32", "198.51.100.1/32"} {
		if err := ns.AddAddress("lo", netip.MustParsePrefix(address)); err != nil {
			t.Fatal(err)
		}
	}
	l := &liveDaemon{dir: dir, differ: &differ{T: t, ns: ns}, manifests: t.TempDir()}
	writeManifest(t, l.manifests, "web.yaml", diffService("web", "10.96.0.1", "type: LoadBalancer, externalIPs: [203.0.113.9]", "", "10.244.0.1"))
	l.write("")
	l.daemon = runDaemon(t, ns, l.manifests, "--config="+filepath.Join(dir, "config.conf"), "--hostname-override=n1",
		"--metrics-bind-address=127.0.0.1:10249")
	const all = "--nodeport-addresses=all"
	l.settles("--nodeport-addresses=all,localhost")
	l.sysctl(routeLocalnet, "1")

	l.change("iptables: {localhostNodePorts: false}", all)
	l.sysctl(routeLocalnet, "0")
	l.change("iptables: {localhostNodePorts: false, masqueradeAll: true}", all, "--masquerade-all")
	l.change("iptables: {localhostNodePorts: false}\nfeatureGates: {AllowServiceExternalIPs: false}", all, "--external-ip-cidrs=")
	l.daemon.wait(t, "by the feature gate AllowServiceExternalIPs=false; they are not served")
	l.change("iptables: {localhostNodePorts: false}\nfeatureGates: {AllowServiceExternalIPs: true}", all)
	const addresses = "nodePortAddresses: [192.0.2.0/24]\n"
	l.change(addresses, "--nodeport-addresses=192.0.2.0/24")
	l.change(addresses+"clusterCIDR: 10.244.0.0/16,fd00:10:244::/56", "--nodeport-addresses=192.0.2.0/24", "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56")
	l.change(addresses+"detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni7}",
		"--nodeport-addresses=192.0.2.0/24", "--detect-local-mode=BridgeInterface", "--pod-bridge-interface=cni7")
	l.change(addresses+"detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: veth}",
		"--nodeport-addresses=192.0.2.0/24", "--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=veth")
	l.change("bindAddress: 198.51.100.1\nnodePortAddresses: [primary]", "--nodeport-addresses=198.51.100.1/32")

	l.write("oomScoreAdj: 321\niptables: {minSyncPeriod: 33ms}\n" +
		"conntrack: {tcpEstablishedTimeout: 3h, tcpCloseWaitTimeout: 3m, udpTimeout: 17s, udpStreamTimeout: 77s, tcpBeLiberal: true, maxPerCore: 11, min: 12}")
	for name, value := range map[string]string{
		established: "10800", "net.netfilter.nf_conntrack_tcp_timeout_close_wait": "180", "net.netfilter.nf_conntrack_udp_timeout": "17",
		"net.netfilter.nf_conntrack_udp_timeout_stream": "77", "net.netfilter.nf_conntrack_tcp_be_liberal": "1",
	} {
		l.sysctl(name, value)
	}
	l.settles("--nodeport-addresses=all,localhost", "--drop-invalid=false")
	l.await("the OOM score", func() string {
		score, _ := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", l.daemon.cmd.Process.Pid))
		return strings.TrimSpace(string(score))
	}, "321")
	for flag, value := range map[string]string{
		"min-sync-period": "33ms", "conntrack-max-per-core": "11", "conntrack-min": "12", "bind-address": "", "oom-score-adj": "321",
	} {
		l.await("--"+flag+" in /configz", func() string { return l.configz()[flag] }, value)
	}
	if log := l.daemon.log.String(); strings.Contains(log, "has to be started again") || strings.Contains(log, "level=ERROR") {
		t.Errorf("the daemon did not take everything live:\n%s", log)
	}
}

// liveDaemon is a daemon whose configuration file changes.
type liveDaemon struct {
	*differ
	daemon         *daemonProcess
	dir, manifests string
	version        int
}

func (l *liveDaemon) write(content string) {
	l.Helper()
	l.version++
	mount(l.T, l.dir, fmt.Sprintf("..%d", l.version), map[string]string{"config.conf": configHeader + "mode: iptables\n" + content})
}

// change writes a file. Before, the kernel must differ from what flags ask for, and then it becomes that.
func (l *liveDaemon) change(content string, flags ...string) {
	l.Helper()
	if exit := l.compare(flags); exit != exitDiffers {
		l.Fatalf("before the change to %q, diff %q ends with %d: this step shows nothing", content, flags, exit)
	}
	l.write(content)
	l.settles(flags...)
}

func (l *liveDaemon) compare(flags []string) (exit int) {
	l.Helper()
	exit, _, _ = inside(l.T, l.ns, append([]string{"diff", "--manifests", l.manifests, "--hostname-override=n1", "--backend=nft", "--drop-invalid"}, flags...)...)
	return exit
}

func (l *liveDaemon) settles(flags ...string) {
	l.Helper()
	l.await(fmt.Sprintf("diff %q", flags), func() string { return fmt.Sprint("exit ", l.compare(flags)) }, "exit 0")
}

func (l *liveDaemon) sysctl(name, value string) {
	l.Helper()
	l.await(name, func() string { return strings.TrimSpace(l.ns.Must(l.T, "", "sysctl", "-n", name)) }, value)
}

func (l *liveDaemon) await(what string, get func() string, want string) {
	l.Helper()
	got := get()
	for late := time.Now().Add(3 * time.Minute); got != want; got = get() {
		if time.Now().After(late) {
			l.Fatalf("%s: %q, want %q\n%s", what, got, want, l.daemon.log)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// configz returns the flags that the daemon names as in force.
func (l *liveDaemon) configz() map[string]string {
	l.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: l.ns.DialContext, DisableKeepAlives: true}}
	r, err := client.Get("http://127.0.0.1:10249/configz")
	if err != nil {
		l.Fatal(err)
	}
	defer r.Body.Close()
	var answer map[string]map[string]string
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		l.Fatal(err)
	}
	return answer["verdict"]
}
