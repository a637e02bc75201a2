package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
)

// bed is the network with everything that runs in it.
type bed struct {
	logs    string // a folder
	world   *lab.World
	plane   *apiserver.ControlPlane // nil: the daemon follows manifests
	writer  writer
	ledger  *ledger
	daemon  *daemon
	oracle  *oracle
	editor  *editor
	traffic *traffic
	churn   *churn
	closers []func() error
}

// newBed builds everything and returns when the untouched Services are served.
func newBed(o *options) (*bed, error) {
	b := &bed{logs: o.logs}
	err := b.build(o)
	if err != nil {
		err = errors.Join(err, b.close())
	}
	return b, err
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

func (b *bed) build(o *options) error {
	log, err := os.Create(filepath.Join(o.logs, "chaos.log"))
	if err != nil {
		return fmt.Errorf("create the log of chaos: %w", err)
	}
	b.later(log.Close)
	b.ledger = &ledger{log: log, excused: map[string]int{}, dropped: queueDrops()}
	if err := b.buildWorld(); err != nil {
		return err
	}
	source, err := b.openSource(o)
	if err != nil {
		return err
	}
	if err := b.writeStable(); err != nil {
		return err
	}
	if err := b.startDaemon(o, source); err != nil {
		return err
	}
	b.churn = startChurn(b.writer, o.seed)
	b.later(func() error { b.churn.close(); return nil })
	b.editor.churn = b.churn
	b.traffic, err = startTraffic(b.world, b.ledger, o.seed)
	b.later(func() error { b.traffic.close(); return nil })
	return err
}

// others is a table of other software, as every node has one: a firewall, and a network plugin that masquerades. It keeps
// connection tracking and translation in use while the tables of Verdict are missing. Otherwise the kernel would stop
// translating open connections in that time.
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
	for _, pod := range []string{"a", "b", "c"} {
		for _, port := range []uint16{refusedTarget, checkedTarget, checkPort} {
			if err := b.world.Serve(pod, pod, port); err != nil {
				return err
			}
		}
	}
	return b.world.Node.Load(others)
}

// openSource starts an API server, or makes a folder for manifests. It returns the flag of verdict that names it.
func (b *bed) openSource(o *options) (flag string, err error) {
	if o.manifests {
		dir := filepath.Join(b.logs, "manifests")
		b.writer = folder(dir)
		return "--manifests=" + dir, os.MkdirAll(dir, 0o755)
	}
	b.plane, err = apiserver.StartIn(b.world, apiserver.Options{
		Binaries: o.binaries, Dir: b.logs, ServiceRanges: strings.Join(objects.Both("SERVICES"), ","),
		// Objects that are older than the API server's own checks may hold anything.
		Arguments: []string{"--feature-gates=StrictIPCIDRValidation=false"},
	})
	if err != nil {
		return "", err
	}
	b.later(b.plane.Close)
	b.writer = apiWriter{b.plane.Client}
	for _, name := range []string{stableNamespace, churnNamespace, hostileNamespace} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := b.plane.Client.CoreV1().Namespaces().Create(context.Background(), ns, metav1.CreateOptions{}); err != nil {
			return "", fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	kubeconfig, err := b.plane.KubeProxy()
	return "--kubeconfig=" + kubeconfig, err
}

// writeStable writes the Nodes and the untouched Services.
func (b *bed) writeStable() error {
	ctx := context.Background()
	errs := []error{
		b.writer.node(ctx, objects.Node(lab.NodeName, "NODE", "NODE_PODS")),
		b.writer.node(ctx, objects.Node(lab.RemoteNodeName, "REMOTE", "REMOTE_PODS")),
	}
	for _, s := range stableServices() {
		errs = append(errs, b.writer.service(ctx, s.service()), b.writeSlices(&s, s.pods()...))
	}
	if b.plane != nil {
		errs = append(errs, b.plane.Save())
	}
	return errors.Join(errs...)
}

func (b *bed) startDaemon(o *options, source string) error {
	m, err := startMonitor(b.world.Node)
	if err != nil {
		return err
	}
	b.later(m.close)
	scratch, err := lab.NewNamespace("scratch")
	if err != nil {
		return err
	}
	b.later(scratch.Close)
	b.daemon = &daemon{node: b.world.Node, dir: b.logs, binary: o.verdict, others: o.others, source: source}
	b.oracle = &oracle{node: b.world.Node, scratch: scratch, daemon: b.daemon}
	b.editor = &editor{node: b.world.Node, monitor: m, ledger: b.ledger, oracle: b.oracle, daemon: b.daemon}
	b.later(b.daemon.kill)
	if err := b.daemon.start(); err != nil {
		return err
	}
	return b.oracle.equal(time.Now().Add(settlePatience))
}
