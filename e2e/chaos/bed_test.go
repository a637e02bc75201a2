//go:build e2e

package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	fast    *fastPath // nil: the kernel cannot have it
	churn   *churn
}

// fault is something that goes wrong.
type fault struct {
	name   string
	weight int  // how often it is drawn, among all
	alone  bool // no other fault comes with it
	api    bool // it needs an API server
	files  bool // it needs a folder of manifests
	fast   bool // it needs a kernel with flowtables
	// begin makes it happen, and returns a function that ends it, or nil.
	begin func(b *bed, r *rand.Rand) (end func() error, err error)
}

// pause waits for a random time.
func pause(r *rand.Rand, longest time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(longest)))) }

// newBed builds everything and returns when the untouched Services are served.
func newBed(t *testing.T, logs string) *bed {
	t.Helper()
	log, err := os.Create(filepath.Join(logs, "chaos.log"))
	lab.Must(t, err)
	t.Cleanup(func() { lab.Must(t, log.Close()) })
	b := &bed{logs: logs, world: lab.New(t), ledger: &ledger{log: log, excused: map[string]int{}, dropped: queueDrops()}}
	for _, pod := range []string{"a", "b", "c"} {
		for _, port := range []uint16{refusedTarget, checkedTarget, checkPort} {
			lab.Must(t, b.world.Serve(pod, pod, port))
		}
	}
	lab.Must(t, b.world.Node.Load(foreign))
	source := b.openSource(t)
	lab.Must(t, b.writeStable())
	b.startDaemon(t, source)
	b.churn = startChurn(t, b.writer)
	b.editor.churn = b.churn
	b.traffic = startTraffic(t, b.world, b.ledger)
	return b
}

// foreign is a table of other software, as every node has one: a firewall, and a network plugin that masquerades. It keeps
// connection tracking and translation in use while the tables of Verdict are missing. Otherwise the kernel would stop
// translating open connections in that time.
const foreign = "add table inet others\n" +
	"add chain inet others forward { type filter hook forward priority 5; }\n" +
	"add rule inet others forward ct state invalid counter\n" +
	"add chain inet others postrouting { type nat hook postrouting priority 110; }\n" +
	"add rule inet others postrouting ip saddr 100.64.0.0/10 masquerade\n"

// openSource starts an API server, or makes a folder for manifests. It returns the flag of verdict that names it.
func (b *bed) openSource(t *testing.T) (flag string) {
	t.Helper()
	if *manifests {
		dir := filepath.Join(b.logs, "manifests")
		b.writer = manifestFolder(dir)
		lab.Must(t, os.MkdirAll(dir, 0o755))
		return "--manifests=" + dir
	}
	var err error
	b.plane, err = apiserver.StartIn(b.world, apiserver.Options{
		Binaries: *binaries, Dir: b.logs, ServiceRanges: strings.Join(lab.Both("SERVICES"), ","),
		// Objects that are older than the API server's own checks may hold anything.
		Arguments: []string{"--feature-gates=StrictIPCIDRValidation=false"},
	})
	lab.Must(t, err)
	t.Cleanup(func() { lab.Must(t, b.plane.Close()) })
	b.writer = apiWriter{b.plane}
	for _, name := range []string{stableNamespace, churnNamespace, hostileNamespace} {
		lab.Must(t, b.plane.Put(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	kubeconfig, err := b.plane.Kubeconfig(apiserver.KubeProxy)
	lab.Must(t, err)
	return "--kubeconfig=" + kubeconfig
}

// writeStable writes the Nodes and the untouched Services.
func (b *bed) writeStable() error {
	ctx := context.Background()
	errs := []error{
		b.writer.put(ctx, objects.Node(lab.NodeName, "NODE", "NODE_PODS")),
		b.writer.put(ctx, objects.Node(lab.RemoteNodeName, "REMOTE", "REMOTE_PODS")),
	}
	for _, s := range stableServices() {
		errs = append(errs, b.writer.put(ctx, s.service()), b.writeSlices(&s, s.pods()...))
	}
	if b.plane != nil {
		errs = append(errs, b.plane.Save())
	}
	return errors.Join(errs...)
}

// writeSlices writes the slices of an untouched Service, with these endpoints.
func (b *bed) writeSlices(s *stable, pods ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*writePatience)
	defer cancel()
	var errs []error
	for _, f := range lab.Families() {
		errs = append(errs, b.writer.put(ctx, s.slice(f, pods...)))
	}
	return errors.Join(errs...)
}

func (b *bed) startDaemon(t *testing.T, source string) {
	t.Helper()
	m := startMonitor(t, b.world.Node)
	b.daemon = &daemon{node: b.world.Node, dir: b.logs, binary: *program, versions: splitFlag(*others), source: source}
	b.oracle = newOracle(t, b.world.Node, b.daemon)
	b.fast = newFastPath(t, b.world.Node)
	b.editor = &editor{node: b.world.Node, monitor: m, ledger: b.ledger, oracle: b.oracle, daemon: b.daemon}
	t.Cleanup(func() { lab.Must(t, b.daemon.kill()) })
	lab.Must(t, b.daemon.start(), b.oracle.equal())
}
