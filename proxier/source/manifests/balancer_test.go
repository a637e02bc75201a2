package manifests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// balancer is a minimal manifest in the short form.
const balancer = `
# the web servers
apiVersion: verdict-proxy.github.io/v1alpha1
kind: LoadBalancer
metadata:
  name: web
  namespace: shop
spec:
  addresses: [192.0.2.10, "2001:db8::10"]
  ports: [{port: 80}]
  endpoints:
  - address: 10.0.0.1
  - address: 10.0.0.2
    weight: 5
  - address: fd00::1
`

// expectBalancer compares the addresses and the endpoints of shop/web.
func (f *folder) expectBalancer(want ...string) {
	f.t.Helper()
	var got []string
	if svc, list := f.store.Service(state.Name{Namespace: "shop", Name: "web"}); svc != nil {
		for _, a := range svc.LoadBalancerIPs {
			got = append(got, a.String())
		}
		slices.SortFunc(list, func(a, b *state.Slice) int { return a.Compare(b.Name) })
		for _, sl := range list {
			for _, e := range sl.Endpoints {
				got = append(got, fmt.Sprintf("%s*%d", e.Addr, sl.Weight))
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("shop/web (-want +got):\n%s", diff)
	}
}

// TestBalancer: one object is a Service and its slices, in every form that a file may have.
func TestBalancer(t *testing.T) {
	for name, file := range map[string]string{
		"a.yaml": balancer,
		"b.yaml": docs(node1, balancer, range1),
		"c.yaml": "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimPrefix(balancer, "\n# the web servers\n"), "\n", "\n  ") + "\n",
		"d.json": "{\"apiVersion\": \"verdict-proxy.github.io/v1alpha1\",\n\t\"kind\": \"LoadBalancer\", \"metadata\": {\"name\": \"web\", \"namespace\": \"shop\"},\n" +
			"\t\"spec\": {\"addresses\": [\"192.0.2.10\", \"2001:db8::10\"], \"ports\": [{\"port\": 80}], \"endpoints\": [{\"address\": \"10.0.0.1\"},\n" +
			"\t\t{\"address\": \"10.0.0.2\", \"weight\": 5}, {\"address\": \"fd00::1\"}]}}",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t, map[string]string{name: file})
			f.load()
			f.expectBalancer("192.0.2.10", "2001:db8::10", "10.0.0.1*1", "10.0.0.2*5", "fd00::1*1")
			f.expectProblems()
		})
	}
}

// TestBrokenBalancer: what is wrong is named with its line, and the previous form stays in force. Others go on.
func TestBrokenBalancer(t *testing.T) {
	f := newFolder(t, map[string]string{"a.yaml": docs(balancer, service("mail", "10.96.0.2"))})
	f.load()
	before := []string{"192.0.2.10", "2001:db8::10", "10.0.0.1*1", "10.0.0.2*5", "fd00::1*1"}
	f.expectBalancer(before...)

	wrong := strings.NewReplacer("weight: 5", "weight: 70000", "- address: fd00::1", "- addr: fd00::1", "10.0.0.1", "10.0.0.7").Replace(balancer)
	f.write("a.yaml", docs(wrong, service("mail", "10.96.0.3")))
	f.load()
	f.expectBalancer(before...)
	f.expectProblems(
		"File /a.yaml line 14: LoadBalancer shop/web: spec.endpoints[1].weight: 70000: expected a number from 0 to 65535: "+
			"its previous form, if any, stays in force",
		"File /a.yaml line 15: LoadBalancer shop/web: spec.endpoints[2].addr: unknown field: expected one of address, port, weight, backup: "+
			"its previous form, if any, stays in force",
		"File /a.yaml line 15: LoadBalancer shop/web: spec.endpoints[2].address: missing: expected its address, of the family of one of the "+
			"virtual addresses: its previous form, if any, stays in force",
	)
	if svc, _ := f.store.Service(state.Name{Namespace: "shop", Name: "mail"}); svc.ClusterIPs[0].String() != "10.96.0.3" {
		t.Errorf("the Service in the same file has %v", svc.ClusterIPs)
	}

	f.write("a.yaml", strings.Replace(balancer, "  - address: 10.0.0.2\n    weight: 5\n", "", 1))
	f.load()
	f.expectBalancer("192.0.2.10", "2001:db8::10", "10.0.0.1*1", "fd00::1*1")
	f.expectProblems()
	f.delete("a.yaml")
	f.load()
	f.expectBalancer()
}

// TestLostIdentity: after a typing error in what identifies a balancer, its previous form stays in force.
func TestLostIdentity(t *testing.T) {
	for _, typo := range [][2]string{{"kind: LoadBalancer", "kind: Loadbalancer"}, {"/v1alpha1", "/v1"}, {"name: web", "name: Web"}} {
		f := newFolder(t, map[string]string{"a.yaml": balancer})
		f.load()
		f.write("a.yaml", strings.Replace(balancer, typo[0], typo[1], 1))
		f.load()
		f.expectBalancer("192.0.2.10", "2001:db8::10", "10.0.0.1*1", "10.0.0.2*5", "fd00::1*1")
		if len(f.problems()) == 0 {
			t.Errorf("%s: no problem", typo[1])
		}
	}
}

// TestManyFaults: a list of faults has an end.
func TestManyFaults(t *testing.T) {
	f := newFolder(t, map[string]string{"a.yaml": strings.ReplaceAll(balancer, "fd00::1", "x") + strings.Repeat("  - address: x\n", 20)})
	f.load()
	if got := f.problems(); len(got) != state.MaxProblems+1 || !strings.Contains(strings.Join(got, "\n"), "and 13 more faults") {
		t.Errorf("%d problems: %q", len(got), got)
	}
}

// TestBalancerWithoutName: nobody knows what its previous form was.
func TestBalancerWithoutName(t *testing.T) {
	f := newFolder(t, map[string]string{"a.yaml": strings.Replace(balancer, "name: web", "name: W", 1)})
	f.load()
	f.expectProblems(`File /a.yaml line 6: LoadBalancer: metadata.name: "W" is not a name: expected at most 63 of a to z, 0 to 9 and -, ` +
		`which is not first or last: it is ignored`)
}

// TestBalancerAndService: the name of a balancer is that of a Service, and the second one is not served, with none of its
// endpoints.
func TestBalancerAndService(t *testing.T) {
	f := newFolder(t, map[string]string{"a.yaml": service("web", "10.96.0.1"), "b.yaml": balancer})
	f.load()
	f.expectServices("shop/web=10.96.0.1")
	f.expectBalancer()
	f.expectProblems("File /b.yaml line 3: Service shop/web is defined twice: the first definition, in a.yaml, is used")
	f.delete("a.yaml")
	f.load()
	f.expectBalancer("192.0.2.10", "2001:db8::10", "10.0.0.1*1", "10.0.0.2*5", "fd00::1*1")
}
