package scenario

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// object reads one YAML document.
func object(t *testing.T, text string) Object {
	t.Helper()
	o, err := parseDocument(lab.IPv4, text)
	lab.Must(t, err)
	return o
}

// asYAML writes objects as YAML, in which int and int64 look the same, and sorts them.
func asYAML(t *testing.T, list []Object) (out []string) {
	t.Helper()
	for _, o := range list {
		text, err := yaml.Marshal(o)
		lab.Must(t, err)
		out = append(out, string(text))
	}
	slices.Sort(out)
	return out
}

// TestApply expects missing fields to be filled in, and names to become addresses of the family.
func TestApply(t *testing.T) {
	s := &Apply{YAML: `
kind: Service
metadata: {name: web}
spec: {clusterIPs: [$VIP1, $OTHER_VIP1], externalIPs: [$EXT1], ports: [{port: 80}, {port: 53, protocol: UDP}]}
---
kind: Node
metadata: {name: node-1}
---

---
kind: EndpointSlice
metadata: {name: s, namespace: other}
addressType: $OTHER_FAMILY
`}
	got, err := s.Objects(lab.IPv6)
	lab.Must(t, err)
	want := []Object{
		object(t, `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: "fd00:10:96::11"
  clusterIPs: ["fd00:10:96::11", 10.96.0.11]
  externalIPs: ["2001:db8:198::1"]
  ipFamilyPolicy: RequireDualStack
  ports: [{port: 80, protocol: TCP}, {port: 53, protocol: UDP}]
`),
		object(t, "{apiVersion: v1, kind: Node, metadata: {name: node-1}}"),
		object(t, "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s, namespace: other}, addressType: IPv4}"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
}

// slice is an EndpointSlice of the Service web; its ports and endpoints are given in YAML.
func slice(name, family, ports, endpoints string) string {
	return fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: %s
ports: [%s]
endpoints: [%s]
`, name, family, ports, endpoints)
}

// TestSlices expects the slices that the endpoint slice controller would write.
func TestSlices(t *testing.T) {
	const (
		ready = "conditions: {ready: true, serving: true, terminating: false}"
		http  = `{name: http, protocol: TCP, port: 8080}`
		dns   = `{name: dns, protocol: UDP, port: 5353}`
		a     = `{addresses: [10.0.1.1], nodeName: node-1, ` + ready + `}`
		c     = `{addresses: [10.0.2.1], nodeName: node-2, ` + ready + `}`
	)
	svc := object(t, `
kind: Service
metadata: {name: web, namespace: default}
spec: {ports: [{name: http, protocol: TCP, port: 80}, {name: dns, protocol: UDP, port: 53, targetPort: 5353}]}
`)
	for _, tt := range []struct {
		step string
		want []string
	}{
		{"endpoints web", []string{slice("web-1", "IPv4", http+","+dns, "")}},
		{"endpoints web/2 a c", []string{slice("web-2", "IPv4", http+","+dns, a+","+c)}},
		{"endpoints web a:9000 c", []string{
			slice("web-1", "IPv4", http+","+dns, c),
			slice("web-1-9000", "IPv4", `{name: http, protocol: TCP, port: 9000},{name: dns, protocol: UDP, port: 9000}`, a),
		}},
		{"other-endpoints web host", []string{slice("web-1-other", "IPv6", http+","+dns,
			`{addresses: ["fd00:7::1"], nodeName: node-1, `+ready+`}`)}},
		{"endpoints web a(bare) c(silent,zones=z1+z2,nodes=node-1)", []string{slice("web-1", "IPv4", http+","+dns,
			`{addresses: [10.0.1.1], nodeName: node-1, conditions: {}},
			{addresses: [10.0.2.1], nodeName: node-2, conditions: {ready: false, terminating: true},
			hints: {forZones: [{name: z1}, {name: z2}], forNodes: [{name: node-1}]}}`)}},
	} {
		step, ok := parseOne(t, tt.step).Do.(*Endpoints)
		if !ok {
			t.Fatalf("%s is not an endpoints step", tt.step)
		}
		got := step.Objects(lab.IPv4, svc)
		var want []Object
		for _, text := range tt.want {
			want = append(want, object(t, text))
		}
		if diff := cmp.Diff(asYAML(t, want), asYAML(t, got)); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", tt.step, diff)
		}
	}
}

// TestManyEndpoints expects at most 1,000 endpoints in a slice, which is the limit of the API server.
func TestManyEndpoints(t *testing.T) {
	svc := object(t, "{kind: Service, metadata: {name: web, namespace: default}, spec: {ports: [{port: 80, protocol: TCP}]}}")
	step := &Endpoints{Service: "web", Slice: "1", List: []Endpoint{{Pod: "many", Count: 2500}}}
	list := step.Objects(lab.IPv4, svc)
	seen, sizes := map[string]bool{}, map[string]int{}
	for _, o := range list {
		for _, e := range o.list("endpoints") {
			seen[fmt.Sprint(e.(map[string]any)["addresses"])] = true
			sizes[o.Name()]++
		}
	}
	if want := map[string]int{"web-1": 1000, "web-1-part-1": 1000, "web-1-part-2": 500}; !cmp.Equal(sizes, want) || len(seen) != 2500 {
		t.Errorf("%d addresses in slices of %v, want %v", len(seen), sizes, want)
	}
}

func TestLoad(t *testing.T) {
	good := fstest.MapFS{
		"b.txt": {Data: []byte("== one\nrestart\n")}, "a.txt": {Data: []byte("== one\nrestart\n== two\nstop\n")}, "notes.md": {Data: []byte("not a scenario")},
	}
	list, err := Load(good)
	var names []string
	for _, s := range list {
		names = append(names, s.File+"/"+s.Name)
	}
	if want := []string{"a/one", "a/two", "b/one"}; err != nil || !cmp.Equal(names, want) {
		t.Errorf("got %q, %v; want %q", names, err, want)
	}
	good["c.txt"] = &fstest.MapFile{Data: []byte("== one\nrestart\n\n== one\nrestart\n")}
	if _, err := Load(good); err == nil || !strings.Contains(err.Error(), `c.txt:4: a second scenario is called "one"`) {
		t.Errorf("two of one name: got error %v", err)
	}
	good["d.txt"] = &fstest.MapFile{Data: []byte("== one\nfly\n")}
	if _, err := Load(good); err == nil || !strings.Contains(err.Error(), `d.txt:2: no step is called "fly"`) {
		t.Errorf("a bad file: got error %v", err)
	}
}

func TestDifferences(t *testing.T) {
	list, err := Parse("f.txt", `== one
probe tcp from x to   $VIP1:80 => a   b
  kube-proxy => refused because it | can
  ipvs => b because it | may
probe tcp from x to $VIP1:80 => a
== two
not-upstream it has none
not-ipvs it has none, either
restart
`)
	lab.Must(t, err)
	want := "| scenario | step | Verdict | kube-proxy | because |\n|---|---|---|---|---|\n" +
		"| f: one | `probe tcp from x to $VIP1:80` | a b | refused | it \\| can |\n" +
		"| f: two | all | | not run | it has none |\n"
	if got := Differences(list); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	want = "| scenario | step | usually | with IPVS | because |\n|---|---|---|---|---|\n" +
		"| f: one | `probe tcp from x to $VIP1:80` | a b | b | it \\| may |\n" +
		"| f: two | all | | not run | it has none, either |\n"
	if got := DifferencesOfIPVS(list); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
