//go:build e2e

package cluster

import (
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
	"github.com/verdict-proxy/verdict/e2e/cluster/rollout"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

var (
	rolloutProxies = flag.String("rollout-proxies", "kube-proxy,verdict", "BenchmarkRollout: the proxies, separated by commas")
	rolloutCount   = flag.Int("rollouts", 20, "BenchmarkRollout: rolling updates under each proxy")
	rolloutResults = flag.String("rollout-results", "", "BenchmarkRollout: folder for the results; those of other proxies there are shown as well")
	rolloutFinish  = flag.Bool("rollout-finish", false, "BenchmarkRollout: servers answer what they have accepted before they exit")
	rolloutLate    = flag.Duration("rollout-late", 0, "BenchmarkRollout: delete pod by pod, while the EndpointSlices do not change for this time")
	rolloutAtOnce  = flag.Int("rollout-at-once", 1, "BenchmarkRollout: how many pods -rollout-late deletes at a time")
	rolloutTrace   = flag.Bool("rollout-trace", false, "BenchmarkRollout: write the events of connection tracking and the proxy's log into the folder")
)

// rolloutRate is how many connections a second each client makes.
const rolloutRate = 200

// rolloutPause is between two rolling updates.
const rolloutPause = 3 * time.Second

// rolloutNodePort is in testdata/rollout.yaml.
const rolloutNodePort = 30081

// BenchmarkRollout updates a Deployment of four servers again and again, under connections from a pod, from a node and from
// outside. The servers exit at once when the kubelet ends them: their kernel resets what they have accepted and what lies
// in their queues. With -rollout-finish, they answer what they have accepted.
func BenchmarkRollout(b *testing.B) {
	dir := *rolloutResults
	if dir == "" {
		dir = b.TempDir()
	}
	shared.must(b, "patch", "daemonset", "client", "-p", `{"spec": {"template": {"spec": {"nodeSelector": {"client": "none"}}}}}`)
	for b.Loop() {
		for name := range strings.SplitSeq(*rolloutProxies, ",") {
			r := shared.rolloutsUnder(b, name, dir)
			lab.Must(b, r.Save(dir, name))
		}
	}
	b.ReportMetric(0, "ns/op") // the time means nothing
	runs, err := rollout.Load(dir)
	lab.Must(b, err)
	fmt.Println(rollout.Table(runs))
}

// rolloutsUnder measures a proxy.
func (c *cluster) rolloutsUnder(b *testing.B, proxy, dir string) *rollout.Run {
	b.Helper()
	var title string
	switch proxy {
	case "kube-proxy":
		title = "kube-proxy (nftables)"
		c.kubeProxy(b, "nftables")
	case "verdict":
		title = "Verdict"
		c.verdict(b)
	default:
		b.Fatalf("the proxy %q is neither kube-proxy nor verdict", proxy)
	}
	c.ready(b, proxy)
	c.startRolling(b)
	if *rolloutTrace {
		c.trace(b, proxy, dir)
	}
	clients := c.startRates(b)
	r := &rollout.Run{Proxy: title}
	began := time.Now()
	for n := range *rolloutCount {
		time.Sleep(rolloutPause)
		update := c.rollOut
		if *rolloutLate > 0 {
			update = c.deletePods
		}
		r.Updates = append(r.Updates, update(b))
		say(fmt.Sprintf("rolling update %d under %s", n+1, proxy), r.Updates[n].Began)
	}
	time.Sleep(clientPatience + time.Second) // until the last connections have ended
	for _, client := range clients {
		list, err := rate.Fetch(client.at, began, c.place.DialContext)
		lab.Must(b, err)
		r.Ways = append(r.Ways, rollout.Way{Name: client.way, Attempts: list})
		for _, a := range list {
			if a.Outcome == rate.Failed {
				b.Errorf("%s: the client itself failed: %s", client.way, a.Error)
			}
		}
	}
	if *rolloutTrace {
		c.keepLogs(b, proxy, dir)
	}
	c.must(b, "delete", "-f", filepath.Join(c.dir, "rollout.yaml"), "--timeout=60s")
	return r
}

// startRolling makes the Deployment, the Service and the client in a pod.
func (c *cluster) startRolling(b *testing.B) {
	b.Helper()
	text, err := os.ReadFile("testdata/rollout.yaml")
	lab.Must(b, err)
	file := filepath.Join(c.dir, "rollout.yaml")
	values := strings.NewReplacer("NODE\n", c.nodes[0].name()+"\n", "FINISH", fmt.Sprintf("-finish=%v", *rolloutFinish))
	lab.Must(b, os.WriteFile(file, []byte(values.Replace(string(text))), 0o644))
	c.must(b, "apply", "-f", file)
	c.must(b, "rollout", "status", "deployment/roll", "--timeout=180s")
	c.must(b, "wait", "--for=condition=Ready", "pod/roll-client", "--timeout=60s")
}

// rateClient is a client, and where it returns its connections.
type rateClient struct{ way, at string }

// startRates starts the clients on the node and outside, and waits until each client gets only answers.
func (c *cluster) startRates(b *testing.B) (list []rateClient) {
	b.Helper()
	var node []netip.AddrPort
	for _, vip := range []string{"10.96.0.80", "fd00:10:96::80"} {
		node = append(node, netip.AddrPortFrom(netip.MustParseAddr(vip), 80))
	}
	var outside []netip.AddrPort
	for _, n := range c.nodes {
		for _, a := range n.addresses() {
			outside = append(outside, netip.AddrPortFrom(a, rolloutNodePort))
		}
	}
	c.startRate(b, c.nodes[0].ns, "rate-node", node)
	c.startRate(b, c.outside, "rate-outside", outside)
	pod := strings.TrimSpace(c.must(b, "get", "pod", "roll-client", "-o", "jsonpath={.status.podIP}"))
	for _, client := range []rateClient{
		{"from a pod, to the cluster IP", pod},
		{"from a node, to the cluster IP", c.nodes[0].addresses()[0].String()},
		{"from outside, to node ports", hosts(outsideHost)[0].Addr().String()},
	} {
		client.at = net.JoinHostPort(client.at, strconv.Itoa(ratePort))
		err := eventually("the client "+client.way+" gets answers", func() error { return c.allAnswered(client.at) })
		lab.Must(b, err)
		list = append(list, client)
	}
	return list
}

// ratePort is where clients return their connections: that of the workload.
const ratePort = 9000

func (c *cluster) startRate(b *testing.B, ns *lab.Namespace, name string, targets []netip.AddrPort) {
	b.Helper()
	command := []string{filepath.Join(c.dir, "workload"), "rate", fmt.Sprintf("-per-second=%d", rolloutRate), fmt.Sprintf("-patience=%s", clientPatience)}
	for _, t := range targets {
		command = append(command, t.String())
	}
	p, err := lab.NewProcess(lab.ProcessOptions{Name: name, Namespace: ns, Dir: c.logs, Command: command})
	lab.Must(b, err)
	b.Cleanup(func() {
		if err := p.Kill(); err != nil {
			b.Error(err)
		}
	})
}

// allAnswered says whether a client got an answer to each connection of the latest second.
func (c *cluster) allAnswered(at string) error {
	list, err := rate.Fetch(at, time.Now().Add(-time.Second), c.place.DialContext)
	if err != nil {
		return err
	}
	for _, a := range list {
		if a.Outcome != rate.Answered {
			return fmt.Errorf("%s: %s %s", a.To, a.Outcome, a.Error)
		}
	}
	if len(list) < rolloutRate/2 {
		return fmt.Errorf("%d connections in a second", len(list))
	}
	return nil
}

// rollOut updates the Deployment, and waits until the pods of before are gone.
func (c *cluster) rollOut(b *testing.B) (s rollout.Span) {
	b.Helper()
	s.Began = time.Now()
	c.must(b, "rollout", "restart", "deployment/roll")
	c.awaitPods(b)
	s.Ended = time.Now()
	return s
}

// awaitPods waits until the Deployment is complete, and the pods of before are gone.
func (c *cluster) awaitPods(b *testing.B) {
	b.Helper()
	c.must(b, "rollout", "status", "deployment/roll", "--timeout=180s")
	err := eventually("the pods of before are gone", func() error {
		if list := strings.Fields(c.must(b, "get", "pods", "-l", "app=roll", "-o", "name")); len(list) != 4 {
			return fmt.Errorf("there are %v", list)
		}
		return nil
	})
	lab.Must(b, err)
}

// deletePods deletes the pods, some at a time. The controller of EndpointSlices sleeps meanwhile, as when it has much to do.
// Neighbors in the list are on different nodes.
func (c *cluster) deletePods(b *testing.B) (s rollout.Span) {
	b.Helper()
	s.Began = time.Now()
	list := strings.Fields(c.must(b, "get", "pods", "-l", "app=roll", "--sort-by=.spec.nodeName", "-o", "name"))
	list[1], list[3] = list[3], list[1] // two on each node
	for pods := range slices.Chunk(list, *rolloutAtOnce) {
		c.signalManager(b, syscall.SIGSTOP)
		c.must(b, append([]string{"delete", "--wait=false"}, pods...)...)
		time.Sleep(*rolloutLate)
		c.signalManager(b, syscall.SIGCONT)
		c.awaitPods(b)
	}
	s.Ended = time.Now()
	return s
}

func (c *cluster) signalManager(b *testing.B, s syscall.Signal) {
	b.Helper()
	lab.Must(b, syscall.Kill(c.manager.PID(), s))
}
