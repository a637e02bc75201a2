//go:build e2e

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// kubeProxy makes kube-proxy the proxy of all nodes, as kubeadm deploys it. Nothing else may be there.
func (c *cluster) kubeProxy(t testing.TB, mode string) {
	t.Helper()
	c.kubeProxyOf(t, "kubeadm", mode)
}

// kubeProxyOf makes kube-proxy the proxy of all nodes, as another installer deploys it.
func (c *cluster) kubeProxyOf(t testing.TB, installer, mode string) {
	t.Helper()
	c.removeProxies(t)
	daemons, err := os.ReadFile("testdata/kube-proxy.yaml")
	lab.Must(t, err)
	text := c.configMap(t, installer, mode) + "---\n" + string(daemons)
	switch installer {
	case "eks": // two ConfigMaps
		text = strings.NewReplacer("--config=/var/lib/kube-proxy/config.conf", "--v=2, --config=/var/lib/kube-proxy-config/config",
			"- {name: kube-proxy, mountPath", "- {name: config, mountPath: /var/lib/kube-proxy-config}\n        - {name: kube-proxy, mountPath",
			"      volumes:\n", "      volumes:\n      - {name: config, configMap: {name: kube-proxy-config}}\n").Replace(text)
	case "k3s": // flags
		flags, err := os.ReadFile(installations + "k3s-flags.txt")
		lab.Must(t, err)
		_, list, _ := strings.Cut(strings.TrimSpace(string(flags)), "\n")
		list = strings.NewReplacer("\n", ", ", "node-1", "$(NODE_NAME)", "--cluster-cidr=10.42.0.0/16", "'--cluster-cidr="+podRanges+"'",
			"/var/lib/rancher/k3s/agent/kubeproxy.kubeconfig", "/var/lib/kube-proxy/kubeconfig.conf").Replace(list)
		text = strings.Replace(text, "--config=/var/lib/kube-proxy/config.conf, --hostname-override=$(NODE_NAME)", list, 1)
	}
	file := filepath.Join(t.TempDir(), "kube-proxy.yaml")
	lab.Must(t, os.WriteFile(file, []byte(text), 0o644))
	c.must(t, "apply", "-f", file)
	c.ready(t, "kube-proxy")
	// Its pods are ready before its rules are there.
	for _, n := range c.nodes {
		err := eventually("kube-proxy writes its rules", func() error {
			rules, err := n.rules()
			if err == nil && !strings.Contains(rules, marks[mode]) {
				err = fmt.Errorf("%s has no %s", n.name(), marks[mode])
			}
			return err
		})
		lab.Must(t, err)
	}
}

// marks are texts by which the rules of a proxy are known.
var marks = map[string]string{"verdict": "table ip6 verdict", "nftables": "table ip6 kube-proxy", "iptables": "KUBE-SERVICES"}

// rules lists the tables of the node, and its chains of iptables.
func (n *node) rules() (string, error) {
	return n.output("sh", "-c", "nft list tables; iptables-nft-save; ip6tables-nft-save")
}

// installations has what installers write for kube-proxy.
const installations = "../../cmd/verdict/kubeproxyconfig/testdata/"

// configMap is what an installer writes, with the values of this cluster. k3s writes none, so its kubeconfig is that of kubeadm.
func (c *cluster) configMap(t testing.TB, installer, mode string) string {
	t.Helper()
	name := installer
	if installer == "kubeadm" || installer == "k3s" {
		name = "kubeadm-1.37"
	}
	bytes, err := os.ReadFile(installations + name + "-configmap.yaml")
	lab.Must(t, err)
	text := string(bytes)
	for _, change := range [][2]string{
		{"192\\.0\\.2\\.1", hosts(planeHost)[0].Addr().String()},
		{"clusterCIDR: 10.*", "clusterCIDR: " + podRanges},
		{"  mode: .*", "  mode: " + mode},
		{"maxPerCore: .*", "maxPerCore: 0"}, // the size of the table belongs to the machine
	} {
		text = regexp.MustCompile(change[0]).ReplaceAllString(text, change[1])
	}
	return text
}

// removeProxies removes each proxy with its rules. It is not under test. Flows stay: without them, masquerading takes ports again that
// servers remember for a minute (TIME_WAIT). These answer with an ACK that the client does not expect, and it sends its SYN again.
func (c *cluster) removeProxies(t testing.TB) {
	t.Helper()
	for _, name := range []string{"kube-proxy", "verdict", "verdict-cleanup"} {
		c.must(t, "-n", "kube-system", "delete", "daemonset", name, "--ignore-not-found", "--cascade=foreground", "--timeout=120s")
	}
	for _, n := range c.nodes {
		_, err := n.ns.Command("nft", "flush", "ruleset")
		lab.Must(t, err)
	}
}

// ofKubelet matches chains that the kubelet makes.
var ofKubelet = regexp.MustCompile(`KUBE-(FIREWALL|KUBELET-CANARY|IPTABLES-HINT)`)

// expectTables expects that of the two proxies only one has tables on each node.
func (c *cluster) expectTables(t testing.TB, proxy string) {
	t.Helper()
	for _, n := range c.nodes {
		rules, err := n.rules()
		lab.Must(t, err)
		for line := range strings.Lines(rules) {
			upstream := strings.Contains(line, "KUBE-") || strings.Contains(line, "kube-proxy")
			upstream = upstream && !ofKubelet.MatchString(line)
			if verdict := strings.Contains(line, "verdict"); upstream && proxy == "verdict" || verdict && proxy != "verdict" {
				t.Errorf("%s has %s", n.name(), strings.TrimSpace(line))
			}
		}
		if !strings.Contains(rules, marks[proxy]) {
			t.Errorf("%s has no %s", n.name(), marks[proxy])
		}
	}
}

// verdict makes Verdict the proxy of all nodes, by the commands of the README.
func (c *cluster) verdict(t testing.TB) {
	t.Helper()
	c.follow(t, "The image")
	c.kubeProxy(t, "nftables")
	c.follow(t, "Replace kube-proxy")
	c.ready(t, "verdict")
}

// restarts is how often the kubelet has started Verdict on a node again.
func (c *cluster) restarts(t *testing.T, n *node) string {
	t.Helper()
	return c.must(t, "-n", "kube-system", "get", "pod", "-l", "app.kubernetes.io/name=verdict", "--field-selector",
		fmt.Sprintf("spec.nodeName=%s", n.name()), "-o", "jsonpath={.items[0].status.containerStatuses[0].restartCount}")
}
