package manifests

import (
	"os"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/sourcetest"
	"github.com/verdict-proxy/verdict/proxier/source/convert"
)

// FuzzManifest reads any text as a manifest file: nothing panics, each object has a kind, and what it reports is bounded.
func FuzzManifest(f *testing.F) {
	for _, text := range []string{
		"", "---\n", "{}", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n",
		`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}]}`,
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a-1, labels: {kubernetes.io/service-name: a}}\n" +
			"addressType: IPv4\nports: [{port: 80}]\nendpoints: [{addresses: [10.0.0.1]}]\n",
		"a: &a [*a]\n", "a: &a {b: &b [*a, *a]}\n", "? {}\n: {}\n", "\xff\xfe", "kind: Service\n---\nkind: {\n",
	} {
		f.Add("f.yaml", []byte(text))
		f.Add("f.json", []byte(text))
	}
	example, err := os.ReadFile("../../../config/deploy/base/daemonset.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add("daemonset.yaml", example)
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		got := decodeFile(convert.New(), name, text)
		if n := len(got.objects) + len(got.broken); n > len(text)+1 {
			t.Fatalf("%d objects from %d bytes", n, len(text))
		}
		for _, o := range got.objects {
			if o.id.kind == "" {
				t.Fatalf("an object without a kind: %+v", o)
			}
			sourcetest.BoundedProblems(t, o.problems)
		}
	})
}
