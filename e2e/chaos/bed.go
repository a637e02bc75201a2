package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// bed is the network with everything that runs in it.
type bed struct {
	options options
	world   *lab.World
	scratch *lab.Namespace // where fresh plans are loaded, to be listed as the kernel lists them
	control *lab.Namespace // of the API server
	plane   *apiserver.ControlPlane
	daemon  *daemon
	ledger  *ledger
	monitor *monitor
	traffic *traffic
	churn   *churn
	faults  []fault
	closers []func() error

	otherBinary string // of the version that does not run now; empty: there is only one

	suspended bool  // the daemon is
	failing   bool  // some system calls of the daemon fail
	injected  int64 // system calls of the daemon that failed
	shortened int64 // of these: calls that read a part of a datagram

	rounds  int
	count   map[string]int
	repairs []time.Duration
	settled time.Duration // of the last round
	settles []time.Duration
}

// newBed builds everything and returns when the untouched Services are served.
func newBed(o options) (*bed, error) {
	b := &bed{options: o, count: map[string]int{}, faults: allFaults(), otherBinary: o.other}
	for _, step := range []func() error{
		b.openLedger, b.buildWorld, b.startPlane, b.writeStable, b.startDaemon, b.startTraffic, b.startChurn,
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	return b, nil
}

// later has close call a function.
func (b *bed) later(end func() error) { b.closers = append(b.closers, end) }

// close ends everything, in reverse order.
func (b *bed) close() error {
	var errs []error
	for i := len(b.closers) - 1; i >= 0; i-- {
		errs = append(errs, b.closers[i]())
	}
	return errors.Join(errs...)
}

func (b *bed) openLedger() error {
	f, err := os.Create(filepath.Join(b.options.logs, "chaos.log"))
	if err != nil {
		return fmt.Errorf("create the log of chaos: %w", err)
	}
	b.later(f.Close)
	b.ledger = &ledger{log: f, excused: map[string]int{}, dropped: queueDrops()}
	return nil
}

// others is a table of other software, as every node has one: a firewall, and a network plugin that masquerades. It keeps
// connection tracking and translation in use while the tables of Verdict are missing. Otherwise the kernel would stop to
// translate open connections in that time.
const others = "add table inet others\n" +
	"add chain inet others forward { type filter hook forward priority 5; }\n" +
	"add rule inet others forward ct state invalid counter\n" +
	"add chain inet others postrouting { type nat hook postrouting priority 110; }\n" +
	"add rule inet others postrouting ip saddr 100.64.0.0/10 masquerade\n"

func (b *bed) buildWorld() (err error) {
	if b.world, err = lab.NewWorld(); err != nil {
		return err
	}
	b.later(b.world.Close)
	if b.scratch, err = lab.NewNamespace("scratch"); err != nil {
		return err
	}
	b.later(b.scratch.Close)
	if b.monitor, err = startMonitor(b.world.Node); err != nil {
		return err
	}
	b.later(b.monitor.close)
	return b.world.Node.Load(others)
}

func (b *bed) startPlane() error {
	ns, addr, err := b.world.Attach("control plane")
	if err != nil {
		return err
	}
	services4, err4 := lab.Text(lab.IPv4, "SERVICES")
	services6, err6 := lab.Text(lab.IPv6, "SERVICES")
	if err := errors.Join(err4, err6); err != nil {
		return err
	}
	b.control = ns
	b.plane, err = apiserver.Start(apiserver.Options{
		Binaries: b.options.binaries, Dir: b.options.logs, Namespace: ns, Address: addr, ServiceRanges: services4 + "," + services6,
		// Objects that are older than the API server's own checks may hold anything.
		Arguments: []string{"--feature-gates=StrictIPCIDRValidation=false"},
	})
	if err != nil {
		return err
	}
	b.later(b.plane.Close)
	return nil
}

func (b *bed) writeStable() error {
	ctx := context.Background()
	for _, name := range []string{stableNamespace, churnNamespace, hostileNamespace} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := b.plane.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	w := &writer{client: b.plane.Client}
	for _, node := range []*corev1.Node{nodeObject(lab.NodeName, "NODE", "NODE_PODS"), nodeObject(lab.RemoteNodeName, "REMOTE", "REMOTE_PODS")} {
		if err := w.node(ctx, node); err != nil {
			return err
		}
	}
	for _, s := range stableServices() {
		if err := w.service(ctx, s.service()); err != nil {
			return err
		}
		for _, f := range lab.Families() {
			if err := w.slice(ctx, s.slice(f)); err != nil {
				return err
			}
		}
	}
	return b.plane.Save()
}

func nodeObject(name, address, pods string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "z-" + name}}}
	for _, f := range lab.Families() {
		text, _ := lab.Text(f, pods) // the names stand in writeStable
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, text)
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: named(f, address).String()})
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	return node
}

func (b *bed) startDaemon() error {
	kubeconfig, err := b.plane.KubeProxy()
	if err != nil {
		return err
	}
	b.daemon = &daemon{node: b.world.Node, dir: b.options.logs, binary: b.options.verdict, kubeconfig: kubeconfig}
	b.later(b.daemon.kill)
	if err := b.daemon.start(); err != nil {
		return err
	}
	return b.equal(time.Now().Add(settlePatience))
}

func (b *bed) startTraffic() (err error) {
	b.traffic, err = startTraffic(b.world, b.ledger, b.options.seed)
	b.later(func() error { b.traffic.close(); return nil })
	return err
}

func (b *bed) startChurn() error {
	b.churn = startChurn(b.plane.Client, b.options.seed)
	b.later(func() error { b.churn.close(); return nil })
	return nil
}

// settlePatience is how long the daemon may take to be right again. After an outage of the API server, client-go waits
// up to 30 s before it asks again.
const settlePatience = 60 * time.Second

// settle starts what does not run, stops the churn, and waits until the kernel equals a fresh plan.
func (b *bed) settle() error {
	start := time.Now()
	b.churn.pause()
	defer b.churn.resume()
	if err := b.daemon.start(); err != nil {
		return err
	}
	err := b.equal(start.Add(settlePatience))
	err = errors.Join(err, b.forgetUntranslated())
	b.ledger.closeAll()
	b.settled = time.Since(start)
	b.settles = append(b.settles, b.settled)
	return errors.Join(err, b.daemon.err())
}

// explain saves the ruleset and names the logs.
func (b *bed) explain() string {
	path := filepath.Join(b.options.logs, "failed.ruleset")
	ruleset, err := b.world.Node.Command("nft", "list", "ruleset")
	if err == nil {
		err = os.WriteFile(path, []byte(ruleset), 0o644)
	}
	lines := []string{"the ruleset is in " + path, b.daemon.log(12)}
	if p := b.daemon.release(); p != nil { // its log gets the stacks of all goroutines
		lines = append(lines, fmt.Sprintf("goroutines are in the log: %v", send(p, syscall.SIGCONT) == nil && send(p, syscall.SIGABRT) == nil))
		select {
		case <-p.Exited():
		case <-time.After(time.Second):
			_ = p.Kill()
		}
	}
	if err != nil {
		lines[0] = "the ruleset could not be saved: " + err.Error()
	}
	return strings.Join(lines, "\n")
}

// secondProxyEnds starts a second daemon beside the first one. It must give up and say why.
func (b *bed) secondProxyEnds() error {
	p, err := b.daemon.spawn()
	if err != nil {
		return err
	}
	const refusalPatience = 40 * time.Second
	select {
	case <-p.Exited():
	case <-time.After(refusalPatience):
		return errors.Join(fmt.Errorf("a second daemon still runs after %s", refusalPatience), p.Kill())
	}
	if !strings.Contains(p.Log(3), "another process of Verdict") {
		return fmt.Errorf("a second daemon ended for another reason; its log ends:\n%s", p.Log(5))
	}
	return b.daemon.err()
}
