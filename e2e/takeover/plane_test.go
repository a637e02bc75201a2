//go:build e2e && !ipvs

package takeover

import (
	"fmt"
	"os"
	"testing"

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
func (b *bed) serveObjects(t testing.TB, ns *lab.Namespace) (kubeconfig string) {
	t.Helper()
	plane, err := apiserver.Start(apiserver.Options{
		Binaries: programs.controlPlane, Dir: b.dir, Namespace: ns, Address: b.server,
		ServiceRanges: lab.MustText(lab.IPv4, "SERVICES") + "," + lab.MustText(lab.IPv6, "SERVICES"),
	})
	lab.Must(t, err)
	t.Cleanup(func() {
		if err := plane.Close(); err != nil {
			t.Error(err)
		}
	})
	if kubeconfig, err = plane.Kubeconfig(apiserver.KubeProxy); err != nil {
		t.Fatal(err)
	}
	b.plane = plane
	o := newObjects(t, b.server)
	lab.Must(t, plane.Put(t.Context(), o.node, o.service))
	for _, s := range o.slices {
		lab.Must(t, plane.Put(t.Context(), s))
	}
	return kubeconfig
}
