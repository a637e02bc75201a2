//go:build e2e

package neighbors

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// metallb is MetalLB's speaker in L2 mode: it answers ARP and neighbor solicitations for load-balancer IPs, which no device
// has.
type metallb struct {
	folder  string // with the speaker and the definitions of its objects
	server  string // the folder with etcd and kube-apiserver
	control *apiserver.ControlPlane
	speaker *lab.Process
	bgp     bool // the clients are behind a router that learns addresses from the speaker, in IPv4
}

// TestMetalLB: a client on the node's link finds the load-balancer IPs only through the speaker. It announces one with the
// policy Local as long as the node has an endpoint, and as long as Verdict says so at the healthCheckNodePort.
func TestMetalLB(t *testing.T) {
	needs(t, "/usr/lib/frr/bgpd")
	folder := build(t, "metallb")
	server, err := apiserver.Build("etcd", "kube-apiserver")
	lab.Must(t, err)
	testNeighbor(t, func() neighbor { return &metallb{folder: folder, server: server} })
	t.Run("policy Local", func(t *testing.T) {
		b, n := newBed(t), &metallb{folder: folder, server: server}
		b.startVerdict(t)
		n.start(t, b)
		for _, f := range lab.Families() {
			b.eventuallyFinds(t, f, "LB2", true)
			b.eventuallyHealthy(t, f, http.StatusOK)
		}
		n.removeLocal(t, b)
		for _, f := range lab.Families() {
			b.eventuallyHealthy(t, f, http.StatusServiceUnavailable)
			b.eventuallyFinds(t, f, "LB2", false)
			b.eventuallyFinds(t, f, "LB1", true)
		}
	})
	t.Run("BGP", func(t *testing.T) {
		b, n := newBed(t), &metallb{folder: folder, server: server, bgp: true}
		b.startVerdict(t)
		startRouter(t, b)
		n.start(t, b)
		expectAnswers := func() {
			t.Helper()
			b.eventuallyRouted(t, "LB1", true)
			b.eventuallyRouted(t, "LB2", true)
			for name, port := range map[string]uint16{"LB1": servicePort, "LB2": servicePort, "NODE": nodePort} {
				q := lab.Question{Protocol: lab.TCP, To: lab.AddressPort(lab.IPv4, name, port), Patience: 10 * time.Second}
				if r := b.At(t, lab.Outside).Ask(q); r.Outcome != lab.Answered {
					t.Errorf("%s: %s, want an answer", q, r)
				}
			}
		}
		expectAnswers()
		// The node loses the address of its session, and gets it again.
		own := lab.MustText(lab.IPv4, "NODE") + "/24"
		b.Node.Must(t, "", "sysctl", "-qw", "net.ipv4.conf.all.promote_secondaries=1")
		b.Node.Must(t, "", "ip", "address", "delete", own, "dev", lab.OutsideLink)
		b.eventuallyRouted(t, "LB1", false)
		b.Node.Must(t, "", "ip", "address", "add", own, "dev", lab.OutsideLink)
		expectAnswers()
		n.removeLocal(t, b)
		b.eventuallyRouted(t, "LB2", false)
		n.stop(t, b)
		b.eventuallyRouted(t, "LB1", false)
		n.start(t, b)
		b.eventuallyRouted(t, "LB1", true)
	})
}

// removeLocal removes the endpoints of the Service with the policy Local, for the speaker and for Verdict.
func (n *metallb) removeLocal(t *testing.T, b *bed) {
	t.Helper()
	daemon.WriteFile(t, b.objects, "local-slices.yaml", endpointSlices(t, "local"))
	for _, name := range []string{"local-4", "local-6"} {
		if err := n.control.Client.DiscoveryV1().EndpointSlices("shop").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// eventuallyHealthy waits until the healthCheckNodePort has this status.
func (b *bed) eventuallyHealthy(t *testing.T, f lab.Family, status int) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: b.At(t, lab.Outside).DialContext, DisableKeepAlives: true}}
	eventually(t, fmt.Sprintf("the healthCheckNodePort answers %d in %s", status, f), nil, func() bool {
		r, err := client.Get("http://" + lab.AddressPort(f, "NODE", healthPort).String())
		return err == nil && r.Body.Close() == nil && r.StatusCode == status
	})
}

// startRouter makes the client outside a router with FRR. It reaches load-balancer IPs only as the speaker announces them.
func startRouter(t *testing.T, b *bed) {
	t.Helper()
	s, router := b.newSystem(t), b.At(t, lab.Outside)
	router.Must(t, "", "ip", "route", "add", "unreachable", "203.0.113.0/24")
	s.write(t, "/run/bgpd.conf", "router bgp 64513\n no bgp ebgp-requires-policy\n neighbor "+lab.MustText(lab.IPv4, "NODE")+" remote-as 64512\n")
	s.run(t, "install", "-d", "-o", "frr", "-g", "frr", "/run/frr")
	for _, name := range []string{"zebra", "bgpd"} {
		p, err := lab.NewProcess(lab.ProcessOptions{Name: name, Namespace: router, Dir: b.dir, Command: s.wrap([]string{
			"/usr/lib/frr/" + name, "-f", map[string]string{"zebra": "/dev/null", "bgpd": "/run/bgpd.conf"}[name],
			"-i", "/run/frr/" + name + ".pid", "-z", "/run/frr/zserv.api", "--log", "stdout", "-P", "0",
		})})
		lab.Must(t, err)
		t.Cleanup(func() { _ = p.Kill() })
		if name == "zebra" {
			eventually(t, "zebra listens", p, func() bool { return s.succeeds("test", "-S", "/run/frr/zserv.api") })
		}
	}
}

// eventuallyRouted waits until the router has a route to a load-balancer IP, or has none.
func (b *bed) eventuallyRouted(t *testing.T, name string, has bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("the router has a route to %s: %t", name, has), nil, func() bool {
		out := b.At(t, lab.Outside).Must(t, "", "ip", "route", "show", lab.MustText(lab.IPv4, name))
		return contains(out, "via "+lab.MustText(lab.IPv4, "NODE")) == has
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
spec: {addresses: [%s]}
`

// How the speaker announces: it answers ARP, or has a session with the router.
const (
	byL2  = "---\napiVersion: metallb.io/v1beta1\nkind: L2Advertisement\nmetadata: {namespace: metallb-system, name: all}\n"
	byBGP = "---\napiVersion: metallb.io/v1beta1\nkind: BGPAdvertisement\nmetadata: {namespace: metallb-system, name: all}\n" +
		"---\napiVersion: metallb.io/v1beta2\nkind: BGPPeer\nmetadata: {namespace: metallb-system, name: router}\n" +
		"spec: {myASN: 64512, peerASN: 64513, peerAddress: 192.168.7.11, sourceAddress: 192.168.7.1, holdTime: 3s}\n"
)

func (n *metallb) start(t *testing.T, b *bed) {
	t.Helper()
	if n.control == nil {
		n.startControl(t, b)
	}
	kubeconfig, err := n.control.Kubeconfig(apiserver.Admin)
	lab.Must(t, err)
	n.speaker = b.newSystem(t).start(t, "speaker", "env", "KUBECONFIG="+kubeconfig, filepath.Join(n.folder, "speaker"),
		"--namespace=metallb-system", "--node-name=n1", "--pod-name=speaker", "--host=127.0.0.1")
	for _, f := range lab.Families() {
		if !n.bgp {
			b.eventuallyFinds(t, f, "LB1", true)
		}
	}
}

// startControl starts an API server with the objects of the scenarios, and makes the load-balancer IPs addresses of the
// clients' own link.
func (n *metallb) startControl(t *testing.T, b *bed) {
	t.Helper()
	control, err := apiserver.StartIn(b.World, apiserver.Options{
		Binaries: n.server, Dir: t.TempDir(), ServiceRanges: lab.MustText(lab.IPv4, "SERVICES") + "," + lab.MustText(lab.IPv6, "SERVICES"),
	})
	lab.Must(t, err)
	t.Cleanup(func() { _ = control.Close() })
	n.control = control
	definitions, err := filepath.Glob(filepath.Join(n.folder, "crds/*.yaml"))
	if err != nil || len(definitions) == 0 {
		t.Fatalf("no definitions of MetalLB's objects: %v", err)
	}
	for _, file := range definitions {
		text, err := os.ReadFile(file)
		lab.Must(t, err)
		n.create(t, string(text))
	}
	ranges, how, families := `203.0.113.0/24, "2001:db8:203::/64"`, byL2, lab.Families()
	if n.bgp {
		ranges, how, families = "203.0.113.0/24", byBGP, []lab.Family{lab.IPv4} // the speaker's own BGP has no IPv6
	}
	n.create(t, fmt.Sprintf(metallbObjects, ranges)+how)
	for name, lb := range map[string]string{"web": "LB1", "local": "LB2"} {
		for _, file := range []string{name, name + "-slices"} {
			text, err := os.ReadFile(filepath.Join(b.objects, file+".yaml"))
			lab.Must(t, err)
			n.create(t, string(text))
		}
		var ingress []string
		for _, f := range families {
			ingress = append(ingress, fmt.Sprintf(`{"ip": %q}`, lab.MustText(f, lb)))
		}
		status := fmt.Sprintf(`{"status": {"loadBalancer": {"ingress": [%s]}}}`, strings.Join(ingress, ", "))
		if _, err := control.Client.CoreV1().Services("shop").Patch(t.Context(), name, types.MergePatchType, []byte(status),
			metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		for _, f := range lab.Families() {
			if !n.bgp {
				b.At(t, lab.Outside).Must(t, "", "ip", "route", "add", lab.MustText(f, lb), "dev", "eth0")
			}
		}
	}
}

// create gives objects to the API server. Definitions of MetalLB's objects take a moment until they serve.
func (n *metallb) create(t *testing.T, manifests string) {
	t.Helper()
	for manifest := range strings.SplitSeq(manifests, "---\n") {
		var o unstructured.Unstructured
		lab.Must(t, yaml.Unmarshal([]byte(manifest), &o.Object))
		if len(o.Object) == 0 {
			continue
		}
		eventually(t, "the API server takes a "+o.GetKind(), nil, func() bool {
			err := n.control.Put(t.Context(), &o)
			if err != nil && !apierrors.IsNotFound(err) {
				t.Fatalf("%v\n%s", err, manifest)
			}
			return err == nil
		})
	}
}

// eventuallyFinds waits until a client on the node's link finds an address there, or finds it no more.
func (b *bed) eventuallyFinds(t *testing.T, f lab.Family, name string, finds bool) {
	t.Helper()
	client, to := b.At(t, lab.Outside), lab.MustText(f, name)
	eventually(t, fmt.Sprintf("the client finds %s: %t", to, finds), nil, func() bool {
		if !finds {
			_, _ = client.Command("ip", "neigh", "flush", "to", to) // what it knows would last for a minute
		}
		client.Ask(lab.Question{Protocol: lab.UDP, To: lab.AddressPort(f, name, 9), Patience: 200 * time.Millisecond})
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
