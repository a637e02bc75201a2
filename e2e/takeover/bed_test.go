//go:build e2e || ipvs

package takeover

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
)

// programs are built once.
var programs struct{ controlPlane, verdict string }

// bed is a node with an API server and one Service.
type bed struct {
	*lab.World
	dir        string
	kubeconfig string
	plane      *apiserver.ControlPlane // nil: answers that never change stand in for it
	server     netip.Addr              // the API server
	starts     int                     // of proxies; each has a log of its own
}

func newBed(t testing.TB) *bed {
	t.Helper()
	b := &bed{World: lab.New(t), dir: t.TempDir()}
	ns, addr, err := b.Attach("control plane")
	lab.Must(t, err)
	b.server = addr
	b.kubeconfig = b.serveObjects(t, ns)
	return b
}

// Ports of the Service.
const (
	servicePort = 80
	nodePort    = 30080
	targetPort  = 8080
)

// served is what both proxies read.
type served struct {
	node    *corev1.Node
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice
}

// newObjects returns the Node, and a Service for TCP and UDP with cluster IPs, node ports and load-balancer IPs in both
// families. Its endpoints are a pod on the node and one on the other node. The Service of the API server has its endpoint.
func newObjects(t testing.TB, server netip.Addr) served {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: lab.NodeName}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
	}}
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
			Name: strings.ToLower(string(protocol)), Protocol: protocol, Port: servicePort, NodePort: nodePort,
		})
	}
	for _, f := range lab.Families() {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: lab.MustText(f, "NODE")})
		service.Spec.ClusterIPs = append(service.Spec.ClusterIPs, lab.MustText(f, "VIP1"))
		service.Spec.IPFamilies = append(service.Spec.IPFamilies, corev1.IPFamily(f.String()))
		service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: lab.MustText(f, "LB1")})
	}
	service.Spec.ClusterIP = service.Spec.ClusterIPs[0]
	kubernetes := newSlice(lab.IPv4)
	kubernetes.Name, kubernetes.Labels[discoveryv1.LabelServiceName] = "kubernetes", "kubernetes"
	kubernetes.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("https"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](6443)}}
	kubernetes.Endpoints = kubernetes.Endpoints[:1]
	kubernetes.Endpoints[0].Addresses = []string{server.String()}
	return served{node, service, []*discoveryv1.EndpointSlice{newSlice(lab.IPv4), newSlice(lab.IPv6), kubernetes}}
}

func newSlice(f lab.Family) *discoveryv1.EndpointSlice {
	s := objects.Slice("default", "web", f, 0,
		objects.SlicePort("tcp", corev1.ProtocolTCP, targetPort), objects.SlicePort("udp", corev1.ProtocolUDP, targetPort))
	objects.AddPods(s, f, "a", "c")
	return s
}

// start starts a proxy on the node and waits until its log has all texts.
func (b *bed) start(t testing.TB, name string, env, command []string, logs ...string) *lab.Process {
	t.Helper()
	b.starts++
	name = fmt.Sprintf("%s-%d", name, b.starts)
	common := []string{
		"--kubeconfig=" + b.kubeconfig, "--hostname-override=" + lab.NodeName, "--healthz-bind-address=127.0.0.1:10256",
		"--cluster-cidr=" + lab.MustText(lab.IPv4, "PODS") + "," + lab.MustText(lab.IPv6, "PODS"), "-v=4",
	}
	p, err := lab.NewProcess(lab.ProcessOptions{Name: name, Namespace: b.Node, Dir: b.dir, Command: append(command, common...), Env: env})
	lab.Must(t, err)
	t.Cleanup(func() { _ = p.Kill() }) // most have ended before
	for end := time.Now().Add(startPatience); ; time.Sleep(5 * time.Millisecond) {
		content, err := os.ReadFile(filepath.Join(b.dir, name+".log"))
		lab.Must(t, err)
		if containsAll(string(content), logs) {
			return p
		}
		if time.Now().After(end) {
			t.Fatalf("the log of %s does not say %q; it ends:\n%s", name, logs, p.Log(20))
		}
	}
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}
