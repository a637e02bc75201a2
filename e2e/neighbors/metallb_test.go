//go:build e2e

package neighbors

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// metallb is MetalLB's speaker in L2 mode: it answers ARP and neighbor solicitations for load-balancer IPs, which no device
// has.
type metallb struct {
	folder  string // with the speaker and the definitions of its objects
	server  string // the folder with etcd and kube-apiserver
	control *apiserver.ControlPlane
	speaker *lab.Process
}

// TestMetalLB: a client on the node's link finds the load-balancer IPs only through the speaker. It announces one with the
// policy Local as long as the node has an endpoint.
func TestMetalLB(t *testing.T) {
	folder := build(t, "metallb")
	server, err := apiserver.Build("etcd", "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	testNeighbor(t, func() neighbor { return &metallb{folder: folder, server: server} })
	t.Run("policy Local", func(t *testing.T) {
		b, n := newBed(t), &metallb{folder: folder, server: server}
		b.startVerdict(t)
		n.start(t, b)
		for _, f := range lab.Families() {
			b.eventuallyFinds(t, f, "LB2", true)
		}
		for _, name := range []string{"local-4", "local-6"} {
			if err := n.control.Client.DiscoveryV1().EndpointSlices("shop").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range lab.Families() {
			b.eventuallyFinds(t, f, "LB2", false)
			b.eventuallyFinds(t, f, "LB1", true)
		}
	})
}

const metallbObjects = `apiVersion: v1
kind: Namespace
metadata: {name: metallb-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: v1
kind: Pod
metadata: {namespace: metallb-system, name: speaker}
spec: {nodeName: n1, containers: [{name: speaker, image: speaker}]}
---
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {namespace: metallb-system, name: pool}
spec: {addresses: [203.0.113.0/24, "2001:db8:203::/64"]}
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {namespace: metallb-system, name: all}
`

func (n *metallb) start(t *testing.T, b *bed) {
	t.Helper()
	if n.control == nil {
		n.startControl(t, b)
	}
	kubeconfig, err := n.control.Admin()
	if err != nil {
		t.Fatal(err)
	}
	n.speaker = b.newSystem(t).start(t, "speaker", "env", "KUBECONFIG="+kubeconfig, filepath.Join(n.folder, "speaker"),
		"--namespace=metallb-system", "--node-name=n1", "--pod-name=speaker", "--host=127.0.0.1")
	for _, f := range lab.Families() {
		b.eventuallyFinds(t, f, "LB1", true)
	}
}

// startControl starts an API server with the objects of the scenarios, and makes the load-balancer IPs addresses of the
// clients' own link.
func (n *metallb) startControl(t *testing.T, b *bed) {
	t.Helper()
	control, err := apiserver.StartIn(b.World, apiserver.Options{
		Binaries: n.server, Dir: t.TempDir(), ServiceRanges: text(t, lab.IPv4, "SERVICES") + "," + text(t, lab.IPv6, "SERVICES"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = control.Close() })
	n.control = control
	definitions, err := filepath.Glob(filepath.Join(n.folder, "crds/*.yaml"))
	if err != nil || len(definitions) == 0 {
		t.Fatalf("no definitions of MetalLB's objects: %v", err)
	}
	for _, file := range definitions {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n.create(t, string(text))
	}
	n.create(t, metallbObjects)
	for name, lb := range map[string]string{"web": "LB1", "local": "LB2"} {
		for _, file := range []string{name, name + "-slices"} {
			text, err := os.ReadFile(filepath.Join(b.objects, file+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			n.create(t, string(text))
		}
		status := fmt.Sprintf(`{"status": {"loadBalancer": {"ingress": [{"ip": %q}, {"ip": %q}]}}}`, text(t, lab.IPv4, lb), text(t, lab.IPv6, lb))
		if _, err := control.Client.CoreV1().Services("shop").Patch(t.Context(), name, types.MergePatchType, []byte(status),
			metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		for _, f := range lab.Families() {
			b.At(t, lab.Outside).Must(t, "", "ip", "route", "add", text(t, f, lb), "dev", "eth0")
		}
	}
}

// create gives objects to the API server. Definitions of MetalLB's objects take a moment until they serve.
func (n *metallb) create(t *testing.T, manifests string) {
	t.Helper()
	for manifest := range strings.SplitSeq(manifests, "---\n") {
		field := func(name string) string { return yamlField(manifest, name) }
		kind := strings.ToLower(field("kind"))
		if kind == "" {
			continue
		}
		path := "/apis/" + field("apiVersion")
		if field("apiVersion") == "v1" {
			path = "/api/v1"
		}
		if namespace := field("namespace"); namespace != "" {
			path += "/namespaces/" + namespace
		}
		path += "/" + kind + "s"
		eventually(t, "the API server takes "+path, nil, func() bool {
			status := 0
			err := n.control.Client.Discovery().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/yaml").
				Body([]byte(manifest)).Do(t.Context()).StatusCode(&status).Error()
			if err != nil && status != http.StatusNotFound {
				t.Fatalf("create %s: %v\n%s", path, err, manifest)
			}
			return err == nil
		})
	}
}

// eventuallyFinds waits until a client on the node's link finds an address there, or finds it no more.
func (b *bed) eventuallyFinds(t *testing.T, f lab.Family, name string, finds bool) {
	t.Helper()
	client, to := b.At(t, lab.Outside), text(t, f, name)
	eventually(t, fmt.Sprintf("the client finds %s: %t", to, finds), nil, func() bool {
		if !finds {
			_, _ = client.Command("ip", "neigh", "flush", "to", to) // what it knows would last for a minute
		}
		client.Ask(lab.Question{Protocol: lab.UDP, To: address(t, f, name, 9), Patience: 50 * time.Millisecond})
		out := client.Must(t, "", "ip", "neigh", "show", "to", to)
		return contains(out, "lladdr") == finds
	})
}

func (n *metallb) reload(t *testing.T, b *bed) {
	t.Helper()
	n.stop(t, b)
	n.start(t, b)
}

func (n *metallb) stop(t *testing.T, _ *bed) {
	t.Helper()
	stop(t, n.speaker)
}

func (*metallb) trace() string { return "" }

func (*metallb) drops() bool { return false }

// yamlField is the value of a field in block or flow style.
func yamlField(manifest, name string) string {
	m := regexp.MustCompile(`\b` + name + `: ([\w./-]+)`).FindStringSubmatch(manifest)
	if m == nil {
		return ""
	}
	return m[1]
}
