//go:build e2e && !ipvs

package takeover

import (
	"context"
	"fmt"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/program"
)

func TestMain(m *testing.M) {
	var err error
	if programs.controlPlane, err = apiserver.Build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(program.Main(m, &programs.verdict))
}

// serveObjects starts an API server in a namespace, writes the objects, and returns a kubeconfig for the proxies.
func (b *bed) serveObjects(t *testing.T, ns *lab.Namespace) (kubeconfig string) {
	t.Helper()
	plane, err := apiserver.Start(apiserver.Options{
		Binaries: programs.controlPlane, Dir: b.dir, Namespace: ns, Address: b.server,
		ServiceRanges: lab.MustText(lab.IPv4, "SERVICES") + "," + lab.MustText(lab.IPv6, "SERVICES"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Close(); err != nil {
			t.Error(err)
		}
	})
	if kubeconfig, err = plane.KubeProxy(); err != nil {
		t.Fatal(err)
	}
	b.plane = plane
	b.write(t, newObjects(t, b.server))
	return kubeconfig
}

func (b *bed) write(t *testing.T, o served) {
	t.Helper()
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	core := b.plane.Client.CoreV1()
	node, err := core.Nodes().Create(ctx, o.node, metav1.CreateOptions{})
	must(err)
	node.Status = o.node.Status
	_, err = core.Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	must(err)
	service, err := core.Services("default").Create(ctx, o.service, metav1.CreateOptions{})
	must(err)
	service.Status = o.service.Status
	_, err = core.Services("default").UpdateStatus(ctx, service, metav1.UpdateOptions{})
	must(err)
	for _, s := range o.slices {
		_, err = b.plane.Client.DiscoveryV1().EndpointSlices("default").Create(ctx, s, metav1.CreateOptions{})
		must(err)
	}
}
