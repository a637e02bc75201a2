package benchupstream

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

// planeAddress is the address of the API server, on the loopback link of its namespace.
const planeAddress = "10.252.0.1"

// plane is an API server in its own namespace. Nodes are connected to it one after the other.
type plane struct {
	shape
	ns      *lab.Namespace
	control *apiserver.ControlPlane
	dir     string
	nodes   int // connected so far
}

// newPlane starts an API server that has a cluster of this size. It ends with the benchmark.
func newPlane(b testing.TB, s shape) *plane {
	b.Helper()
	p := &plane{shape: s, ns: &lab.Namespace{Namespace: netns.New(b)}, dir: b.TempDir()}
	addr := netip.MustParseAddr(planeAddress)
	lab.Must(b, p.ns.AddAddress("lo", netip.PrefixFrom(addr, 32)))
	saved := filepath.Join(*savedIn, fmt.Sprintf("%s-%d-%d", filepath.Base(*binaries), s.services, s.endpoints))
	_, err := os.Stat(saved)
	filled := *savedIn != "" && err == nil
	if filled {
		lab.Must(b, os.CopyFS(filepath.Join(p.dir, "etcd"), os.DirFS(saved)))
	}
	p.control, err = apiserver.Start(apiserver.Options{
		Binaries: *binaries, Dir: p.dir, Namespace: p.ns, Address: addr, ServiceRanges: serviceRange,
	})
	lab.Must(b, err)
	b.Cleanup(func() { lab.Must(b, p.control.Close()) })
	if filled {
		lab.Must(b, cached(p.client(), s.services))
		return p
	}
	lab.Must(b, p.control.Put(b.Context(), newNode(), newService(0), s.slice(0)), fill(p))
	if *savedIn != "" {
		lab.Must(b, p.control.Save(), os.CopyFS(saved+".part", os.DirFS(filepath.Join(p.dir, "etcd-saved"))), os.Rename(saved+".part", saved))
	}
	return p
}

func (p *plane) client() kubernetes.Interface { return p.control.Client }

// connect connects a node to the API server.
func (p *plane) connect(b testing.TB, node *lab.Namespace) {
	b.Helper()
	p.nodes++
	link := fmt.Sprintf("node-%d", p.nodes)
	here, there := fmt.Sprintf("10.252.%d.1", p.nodes), fmt.Sprintf("10.252.%d.2", p.nodes)
	lab.Must(b,
		measure.Link(p.ns, node, link, here+"/24", there+"/24"),
		measure.Route(node, planeAddress+"/32", here),
	)
}

// newNode is the Node object of the proxies.
func newNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ownNode}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: measure.NodeAddress}},
	}}
}
