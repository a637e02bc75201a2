//go:build ipvs

package fastpath

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/e2e/program"
)

var binary string // the verdict under test

func TestMain(m *testing.M) { os.Exit(netns.Enter(func() int { return program.Main(m, &binary) })) }

const (
	servicePort = 80
	nodePort    = 30080
	patience    = lab.Limit
	after       = 12 // packets
)

// bed is a world whose node has the daemon and the Service shop/web: a cluster IP and a node port, TCP and UDP.
type bed struct {
	*lab.World
	*daemon.Daemon
	t    *testing.T
	dir  string
	busy func() // keeps a connection on the fast path; nil: there is none

	port   uint16 // of the endpoints; 0: that of the world's servers
	ranges string // the load balancer's source ranges
}

// terminating is what comes after the name of a pod that terminates and still serves.
const terminating = " terminates"

// web writes the Service. Its endpoints are pods.
func (b *bed) web(annotation string, pods ...string) {
	b.t.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web, annotations: {%s}}
spec:
  type: LoadBalancer
  loadBalancerSourceRanges: [%s]
  clusterIPs: ["%s", "%s"]
  ipFamilies: [IPv4, IPv6]
  ports:
  - {name: tcp, port: %d, nodePort: %d, protocol: TCP}
  - {name: udp, port: %[5]d, nodePort: %[6]d, protocol: UDP}
status: {loadBalancer: {ingress: [{ip: "%[7]s"}, {ip: "%[8]s"}]}}
`, annotation, b.ranges, lab.MustText(lab.IPv4, "VIP1"), lab.MustText(lab.IPv6, "VIP1"), servicePort, nodePort,
		lab.MustText(lab.IPv4, "LB1"), lab.MustText(lab.IPv6, "LB1"))
	for _, f := range lab.Families() {
		text += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-%d, labels: {kubernetes.io/service-name: web}}
addressType: %s
ports: [{name: tcp, port: %[3]d, protocol: TCP}, {name: udp, port: %[3]d, protocol: UDP}]
endpoints:
`, f, f, cmp.Or(b.port, 8080))
		for _, pod := range pods {
			pod, ends := strings.CutSuffix(pod, terminating)
			text += fmt.Sprintf("- {addresses: [%q], nodeName: %s, conditions: {ready: %t, serving: true, terminating: %t}}\n",
				lab.PodAddress(f, pod), lab.NodeOf(pod), !ends, ends)
		}
	}
	lab.Must(b.t, os.MkdirAll(filepath.Join(b.dir, "manifests"), 0o755), lab.WriteFile(filepath.Join(b.dir, "manifests"), "web.yaml", []byte(text)))
}

// newBed makes a world with the fast path, or with other flags. It skips tests on kernels on which the fast path stays off, where only
// TestFlawedKernel has something to show.
func newBed(t *testing.T, annotation string, flags ...string) *bed {
	t.Helper()
	if flaw := flawed(t); flaw != "" {
		t.Skip("on this kernel the fast path stays off, because it " + flaw + "; TestFlawedKernel shows that")
	}
	b := &bed{World: lab.New(t), t: t, dir: t.TempDir()}
	// Once a test has loaded br_netfilter, bridges of new namespaces show their packets to the rules.
	b.World.Node.Must(t, "", "sh", "-c", "for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do ! [ -e $f ] || echo 0 >$f; done")
	b.web(annotation, "c")
	b.run(flags...)
	return b
}

// run starts the daemon. It waits until the fast path has the devices, if the first flag switches it on.
func (b *bed) run(flags ...string) {
	b.t.Helper()
	if len(flags) == 0 {
		flags = []string{"--fast-path=services", "--fast-path-after=" + strconv.Itoa(after)}
	}
	b.start(flags...)
	if flags[0] == "--fast-path=services" {
		b.untilDevices(lab.OutsideLink)
	}
}

func (b *bed) start(flags ...string) {
	b.t.Helper()
	b.Daemon = daemon.Run(b.t, b.World.Node, b.dir, append([]string{
		binary, "run", "--manifests=" + filepath.Join(b.dir, "manifests"), "--hostname-override=" + lab.NodeName, "--backend=nft",
		"--cluster-cidr=10.0.0.0/16,fd00:10::/48", "--healthz-bind-address=", "--metrics-bind-address=", "--table-owner=off",
	}, flags...)...)
	b.Manifests = filepath.Join(b.dir, "manifests")
}

// devices lists those of the flowtables of both families, and behind them those by which connections are offered.
func (b *bed) devices() (list [2]string) {
	b.t.Helper()
	for i, family := range []string{"ip", "ip6"} {
		text, err := b.World.Node.Command("nft", "list", "flowtables", family)
		offered, errOffered := b.World.Node.Command("nft", "list", "set", family, "verdict", "fast-path-devices")
		lab.Must(b.t, err, errOffered)
		list[i] = text + offered
	}
	return list
}

// untilDevices waits until both flowtables have a device, and connections by it are offered.
func (b *bed) untilDevices(name string) {
	b.t.Helper()
	lab.Eventually(b.t, "the fast path has "+name, func() error {
		for _, text := range b.devices() {
			if !regexp.MustCompile(`(?s)\b` + regexp.QuoteMeta(name) + `\b.*"` + regexp.QuoteMeta(name) + `"`).MatchString(text) {
				return fmt.Errorf("the devices are %q\n%s", text, b.Log(20))
			}
		}
		return nil
	})
}

// track is the line that the kernel has about a connection to a frontend. A source port tells several ones apart.
func (b *bed) track(f lab.Family, p lab.Protocol, to netip.AddrPort, from ...int) string {
	b.t.Helper()
	text, err := b.World.Node.Command("cat", "/proc/net/nf_conntrack")
	lab.Must(b.t, err)
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		dst := to.Addr().String()
		if to.Addr().Is6() {
			dst = to.Addr().StringExpanded()
		}
		if len(words) > 3 && words[2] == strings.ToLower(p.String()) && strings.Contains(line, "dst="+dst+" ") &&
			strings.Contains(line, fmt.Sprintf("dport=%d ", to.Port())) && (len(from) == 0 || strings.Contains(line, fmt.Sprintf(" sport=%d ", from[0]))) {
			return line
		}
	}
	return ""
}

func offloaded(line string) bool { return strings.Contains(line, "[OFFLOAD]") }

// exchange asks some questions and gets the answers.
func exchange(t *testing.T, flow *lab.Flow, n int) {
	t.Helper()
	for range n {
		if r := flow.Send(patience); r.Outcome != lab.Answered {
			t.Fatalf("a question ends with %s", r)
		}
	}
}

// counter counts the forwarded packets of connections that were translated.
const counter = `table inet observer {
	counter seen { }
	chain f { type filter hook forward priority 10; ct status dnat counter name seen; }
}`

func (b *bed) seen() int {
	b.t.Helper()
	text, err := b.World.Node.Command("nft", "list", "counter", "inet", "observer", "seen")
	lab.Must(b.t, err)
	m := regexp.MustCompile(`packets (\d+)`).FindStringSubmatch(text)
	if m == nil {
		b.t.Fatal(errors.New(text))
	}
	n, _ := strconv.Atoi(m[1])
	return n
}
