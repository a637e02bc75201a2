//go:build e2e

package outage

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
	"github.com/verdict-proxy/verdict/e2e/program"
)

// programs are built once.
var programs struct{ controlPlane, verdict string }

func TestMain(m *testing.M) {
	var err error
	if programs.controlPlane, err = apiserver.Build("etcd", "kube-apiserver"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(program.Main(m, &programs.verdict))
}

// others is how many Services there are beside web.
const others = 30

// bed is a node with an API server and some Services.
type bed struct {
	*lab.World
	test   *testing.T // daemons live until its end
	dir    string
	plane  *apiserver.ControlPlane
	daemon *lab.Process
	starts int
	kube   string // the kubeconfig of the daemon
	flags  []string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{World: lab.New(t), test: t, dir: t.TempDir()}
	var err error
	b.plane, err = apiserver.StartIn(b.World, apiserver.Options{
		Binaries: programs.controlPlane, Dir: b.dir, ServiceRanges: lab.MustText(lab.IPv4, "SERVICES"),
	})
	lab.Must(t, err)
	t.Cleanup(func() { lab.Must(t, b.plane.Close()) })
	b.kube, err = b.plane.Kubeconfig(apiserver.KubeProxy)
	lab.Must(t, err)
	b.write(t)
	return b
}

// write writes the Node, the Service web with a fixed address, and others.
func (b *bed) write(t *testing.T) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: lab.NodeName}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: lab.MustText(lab.IPv4, "NODE")}}
	lab.Must(t, b.plane.Put(t.Context(), node))
	b.create(t, "web", lab.MustText(lab.IPv4, "VIP1"))
	for i := range others {
		b.create(t, fmt.Sprintf("other-%d", i), "")
	}
}

// create creates a Service with one endpoint. The API server chooses the address if it is empty.
func (b *bed) create(t *testing.T, name, address string) {
	t.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{
		ClusterIP: address, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
	}}
	lab.Must(t, b.plane.Put(t.Context(), s, sliceOf(name)))
}

func sliceOf(name string) *discoveryv1.EndpointSlice {
	sl := objects.Slice("default", name, lab.IPv4, 1, objects.SlicePort("http", corev1.ProtocolTCP, 8080))
	objects.AddPods(sl, lab.IPv4, "a")
	return sl
}

// remove deletes a Service and its slice.
func (b *bed) remove(t *testing.T, name string) {
	t.Helper()
	lab.Must(t, b.plane.Delete(t.Context(), objects.Service("default", name), sliceOf(name)))
}

// revise makes etcd count revisions.
func (b *bed) revise(t *testing.T, times int) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "revisions"}}
	for i := range times {
		object.Data = map[string]string{"revision": fmt.Sprint(i)}
		lab.Must(t, b.plane.Put(t.Context(), object))
	}
}

// start starts the daemon and does not wait.
func (b *bed) start(t *testing.T) {
	t.Helper()
	b.starts++
	p, err := lab.NewProcess(lab.ProcessOptions{
		Name: fmt.Sprintf("verdict-%d", b.starts), Namespace: b.Node, Dir: b.dir,
		Command: append([]string{programs.verdict, "run", "--kubeconfig=" + b.kube, "--hostname-override=" + lab.NodeName,
			"--cluster-cidr=" + lab.MustText(lab.IPv4, "PODS"), "--conntrack-max-per-core=0"}, b.flags...),
	})
	lab.Must(t, err)
	b.daemon = p
	b.test.Cleanup(func() {
		lab.SaveIfFailed(b.test, b.Node, p)
		_ = p.Kill() // most have ended before
	})
}

// serve starts the daemon and waits until the rules have all Services.
func (b *bed) serve(t *testing.T) {
	t.Helper()
	b.start(t)
	b.expect(t, "all Services are served", func() bool { return len(b.rules(t)) == others+1 })
}

// patience is how long a test waits at most. It says nothing about the expected time.
const patience = 3 * time.Minute

// expect waits until a condition holds.
func (b *bed) expect(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not reached within %v: %s; rules:\n%s", patience, what, strings.Join(b.rules(t), "\n"))
		}
	}
}

// logged waits until the log of the daemon has a line with all parts.
func (b *bed) logged(t *testing.T, parts ...string) {
	t.Helper()
	b.expect(t, fmt.Sprintf("a line with %q", parts), func() bool { return len(b.lines(t, parts...)) > 0 })
}

// lines returns the lines of the daemon's log that contain all parts.
func (b *bed) lines(t *testing.T, parts ...string) (found []string) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(b.dir, b.daemon.Name+".log"))
	lab.Must(t, err)
	for line := range strings.Lines(string(log)) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			found = append(found, line)
		}
	}
	return found
}

var element = regexp.MustCompile(`comment "(default/[^"]*)"`)

// rules returns the service ports that have an endpoint in the kernel, but the one of the API server.
func (b *bed) rules(t *testing.T) (names []string) {
	t.Helper()
	list, err := b.Node.Command("nft", "list", "map", "ip", "verdict", "pools")
	if err != nil {
		return nil // there is no table yet
	}
	for _, m := range element.FindAllStringSubmatch(list, -1) {
		if m[1] != "default/kubernetes:https" {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return names
}

// withoutElements lists both tables without the elements of their sets.
func (b *bed) withoutElements(t *testing.T) (text string) {
	t.Helper()
	for _, family := range []string{"ip", "ip6"} {
		list, err := b.Node.Command("nft", "-t", "list", "table", family, "verdict")
		lab.Must(t, err)
		text += list
	}
	return text
}

func (b *bed) has(t *testing.T, name string) bool {
	return slices.Contains(b.rules(t), "default/"+name+":http")
}

// answers expects that the Service web answers a pod.
func (b *bed) answers(t *testing.T) {
	t.Helper()
	b.At(t, "b").Once(t, lab.Question{Protocol: lab.TCP, To: b.web(), Patience: 30 * time.Second})
}

// web is where the Service web answers.
func (*bed) web() netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(lab.MustText(lab.IPv4, "VIP1")), 80)
}

// steady expects that the rules stay as they are for some time.
func (b *bed) steady(t *testing.T, during time.Duration) {
	t.Helper()
	want := b.rules(t)
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got := b.rules(t); !slices.Equal(got, want) {
			t.Fatalf("%d service ports are served, want the %d from before:\n%s", len(got), len(want), strings.Join(got, "\n"))
		}
	}
	b.answers(t)
}

// get asks the daemon, and returns the code and the body.
func (b *bed) get(t *testing.T, url string) (code, body string) {
	t.Helper()
	out := b.Node.Must(t, "", "sh", "-c", "curl -s -w '\\n%{http_code}' "+url)
	cut := strings.LastIndex(out, "\n")
	return out[cut+1:], out[:cut]
}
