//go:build ipvs

package ipvs

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// configMapOfKubeadm: the fields ipvs.scheduler, ipvs.strictARP and ipvs.excludeCIDRs of kubeadm's ConfigMap take effect.
func configMapOfKubeadm(b *bed) {
	const arpIgnore, arpAnnounce = "net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.all.arp_announce"
	b.node("sysctl", "-qw", arpIgnore+"=0", arpAnnounce+"=0")
	excluded := netip.MustParseAddr(map[lab.Family]string{lab.IPv4: "192.0.2.77", lab.IPv6: "2001:db8::77"}[b.family])
	b.steps(`
apply
    kind: Service
    metadata: {name: excluded}
    spec: {clusterIPs: ["` + excluded.String() + `"], ports: [{port: 80}]}
`)
	b.serve("", "ports: [{port: 80}]")
	b.settled("endpoints web b c\nendpoints excluded b c")
	if text := b.kernel(b.vip); text != "" { // virtual servers of earlier tests may drain
		b.Fatalf("without the ConfigMap, IPVS serves\n%s", text)
	}

	b.must(b.Restart("--config=" + b.configMap("kubeadm-1.37-ipvs-configmap.yaml")))
	b.must(b.Settle())
	b.expectScheduler("lc")
	if text := b.node("sysctl", "-n", arpIgnore, arpAnnounce); text != "1\n2\n" {
		b.Errorf("arp_ignore and arp_announce are %q, want 1 and 2", text)
	}
	if text := b.node("ipvsadm", "-Sn"); strings.Contains(text, excluded.String()) {
		b.Errorf("IPVS serves the excluded range:\n%s", text)
	}
	for _, addr := range []netip.Addr{b.vip, excluded} {
		to := b.at(80)
		to.To = netip.AddrPortFrom(addr, 80)
		if pod := b.once("a", to); pod != "b" && pod != "c" {
			b.Errorf("%s is answered by %s", addr, pod)
		}
	}
}

// configMap writes the KubeProxyConfiguration of a ConfigMap into a file.
func (b *bed) configMap(name string) string {
	b.Helper()
	text, err := os.ReadFile("../../cmd/verdict/kubeproxyconfig/testdata/" + name)
	b.must(err)
	var m corev1.ConfigMap
	b.must(yaml.Unmarshal(text, &m))
	file := filepath.Join(b.dir, "config.conf")
	b.must(os.WriteFile(file, []byte(m.Data["config.conf"]), 0o644))
	return file
}
