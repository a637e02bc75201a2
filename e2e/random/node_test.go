//go:build e2e || ipvs

package random

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
)

// node is the node on which the daemon runs.
type node struct {
	*testing.T
	r         *rand.Rand
	world     *lab.World
	manifests string
	config    string // the configuration file
	logs      string
	daemon    *lab.Process
	backend   string // the --backend of verdict; empty: its default
	starts    int
	budgets   []string
	nodePorts []string // nodePortAddresses
	masquAll  bool
	spare     bool          // the node has the addresses $SPARE
	ahead     time.Duration // by how much the clock was set forward
	history   history
}

// patience is how long the kernel may differ from what is wanted. A slow machine runs other tests beside.
const patience = 3 * time.Minute

func newNode(t *testing.T, r *rand.Rand, backend string) *node {
	t.Helper()
	n := &node{T: t, r: r, world: lab.New(t), manifests: t.TempDir(), logs: t.TempDir(), backend: backend, nodePorts: []string{"primary"}}
	n.config = filepath.Join(t.TempDir(), "config.yaml")
	for name, text := range untouched() {
		n.write(name, text)
	}
	n.configure()
	n.start()
	t.Cleanup(n.stop)
	t.Cleanup(func() { lab.SaveIfFailed(t, n.world.Node, n.daemon) })
	t.Cleanup(func() {
		if n.ahead != 0 {
			n.setClock(-n.ahead)
		}
	})
	return n
}

func (n *node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatalf("%v\n%s", err, n.history)
	}
}

func (n *node) write(name, text string) {
	n.Helper()
	n.must(lab.WriteFile(n.manifests, name+".yaml", []byte(text)))
}

func (n *node) note(what string) {
	n.history = append(n.history, time.Now().Format("15:04:05.000 ")+what)
}

// settings are the flags that decide what the rules are.
func (n *node) settings() []string {
	var pods []string
	for _, f := range lab.Families() {
		pods = append(pods, lab.MustText(f, "PODS"))
	}
	flags := []string{"--manifests=" + n.manifests, "--hostname-override=" + lab.NodeName, "--cluster-cidr=" + strings.Join(pods, ",")}
	if n.backend != "" {
		flags = append(flags, "--backend="+n.backend)
	}
	return append(flags, n.budgets...)
}

// configure writes the configuration file.
func (n *node) configure() {
	n.Helper()
	list, err := json.Marshal(n.nodePorts)
	n.must(err)
	n.must(lab.WriteFile(filepath.Dir(n.config), filepath.Base(n.config), fmt.Appendf(nil,
		"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\nnodePortAddresses: %s\nnftables: {masqueradeAll: %t}\n", list, n.masquAll)))
}

func (n *node) start() {
	n.Helper()
	n.starts++
	var err error
	n.daemon, err = lab.NewProcess(lab.ProcessOptions{
		Name: fmt.Sprintf("verdict-%03d", n.starts), Namespace: n.world.Node, Dir: n.logs,
		Command: append([]string{binary, "run", "--config=" + n.config, "--healthz-bind-address=", "--conntrack-max-per-core=0"}, n.settings()...),
	})
	n.must(err)
}

// stop ends the daemon in an orderly way.
func (n *node) stop() {
	n.Helper()
	if n.daemon == nil {
		return
	}
	d := n.daemon
	n.daemon = nil
	// A process that has just been started may have had no time to handle signals.
	if err := d.Stop(); err != nil && strings.Contains(d.Log(3), "msg=starting") {
		n.Fatalf("%v\n%s\n%s", err, d.Log(20), n.history)
	}
}

func (n *node) kill() {
	n.Helper()
	d := n.daemon
	n.daemon = nil
	n.must(d.Kill())
}

// equal waits until the kernel has what the manifests ask for.
func (n *node) equal(after string) {
	n.Helper()
	args := append([]string{"diff", "--nodeport-addresses=" + strings.Join(n.nodePorts, ",")}, n.settings()...)
	if n.masquAll {
		args = append(args, "--masquerade-all")
	}
	var out bytes.Buffer
	for late := time.Now().Add(patience); ; {
		out.Reset()
		cmd := exec.Command(binary, args...)
		cmd.Stdout, cmd.Stderr = &out, &out
		n.must(n.world.Node.Start(cmd))
		if err := cmd.Wait(); err == nil {
			return
		}
		select {
		case <-n.daemon.Exited():
			n.Fatalf("after %s, the daemon ended:\n%s\n%s", after, n.daemon.Log(20), n.history)
		default:
		}
		if time.Now().After(late) {
			n.Fatalf("after %s, the kernel still differs:\n%s\n%s\n%s", after, out.String(), n.daemon.Log(20), n.history)
		}
	}
}

// runtimeSets have elements that packets or time decide, or that stay on purpose: chains of classes are kept.
var runtimeSets = []string{"generation", "dispatch", "affinity", "unanswered", "refusing", "held-back"}

// elements counts the elements of each set and map of both tables.
func (n *node) elements() map[string]int {
	n.Helper()
	counts := map[string]int{}
	for _, family := range []string{"ip", "ip6"} {
		var listed struct {
			Objects []map[string]struct {
				Name string            `json:"name"`
				Elem []json.RawMessage `json:"elem"`
			} `json:"nftables"`
		}
		n.must(json.Unmarshal([]byte(n.world.Node.Must(n, "", "nft", "-j", "list", "sets", family)), &listed))
		sets := listed.Objects
		n.must(json.Unmarshal([]byte(n.world.Node.Must(n, "", "nft", "-j", "list", "maps", family)), &listed))
		for _, o := range slices.Concat(sets, listed.Objects) {
			for _, kind := range []string{"set", "map"} {
				if s, ok := o[kind]; ok && !slices.Contains(runtimeSets, s.Name) {
					counts[family+" "+s.Name] = len(s.Elem)
				}
			}
		}
	}
	return counts
}

// removeAll removes the random Services, and settings are what they were at the start. A hash table without pools goes with the next change of its family.
func (n *node) removeAll() {
	n.Helper()
	files, err := filepath.Glob(filepath.Join(n.manifests, randomPrefix+"*"))
	n.must(err)
	for _, f := range files {
		n.must(os.Remove(f))
	}
	n.nodePorts, n.masquAll = []string{"primary"}, false
	n.configure()
	n.write("modal", modal(func(*corev1.Service) {}))
	n.note("all random Services are removed")
	n.equal("all random Services removed")
	last := objects.Service("one", "last", "10.96.1.200", "fd00:10:96::1:c8")
	last.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}
	n.write(randomPrefix+"last", objects.Manifest(last))
	n.equal("one more Service")
	n.must(os.Remove(filepath.Join(n.manifests, randomPrefix+"last.yaml")))
	n.equal("that Service removed")
}
