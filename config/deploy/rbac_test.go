//go:build e2e

package deploy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// patience is how long a step may take at most.
const patience = 3 * time.Minute

// cluster is an API server in a network namespace, with the objects of base/daemonset.yaml.
type cluster struct {
	ns         *lab.Namespace
	plane      *apiserver.ControlPlane
	dir        string
	kubeconfig string               // of the DaemonSet's ServiceAccount
	client     kubernetes.Interface // authenticates as that ServiceAccount
}

func start(t *testing.T) *cluster {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("an API server runs in a network namespace with its files on the host: run this test as root")
	}
	binaries, err := apiserver.Build("etcd", "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := lab.NewNamespace("deploy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	addr := netip.MustParseAddr("10.252.0.1")
	if err := ns.AddAddress("lo", netip.PrefixFrom(addr, 32)); err != nil {
		t.Fatal(err)
	}
	c := &cluster{ns: ns, dir: t.TempDir()}
	c.plane, err = apiserver.Start(apiserver.Options{
		Binaries: binaries, Dir: c.dir, Namespace: ns, Address: addr, ServiceRanges: "10.96.0.0/16,fd00:10:96::/112",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.plane.Close(); err != nil {
			t.Error(err)
		}
	})
	c.deploy(t)
	return c
}

// deploy creates the objects of base/daemonset.yaml and requests a token of the ServiceAccount.
func (c *cluster) deploy(t *testing.T) {
	t.Helper()
	s, ctx := load(t), t.Context()
	c.await(t, "the API server's own namespaces", func() (bool, error) {
		_, err := c.plane.Client.CoreV1().Namespaces().Get(ctx, s.account.Namespace, metav1.GetOptions{})
		return err == nil, err
	})
	_, err1 := c.plane.Client.CoreV1().ServiceAccounts(s.account.Namespace).Create(ctx, &s.account, metav1.CreateOptions{})
	_, err2 := c.plane.Client.RbacV1().ClusterRoles().Create(ctx, &s.role, metav1.CreateOptions{})
	_, err3 := c.plane.Client.RbacV1().ClusterRoleBindings().Create(ctx, &s.binding, metav1.CreateOptions{})
	_, err4 := c.plane.Client.AppsV1().DaemonSets(s.daemons.Namespace).Create(ctx, &s.daemons, metav1.CreateOptions{})
	_, err5 := c.plane.Client.CoreV1().ConfigMaps(s.config.Namespace).Create(ctx, &s.config, metav1.CreateOptions{})
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatalf("the API server rejects base/daemonset.yaml: %v", err)
	}
	var err error
	if c.kubeconfig, err = c.plane.ServiceAccount(s.account.Namespace, s.account.Name); err != nil {
		t.Fatal(err)
	}
	settings, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	settings.Dial, settings.QPS = c.ns.DialContext, -1
	if c.client, err = kubernetes.NewForConfig(settings); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) await(t *testing.T, what string, is func() (bool, error)) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ok, err := is()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
	}
}

// TestDeployed starts one API server for all its subtests.
func TestDeployed(t *testing.T) {
	c := start(t)
	t.Run("what the ClusterRole allows", c.allowed)
	t.Run("what the ClusterRole refuses", c.refused)
	t.Run("dry run of all variants", c.dryRun)
	t.Run("verdict runs with it", c.runs)
	t.Run("in the place of kubeadm's kube-proxy", c.kubeadm)
}

// request is a verb and a path below the root of the API server.
func (c *cluster) request(ctx context.Context, verb, path, body string) error {
	r := c.client.CoreV1().RESTClient().Verb(verb).RequestURI(path)
	if verb == http.MethodPatch {
		r = r.SetHeader("Content-Type", string(types.MergePatchType))
	} else if body != "" {
		r = r.SetHeader("Content-Type", "application/json")
	}
	if body != "" {
		r = r.Body([]byte(body))
	}
	return r.Do(ctx).Error()
}

func (c *cluster) allowed(t *testing.T) {
	for _, path := range []string{
		"/api/v1/services", "/api/v1/nodes",
		"/apis/discovery.k8s.io/v1/endpointslices", "/apis/networking.k8s.io/v1/servicecidrs",
		"/api/v1/services?watch=1&timeoutSeconds=1", "/api/v1/nodes?watch=1&timeoutSeconds=1",
		"/apis/discovery.k8s.io/v1/endpointslices?watch=1&timeoutSeconds=1", "/apis/networking.k8s.io/v1/servicecidrs?watch=1&timeoutSeconds=1",
	} {
		c.await(t, "GET "+path, func() (bool, error) {
			err := c.request(t.Context(), http.MethodGet, path, "")
			return err == nil, err
		})
	}
}

func (c *cluster) refused(t *testing.T) {
	const merge = `{"metadata":{"labels":{"a":"b"}}}`
	for _, tt := range []struct{ verb, path, body string }{
		{http.MethodGet, "/api/v1/secrets", ""},
		{http.MethodGet, "/api/v1/namespaces/default/services/kubernetes", ""},
		{http.MethodGet, "/api/v1/nodes/node", ""},
		{http.MethodGet, "/api/v1/configmaps", ""},
		{http.MethodGet, "/api/v1/pods", ""},
		{http.MethodGet, "/api/v1/endpoints", ""},
		{http.MethodGet, "/apis/events.k8s.io/v1/events", ""},
		{http.MethodPatch, "/api/v1/namespaces/default/services/kubernetes", merge},
		{http.MethodPatch, "/api/v1/namespaces/default/services/kubernetes/status", merge},
		{http.MethodDelete, "/api/v1/namespaces/default/services/kubernetes", ""},
		{http.MethodPatch, "/api/v1/nodes/node", merge},
		{http.MethodPatch, "/apis/apps/v1/namespaces/kube-system/daemonsets/verdict", merge},
		{http.MethodPost, "/api/v1/namespaces/kube-system/serviceaccounts/verdict/token", `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1"}`},
		{http.MethodPatch, "/apis/rbac.authorization.k8s.io/v1/clusterroles/verdict", merge},
	} {
		if err := c.request(t.Context(), tt.verb, tt.path, tt.body); !apierrors.IsForbidden(err) {
			t.Errorf("%s %s: %v, want Forbidden", tt.verb, tt.path, err)
		}
	}
}

// runs starts the binary with the arguments and capabilities of the DaemonSet and the token of the ServiceAccount.
func (c *cluster) runs(t *testing.T) {
	s := load(t)
	container := s.container()
	process := c.execute(t, "verdict", container, slices.Concat(s.arguments(t), []string{"--kubeconfig=" + c.kubeconfig}))
	c.write(t)
	c.await(t, "the frontend in the kernel", func() (bool, error) {
		text, err := c.ns.Command("nft", "list", "map", "ip", "verdict", "services")
		return strings.Contains(text, frontend), err
	})
	c.probes(t, container)
	c.await(t, "the Event on the second Service", c.event)
	c.mixin(t)
	if log := process.Log(100); strings.Contains(log, "forbidden") {
		t.Errorf("the API server denied a request:\n%s", log)
	}
}

// execute starts the binary with the capabilities of a container, and ends it with the test.
func (c *cluster) execute(t *testing.T, name string, container *corev1.Container, args []string) *lab.Process {
	t.Helper()
	words := []string{"setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", binary}
	for _, added := range container.SecurityContext.Capabilities.Add {
		words[1] += ",+" + strings.ToLower(string(added))
	}
	for _, a := range args {
		words = append(words, strings.ReplaceAll(a, "$(NODE_NAME)", "node"))
	}
	process, err := lab.NewProcess(lab.ProcessOptions{Name: name, Namespace: c.ns, Dir: c.dir, Command: words})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(process.Log(30))
		}
	})
	return process
}

// write creates a Service with a slice, and a second Service with the same external address.
func (c *cluster) write(t *testing.T) {
	t.Helper()
	ctx, first, slice := t.Context(), &corev1.Service{}, &discoveryv1.EndpointSlice{}
	service, endpoints, _ := strings.Cut(manifests, "\n---\n")
	if err := errors.Join(yaml.UnmarshalStrict([]byte(service), first), yaml.UnmarshalStrict([]byte(endpoints), slice)); err != nil {
		t.Fatal(err)
	}
	first.Spec.ExternalIPs = []string{"192.0.2.10"}
	second := first.DeepCopy()
	second.Name, second.Spec.ClusterIP = "web-again", "10.96.0.81"
	services := c.plane.Client.CoreV1().Services("default")
	_, err1 := services.Create(ctx, first, metav1.CreateOptions{})
	_, err2 := c.plane.Client.DiscoveryV1().EndpointSlices("default").Create(ctx, slice, metav1.CreateOptions{})
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // the older Service gets the address, and creation times are in whole seconds
	_, err3 := services.Create(ctx, second, metav1.CreateOptions{})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if got, err := services.Get(ctx, first.Name, metav1.GetOptions{}); err != nil || got.Spec.ClusterIP != "10.96.0.80" {
		t.Fatalf("read back: %v, %+v", err, got)
	}
}

// event waits for the Event on the second Service.
func (c *cluster) event() (bool, error) {
	list, err := c.plane.Client.EventsV1().Events("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	for i := range list.Items {
		if e := &list.Items[i]; e.Regarding.Name == "web-again" && e.Reason == "NotHonored" {
			return true, nil
		}
	}
	return false, errors.New("there are other Events or none")
}

// probes sends the requests of the probes, like the kubelet.
func (c *cluster) probes(t *testing.T, container *corev1.Container) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: c.ns.DialContext, DisableKeepAlives: true}}
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		url := "http://" + net.JoinHostPort(probe.HTTPGet.Host, probe.HTTPGet.Port.String()) + probe.HTTPGet.Path
		c.await(t, url, func() (bool, error) {
			r, err := client.Get(url)
			if err != nil {
				return false, err
			}
			return r.StatusCode == http.StatusOK, r.Body.Close()
		})
	}
}
