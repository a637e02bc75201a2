//go:build ipvs

package takeover

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/program"
)

func TestMain(m *testing.M) {
	var err error
	if programs.controlPlane, err = apiserver.Build("kube-proxy"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(program.Main(m, &programs.verdict))
}

// kind is a resource whose objects never change. An API server takes minutes to start on an emulated processor, and this
// test changes no object: so lists and watches of the same objects stand in for it.
type kind struct {
	group, name string // version of the API, and name of the kind
	objects     []any
}

// serveObjects answers lists and watches of the objects, and returns a kubeconfig for the proxies.
func (b *bed) serveObjects(t testing.TB, ns *lab.Namespace) (kubeconfig string) {
	t.Helper()
	mux := http.NewServeMux()
	for path, k := range kinds(newObjects(t, b.server)) {
		mux.HandleFunc("GET "+path, k.answer)
	}
	mux.HandleFunc("GET /api/v1/nodes/"+lab.NodeName, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode((&kind{group: "v1", name: "Node"}).typed(newObjects(t, b.server).node))
	})
	var listener net.Listener
	ns.MustDo(t, func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(b.server.String(), "6443"))
		return err
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }() // ends with Close
	t.Cleanup(func() { _ = server.Close() })   // the watches go on until then
	kubeconfig = filepath.Join(b.dir, "static.kubeconfig")
	const format = `{"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "c", "cluster": {"server": "http://%s"}}],
"contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}`
	lab.Must(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, format, listener.Addr()), 0o600))
	return kubeconfig
}

func kinds(o served) map[string]*kind {
	kubernetes := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}}
	kubernetes.Spec.ClusterIP = "10.96.0.1"
	kubernetes.Spec.ClusterIPs = []string{kubernetes.Spec.ClusterIP}
	kubernetes.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	kubernetes.Spec.Ports = []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443}}
	services := &kind{group: "v1", name: "Service", objects: []any{o.service, kubernetes}}
	nodes := &kind{group: "v1", name: "Node", objects: []any{o.node}}
	slices := &kind{group: "discovery.k8s.io/v1", name: "EndpointSlice"}
	for _, s := range o.slices {
		slices.objects = append(slices.objects, s)
	}
	ranges := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}}
	ranges.Spec.CIDRs = []string{"10.96.0.0/12", "fd00:10:96::/112"}
	return map[string]*kind{
		"/api/v1/services": services, "/api/v1/namespaces/default/services": services, "/api/v1/nodes": nodes,
		"/apis/discovery.k8s.io/v1/endpointslices": slices,
		"/apis/networking.k8s.io/v1/servicecidrs":  {group: "networking.k8s.io/v1", name: "ServiceCIDR", objects: []any{ranges}},
	}
}

// answer answers a list or a watch.
func (k *kind) answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	type meta struct {
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations,omitempty"`
	}
	if r.URL.Query().Get("watch") == "" {
		_ = out.Encode(map[string]any{"apiVersion": k.group, "kind": k.name + "List", "metadata": meta{ResourceVersion: "1"}, "items": k.objects})
		return
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, o := range k.objects {
			_ = out.Encode(map[string]any{"type": "ADDED", "object": k.typed(o)})
		}
		end := meta{ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
		_ = out.Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{"apiVersion": k.group, "kind": k.name, "metadata": end}})
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// typed returns an object with its kind.
func (k *kind) typed(o any) map[string]any {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err) // the objects are in this file and in bed_test.go
	}
	fields["apiVersion"], fields["kind"] = k.group, k.name
	fields["metadata"].(map[string]any)["resourceVersion"] = "1"
	return fields
}
