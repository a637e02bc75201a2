//go:build e2e || ipvs

package deadnode

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/e2e/program"
)

var (
	binary string // the verdict under test

	perSecond = flag.Int("rate", defaultRate, "connections a second while a node vanishes")
)

func TestMain(m *testing.M) { os.Exit(netns.Enter(func() int { return program.Main(m, &binary) })) }

// engine is what serves the Service.
type engine struct {
	name       string
	annotation string   // of the Service
	flags      []string // of the daemon
	// lateness is how long after the death connections may begin that are late.
	lateness time.Duration
	// holdsBack: the first refusal of an endpoint does not reach the client.
	holdsBack bool
}

// bed is a world with the daemon on its node.
type bed struct {
	*lab.World
	t       testing.TB
	dir     string // of manifests and logs
	process *lab.Process
	stalls  *stalls // since the first pass of the daemon
}

// vip is the address of the Service.
func vip(f lab.Family) netip.AddrPort { return lab.AddressPort(f, "VIP1", 80) }

// place is an endpoint: a pod, one of its ports, and the node that its slice names.
type place struct {
	pod  string
	port uint16
	node string
}

func (p place) addr(f lab.Family) netip.AddrPort {
	return netip.AddrPortFrom(lab.PodAddress(f, p.pod), p.port)
}

// tenEndpoints are those of the Service: three are on the remote node. Pod b plays a pod of a third node.
func tenEndpoints() (list []place) {
	for _, port := range lab.Ports() {
		list = append(list, place{"a", port, lab.NodeName})
	}
	for _, port := range lab.Ports()[:3] {
		list = append(list, place{"b", port, "node-3"})
	}
	return append(list, place{"c", 8080, lab.RemoteNodeName}, place{"d", 8080, lab.RemoteNodeName},
		place{"c", 8081, lab.RemoteNodeName})
}

func newBed(t testing.TB, annotation string, endpoints []place, flags ...string) *bed {
	t.Helper()
	return newBedAfter(t, nil, annotation, endpoints, flags...)
}

// solicit sets how often the node asks for a neighbor, once a second, before it tells clients that there is no route.
func (b *bed) solicit() {
	b.t.Helper()
	b.Node.MustDo(b.t, func() error {
		files, err := filepath.Glob("/proc/sys/net/ipv[46]/neigh/*/[mu]cast_solicit")
		if err == nil && len(files) == 0 {
			err = errors.New("no settings of neighbors")
		}
		for _, file := range files {
			err = errors.Join(err, os.WriteFile(file, []byte(strconv.Itoa(solicits)), 0o644))
		}
		return err
	})
}

// newBedAfter changes the world before the daemon starts.
func newBedAfter(t testing.TB, before func(*bed), annotation string, endpoints []place, flags ...string) *bed {
	t.Helper()
	b := &bed{World: lab.New(t), t: t, dir: t.TempDir()}
	b.solicit()
	if before != nil {
		before(b)
	}
	b.write("service.yaml", service(annotation))
	b.slices(endpoints)
	b.process = daemon.Run(t, b.Node, b.dir, append([]string{
		binary, "run", "--manifests=" + filepath.Join(b.dir, "manifests"), "--hostname-override=" + lab.NodeName, "--backend=nft",
		"--cluster-cidr=10.0.0.0/16,fd00:10::/48", "--healthz-bind-address=", "--metrics-bind-address=", "-v=4",
	}, flags...)...).Process
	b.stalls = watchStalls(t, b.process.PID())
	return b
}

// untilAsked waits until the daemon has asked endpoints, in both families, whether they answer this node at all. It ejects no
// others. Nobody else may have connected to them before.
func (b *bed) untilAsked(endpoints []place) {
	b.t.Helper()
	questions := map[string]int{}
	for _, p := range endpoints {
		questions[p.pod] += len(lab.Families())
	}
	for pod, n := range questions {
		b.At(b.t, pod).UntilAccepted(b.t, n)
	}
}

func (b *bed) write(name, text string) {
	b.t.Helper()
	dir := filepath.Join(b.dir, "manifests")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = lab.WriteFile(dir, name, []byte(text))
	}
	lab.Must(b.t, err)
}

func service(annotation string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web, annotations: {%s}}
spec:
  clusterIPs: ["%s", "%s"]
  ipFamilies: [IPv4, IPv6]
  ports: [{name: http, port: 80}]
`, annotation, vip(lab.IPv4).Addr(), vip(lab.IPv6).Addr())
}

const eject = `verdict-proxy.github.io/outlier-detection: "eject"`

// slices writes the EndpointSlices: one for each family and port.
func (b *bed) slices(endpoints []place) {
	var text strings.Builder
	for _, f := range lab.Families() {
		for _, port := range append(lab.Ports(), 9) {
			rows := ""
			for _, p := range endpoints {
				if p.port == port {
					rows += fmt.Sprintf("- {addresses: [%q], nodeName: %s, conditions: {ready: true}}\n", p.addr(f).Addr(), p.node)
				}
			}
			if rows != "" {
				fmt.Fprintf(&text, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-%d-%d, labels: {kubernetes.io/service-name: web}}
addressType: %s
ports: [{name: http, port: %d}]
endpoints:
%s`, f, port, f, port, rows)
			}
		}
	}
	b.write("slices.yaml", text.String())
}

// rule adds a rule to a chain of its own in a place.
func (b *bed) rule(at, hook string, priority int, rule string) {
	b.t.Helper()
	b.At(b.t, at).Must(b.t, "table inet alarm-"+hook+" {\nchain c {\ntype filter hook "+hook+" priority "+
		map[int]string{0: "0", -300: "-300"}[priority]+";\n"+rule+"\n}\n}\n", "nft", "-f", "-")
}

// waitFor waits for a text in the log.
func (b *bed) waitFor(text string) {
	b.t.Helper()
	lab.Eventually(b.t, "the log says "+text, func() error {
		if !b.logged(text) {
			return errors.New("not so")
		}
		return nil
	})
}

func (b *bed) logged(text string) bool { return strings.Contains(b.process.Log(100_000), text) }

// load makes connections from a place. A connection ends with the first byte that the server sends.
type load struct {
	began time.Time
	end   func() []rate.Attempt // stops it, and waits for the end of each connection
}

func (b *bed) load(from string, to netip.AddrPort, perSecond int) *load {
	b.t.Helper()
	c := b.client(from)
	c.Targets, c.PerSecond = []*rate.Target{rate.To(to)}, perSecond
	return &load{began: time.Now(), end: c.Start()}
}

func (b *bed) client(from string) *rate.Client {
	b.t.Helper()
	return &rate.Client{Patience: defaultPatience, KernelPorts: true, Do: b.At(b.t, from).Do, Answer: func(conn net.Conn) (string, error) {
		_, err := conn.Read(make([]byte, 1))
		return "", err
	}}
}
