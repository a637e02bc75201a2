//go:build e2e

package deadnode

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
)

var upstream = flag.String("upstream", "", "folder with etcd, kube-apiserver and kube-proxy: BenchmarkVanish runs kube-proxy, too")

const (
	calm      = 5 * time.Second  // before the node vanishes
	unchanged = 40 * time.Second // how long the EndpointSlices say nothing of it
)

// BenchmarkVanish cuts a node off, with 3 of the 10 endpoints of a Service, and goes on for as long as Kubernetes takes
// to say so. Verdict reads its objects from a folder, kube-proxy reads the same ones from an API server.
func BenchmarkVanish(b *testing.B) {
	for b.Loop() {
		vanishUnder(b, "Verdict", newBed(b, eject, tenEndpoints()))
		if *upstream != "" {
			vanishUnder(b, "kube-proxy (nftables)", newUpstreamBed(b))
		}
	}
}

// vanishUnder prints what became of the connections of a load around the death.
func vanishUnder(b *testing.B, name string, bed *bed) {
	b.Helper()
	l := bed.load(lab.Outside, vip(lab.IPv4), *perSecond)
	time.Sleep(calm)
	bed.vanish()
	death := time.Now()
	time.Sleep(unchanged)
	list := l.end()
	o := judge(list, death)
	b.Logf("%s: %d connections, %d failed, %d took more than 1.5 s, the last of these began %s after the death, the slowest took %s",
		name, len(list), o.failed, o.late, o.lastLate.Round(time.Millisecond), o.worst.Round(time.Millisecond))
}

// newUpstreamBed is a world with kube-proxy on its node, and the Service of newBed.
func newUpstreamBed(b *testing.B) *bed {
	b.Helper()
	up := &bed{World: lab.New(b), t: b, dir: b.TempDir()}
	plane, err := apiserver.StartIn(up.World, apiserver.Options{
		Binaries: *upstream, Dir: up.dir, ServiceRanges: strings.Join(lab.Both("SERVICES"), ","),
	})
	lab.Must(b, err)
	b.Cleanup(func() {
		if err := plane.Close(); err != nil {
			b.Error(err)
		}
	})
	up.write("service.yaml", service(""))
	up.slices(tenEndpoints())
	lab.Must(b, up.post(plane))
	kubeconfig, err := plane.Kubeconfig(apiserver.KubeProxy)
	lab.Must(b, err)
	up.process, err = lab.NewProcess(lab.ProcessOptions{Name: "kube-proxy", Namespace: up.Node, Dir: up.dir, Command: []string{
		filepath.Join(*upstream, "kube-proxy"), "--kubeconfig=" + kubeconfig, "--hostname-override=" + lab.NodeName,
		"--cluster-cidr=10.0.0.0/16,fd00:10::/48", "--proxy-mode=nftables", "--conntrack-max-per-core=0", "--conntrack-min=0",
		"--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s", "--v=2",
	}})
	lab.Must(b, err)
	b.Cleanup(func() {
		if b.Failed() {
			b.Log(up.process.Log(60))
		}
		if err := up.process.Stop(); err != nil && !strings.Contains(err.Error(), "terminated") {
			b.Error(err) // kube-proxy does not handle SIGTERM
		}
	})
	up.eventually("kube-proxy serves", works)
	return up
}

// post writes the objects of the folder into an API server, and the Node object that kube-proxy waits for.
func (b *bed) post(plane *apiserver.ControlPlane) error {
	b.t.Helper()
	node := objects.Node(lab.NodeName, "NODE_INNER", "NODE_PODS")
	err := plane.Put(b.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, node)
	for _, name := range []string{"service.yaml", "slices.yaml"} {
		text, readErr := os.ReadFile(filepath.Join(b.dir, "manifests", name))
		err = errors.Join(err, readErr)
		for document := range strings.SplitSeq("\n"+string(text), "\n---\n") {
			var o unstructured.Unstructured
			err = errors.Join(err, yaml.Unmarshal([]byte(document), &o.Object))
			if o.GetKind() == "Service" { // as the API server wants it
				ips, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "clusterIPs")
				err = errors.Join(err, unstructured.SetNestedField(o.Object, "RequireDualStack", "spec", "ipFamilyPolicy"),
					unstructured.SetNestedField(o.Object, ips[0], "spec", "clusterIP"))
			}
			if len(o.Object) > 0 {
				err = errors.Join(err, plane.Put(b.t.Context(), &o))
			}
		}
	}
	return err
}
