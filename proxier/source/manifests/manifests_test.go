package manifests

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/verdict-proxy/verdict/e2e/sourcetest"
	"github.com/verdict-proxy/verdict/proxier/source/convert"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// service is a minimal manifest.
func service(name, ip string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: shop}
spec:
  clusterIP: %s
  ports: [{port: 80}]
`, name, ip)
}

const webSlice = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2]}]
`

const node1 = `apiVersion: v1
kind: Node
metadata: {name: n1, labels: {topology.kubernetes.io/zone: a}}
`

const range1 = `apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/12]}
`

func docs(parts ...string) string { return strings.Join(parts, "---\n") }

// folder is a manifest directory and a source for it.
type folder struct {
	t     *testing.T
	dir   string
	store *state.Store
	m     *Source
	lines *sourcetest.Journal
}

func newFolder(t *testing.T, files map[string]string) *folder {
	t.Helper()
	log, lines := sourcetest.NewLog(t)
	f := &folder{t: t, dir: filepath.Join(t.TempDir(), "manifests"), store: state.NewStore(), lines: lines}
	if err := os.Mkdir(f.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		f.write(name, text)
	}
	f.m = New(Options{Dir: f.dir, NodeName: "n1", Store: f.store, Log: log})
	return f
}

func (f *folder) write(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *folder) delete(name string) {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.dir, name)); err != nil {
		f.t.Fatal(err)
	}
}

// load reads the directory and forgets what is pending.
func (f *folder) load() {
	f.t.Helper()
	if err := f.m.Load(f.dir); err != nil {
		f.t.Fatal(err)
	}
}

// problems returns the problems in the store, as "kind object field: reason".
func (f *folder) problems() []string {
	var list []string
	for _, p := range f.store.Problems() {
		list = append(list, fmt.Sprintf("%s %s %s: %s", p.Kind, p.Object, p.Field, p.Reason))
	}
	return list
}

func (f *folder) expectProblems(want ...string) {
	f.t.Helper()
	if diff := cmp.Diff(want, f.problems(), cmpopts.EquateEmpty()); diff != "" {
		f.t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// expectServices compares all Services, each written as name=first cluster IP.
func (f *folder) expectServices(want ...string) {
	f.t.Helper()
	var got []string
	for _, n := range f.store.ServiceNames() {
		svc, _ := f.store.Service(n)
		got = append(got, fmt.Sprintf("%s=%s", n, svc.ClusterIPs[0]))
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.SortSlices(strings.Compare)); diff != "" {
		f.t.Errorf("services (-want +got):\n%s", diff)
	}
}

// TestLoad has one row for each kind of content.
func TestLoad(t *testing.T) {
	const list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}}\n" +
		"- {apiVersion: v1, kind: Service, metadata: {name: b}, spec: {clusterIP: 10.96.0.2, ports: [{port: 80}]}}\n"
	const jsonList = "{\"apiVersion\": \"v1\", \"kind\": \"ServiceList\", \"items\": [\n\t{\"metadata\": {\"name\": \"a\"}, \"spec\": {\"clusterIP\": \"10.96.0.1\", \"ports\": [{\"port\": 80}]}}]}"
	onlyWeb := []string{"shop/web=10.96.0.1"}
	for _, tt := range []struct {
		name     string
		files    map[string]string
		services []string
		problems []string
	}{
		{"nothing", nil, nil, nil},
		{"one file", map[string]string{"a.yaml": service("web", "10.96.0.1")}, onlyWeb, nil},
		{"several documents", map[string]string{"a.yml": docs(service("web", "10.96.0.1"), webSlice, node1, range1)}, onlyWeb, nil},
		{"endings in other letters", map[string]string{"a.YAML": service("web", "10.96.0.1"), "b.Json": jsonList},
			[]string{"shop/web=10.96.0.1", "default/a=10.96.0.1"}, nil},
		{"several files", map[string]string{"a.yaml": service("web", "10.96.0.1"), "b.yml": service("mail", "10.96.0.2")},
			[]string{"shop/web=10.96.0.1", "shop/mail=10.96.0.2"}, nil},
		{"List", map[string]string{"a.yaml": list}, []string{"default/a=10.96.0.1", "default/b=10.96.0.2"}, nil},
		{"typed list in JSON", map[string]string{"a.json": jsonList}, []string{"default/a=10.96.0.1"}, nil},
		{"null document", map[string]string{"a.yaml": docs("null\n", service("web", "10.96.0.1"))}, onlyWeb, nil},
		{"other files", map[string]string{
			"a.yaml": service("web", "10.96.0.1"), ".hidden.yaml": "junk: [", "notes.txt": "junk: [", "a.yaml~": "junk: [", ".a.yaml.swp": "x",
		}, onlyWeb, nil},
		{"not served", map[string]string{"a.yaml": docs(service("web", "10.96.0.1"), service("headless", "None"),
			strings.Replace(service("other", "10.96.0.3"), "namespace: shop", "namespace: shop, labels: {service.kubernetes.io/service-proxy-name: x}", 1))},
			onlyWeb, nil},
		{"no cluster IP", map[string]string{"a.yaml": docs(service("web", "10.96.0.1"), service("auto", `""`))}, onlyWeb,
			[]string{"Service shop/auto spec.clusterIP: missing: a manifest must set it, because no API server allocates one; the Service is not served"}},
		{"malformed field", map[string]string{"a.yaml": service("web", "10.96.0.1") + "  externalIPs: [nowhere]\n"}, onlyWeb,
			[]string{`Service shop/web spec.externalIPs[0]: "nowhere" is not an IP address`}},
		{"unknown field", map[string]string{"a.yaml": service("web", "10.96.0.1") + "  sessionAfinity: ClientIP\n"}, onlyWeb,
			[]string{"Service shop/web spec.sessionAfinity: unknown field: it is ignored"}},
		{"unknown kinds", map[string]string{"a.yaml": docs("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n", service("web", "10.96.0.1"))},
			onlyWeb, []string{`File /a.yaml line 1: apiVersion "apps/v1", kind "Deployment" is not supported: only v1 Service, ` +
				`discovery.k8s.io/v1 EndpointSlice, v1 Node, networking.k8s.io/v1 ServiceCIDR, verdict-proxy.github.io/v1alpha1 LoadBalancer and lists of them are`}},
		{"kind of another version", map[string]string{"a.yaml": "apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\n"}, nil,
			[]string{`File /a.yaml line 1: apiVersion "discovery.k8s.io/v1beta1", kind "EndpointSlice" is not supported: only v1 Service, ` +
				`discovery.k8s.io/v1 EndpointSlice, v1 Node, networking.k8s.io/v1 ServiceCIDR, verdict-proxy.github.io/v1alpha1 LoadBalancer and lists of them are`}},
		{"kind in other letters", map[string]string{"a.yaml": "apiVersion: verdict-proxy.github.io/v1alpha1\nkind: Loadbalancer\n"}, nil,
			[]string{`File /a.yaml line 1: kind "Loadbalancer": did you mean LoadBalancer?`}},
		{"a tab", map[string]string{"a.yaml": "apiVersion: v1\nkind: Service\nmetadata:\n\tname: web\n"}, nil,
			[]string{"File /a.yaml line 4: found a character that cannot begin anything, such as a tab: YAML is indented with blanks"}},
		{"no object", map[string]string{"a.yaml": docs(service("web", "10.96.0.1"), "- 1\n- 2\n")}, onlyWeb,
			[]string{"File /a.yaml line 8: not a Kubernetes object: json: cannot unmarshal array into Go value of type manifests.header"}},
		{"no name", map[string]string{"a.yaml": docs(service("web", "10.96.0.1"), "apiVersion: v1\nkind: Service\nspec: {clusterIP: 10.96.0.9}\n")},
			onlyWeb, []string{"File /a.yaml line 8: Service without metadata.name: it is ignored"}},
		{"names that no API server accepts", map[string]string{"a.yaml": docs(service("web", "10.96.0.1"),
			service(`"b:c"`, "10.96.0.2"), service(`"b\e[2J\n\""`, "10.96.0.3"), service("b.c", "10.96.0.4"),
			strings.Replace(service("b", "10.96.0.5"), "shop", "sh/op", 1),
			strings.Replace(strings.Replace(webSlice, "web-1", "web_1", 1), "web-1", "web_1", 1),
			strings.Replace(service("c:d", "10.96.0.2"), "port: 80", "port: http", 1))}, onlyWeb, []string{
			`File /a.yaml line 15: Service: metadata.name "b\x1b[2J\n\"" is not a DNS label: it is ignored`,
			`File /a.yaml line 22: Service: metadata.name "b.c" is not a DNS label: it is ignored`,
			`File /a.yaml line 29: Service: metadata.namespace "sh/op" is not a DNS label: it is ignored`,
			`File /a.yaml line 36: EndpointSlice: metadata.name "web_1" is not a DNS name: it is ignored`,
			`File /a.yaml line 43: Service: metadata.name "c:d" is not a DNS label: cannot unmarshal string into Go struct field ` +
				`ServicePort.spec.ports.port of type int32: it is ignored`,
			`File /a.yaml line 8: Service: metadata.name "b:c" is not a DNS label: it is ignored`,
		}},
		{"names in slices", map[string]string{"a.yaml": docs(service("web", "10.96.0.1"), strings.NewReplacer("port: 8080", `port: 8080, name: "a/b"`,
			"addresses: [10.0.0.1]", `addresses: [10.0.0.1], nodeName: "n\e1"`).Replace(webSlice)), "b\x1b.yaml": "\"\\e[2J\": 1\n\"\\e[2J\": 2\n"}, onlyWeb, []string{
			`EndpointSlice shop/web-1 endpoints[0].nodeName: "n\x1b1" is not a DNS name: the endpoint is on no node`,
			`EndpointSlice shop/web-1 ports[0].name: "a/b" is not a DNS label: the port is not used`,
			`File /b\x1b.yaml line 2: key "\x1b[2J" already set in map`,
		}},
		{"wrong type", map[string]string{"a.yaml": docs(service("web", "10.96.0.1"), strings.Replace(service("bad", "10.96.0.2"), "port: 80", "port: http", 1))},
			onlyWeb, []string{"File /a.yaml line 8: Service shop/bad: cannot unmarshal string into Go struct field ServicePort.spec.ports.port of type int32: " +
				"its previous form, if any, stays in force"}},
		{"wrong type of the name", map[string]string{"a.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: [x]}\n"}, nil,
			[]string{"File /a.yaml line 1: Service: cannot unmarshal array into Go struct field ObjectMeta.metadata.name of type string: it is ignored"}},
		{"does not parse at first", map[string]string{"a.yaml": docs(service("web", "10.96.0.1"), "a: 1\n b: 2\n"), "b.yaml": service("mail", "10.96.0.2")},
			[]string{"shop/web=10.96.0.1", "shop/mail=10.96.0.2"}, []string{"File /a.yaml line 9: mapping values are not allowed in this context"}},
		{"twice in two files", map[string]string{"b.yaml": service("web", "10.96.0.2"), "a.yaml": docs(node1, service("web", "10.96.0.1"))}, onlyWeb,
			[]string{"File /b.yaml line 1: Service shop/web is defined twice: the first definition, in a.yaml, is used"}},
		{"twice in one file", map[string]string{"a.yaml": docs(service("web", "10.96.0.1"), service("web", "10.96.0.2"))}, onlyWeb,
			[]string{"File /a.yaml line 8: Service shop/web is defined twice: the first definition, in a.yaml, is used"}},
		{"same name, other namespace", map[string]string{"a.yaml": docs(service("web", "10.96.0.1"),
			strings.Replace(service("web", "10.96.0.2"), "shop", "other", 1))}, []string{"shop/web=10.96.0.1", "other/web=10.96.0.2"}, nil},
		{"empty file", map[string]string{"a.yaml": ""}, nil, []string{"File /a.yaml line 1: the file is empty"}},
		{"comments only", map[string]string{"a.yaml": "# nothing yet\n"}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFolder(t, tt.files)
			f.load()
			f.expectServices(tt.services...)
			f.expectProblems(tt.problems...)
			files := 0
			for _, p := range tt.problems {
				if strings.HasPrefix(p, convert.KindFile) {
					files++
				}
			}
			if got := f.lines.Lines("level=WARN", "file=", "line="); len(got) != files {
				t.Errorf("%d lines logged, want %d: %q", len(got), files, got)
			}
		})
	}
}

func TestLoadEverything(t *testing.T) {
	f := newFolder(t, map[string]string{
		"a.yaml": docs(service("web", "10.96.0.1"), webSlice, node1, strings.Replace(node1, "n1", "n2", 1), range1),
	})
	f.load()
	if !sourcetest.HasService(f.store, "shop", "web", 2) {
		t.Error("the Service or its endpoints are missing")
	}
	env := f.store.Environment()
	if env.Node == nil || env.Node.Name != "n1" || env.Node.Zone != "a" || len(env.ServiceCIDRs) != 1 {
		t.Errorf("environment %+v", env)
	}
	f.expectProblems()
}

func TestRunWithoutDirectory(t *testing.T) {
	log, _ := sourcetest.NewLog(t)
	for name, dir := range map[string]string{
		"absent": filepath.Join(t.TempDir(), "absent"),
		"a file": os.Args[0],
	} {
		m := New(Options{Dir: dir, Store: state.NewStore(), Log: log})
		if err := m.Load(dir); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: Load says %v, want an error that names %s", name, err, dir)
		}
		if err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: Run returned %v, want an error that names %s", name, err, dir)
		}
		if sourcetest.Synced(m) {
			t.Errorf("%s: synced", name)
		}
	}
}

// TestReload has one row for each way to change files. It checks what is in force afterwards and which Services
// changed.
func TestReload(t *testing.T) {
	start := map[string]string{
		"a.yaml": docs(service("web", "10.96.0.1"), service("mail", "10.96.0.2"), webSlice, node1, range1),
		"b.yaml": service("chat", "10.96.0.3"),
	}
	const web, mail, chat = "shop/web=10.96.0.1", "shop/mail=10.96.0.2", "shop/chat=10.96.0.3"
	rest := docs(webSlice, node1, range1)
	broken := strings.Replace(service("mail", "10.96.0.9"), "port: 80", "port: smtp", 1)
	brokenChat := strings.Replace(service("chat", "10.96.0.9"), "port: 80", "port: smtp", 1)
	brokenIn := func(file string) []string {
		return []string{"File /" + file + " line 1: Service shop/chat: cannot unmarshal string into Go struct field " +
			"ServicePort.spec.ports.port of type int32: its previous form, if any, stays in force"}
	}
	for _, tt := range []struct {
		name        string
		change      func(*folder)
		services    []string
		changed     []string
		environment bool
		problems    []string
	}{
		{"nothing", func(*folder) {}, []string{web, mail, chat}, nil, false, nil},
		{"rewritten", func(f *folder) { f.write("a.yaml", start["a.yaml"]) }, []string{web, mail, chat}, nil, false, nil},
		{"comment added", func(f *folder) { f.write("a.yaml", "# hello\n"+start["a.yaml"]) }, []string{web, mail, chat}, nil, false, nil},
		{"one Service changed", func(f *folder) {
			f.write("a.yaml", docs(service("web", "10.96.0.1"), service("mail", "10.96.0.9"), rest))
		},
			[]string{web, "shop/mail=10.96.0.9", chat}, []string{"shop/mail"}, false, nil},
		{"endpoint gone", func(f *folder) {
			f.write("a.yaml", strings.Replace(start["a.yaml"], ", {addresses: [10.0.0.2]}", "", 1))
		},
			[]string{web, mail, chat}, []string{"shop/web"}, false, nil},
		{"document gone", func(f *folder) { f.write("a.yaml", docs(service("web", "10.96.0.1"), rest)) },
			[]string{web, chat}, []string{"shop/mail"}, false, nil},
		{"Node gone", func(f *folder) {
			f.write("a.yaml", docs(service("web", "10.96.0.1"), service("mail", "10.96.0.2"), webSlice, range1))
		},
			[]string{web, mail, chat}, nil, true, nil},
		{"range gone", func(f *folder) {
			f.write("a.yaml", docs(service("web", "10.96.0.1"), service("mail", "10.96.0.2"), webSlice, node1))
		},
			[]string{web, mail, chat}, nil, true, nil},
		{"made headless", func(f *folder) { f.write("b.yaml", service("chat", "None")) }, []string{web, mail}, []string{"shop/chat"}, false, nil},
		{"file deleted", func(f *folder) { f.delete("b.yaml") }, []string{web, mail}, []string{"shop/chat"}, false, nil},
		{"file added", func(f *folder) {
			f.write("c.json", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"},"spec":{"clusterIP":"10.96.0.7","ports":[{"port":80}]}}`)
		},
			[]string{web, mail, chat, "default/x=10.96.0.7"}, []string{"default/x"}, false, nil},
		{"moved to another file", func(f *folder) {
			f.delete("b.yaml")
			f.write("c.yaml", start["b.yaml"])
		}, []string{web, mail, chat}, nil, false, nil},
		{"half written", func(f *folder) { f.write("a.yaml", start["a.yaml"][:len(service("web", "10.96.0.1"))-12]) },
			[]string{web, mail, chat}, nil, false, []string{"File /a.yaml line 6: did not find expected node content: the file's previous content stays in force"}},
		{"emptied", func(f *folder) { f.write("b.yaml", "") }, []string{web, mail, chat}, nil, false,
			[]string{"File /b.yaml line 1: the file is empty: the file's previous content stays in force"}},
		{"one object no longer decodes", func(f *folder) { f.write("a.yaml", docs(service("web", "10.96.0.8"), broken, rest)) },
			[]string{"shop/web=10.96.0.8", mail, chat}, []string{"shop/web"}, false,
			[]string{"File /a.yaml line 8: Service shop/mail: cannot unmarshal string into Go struct field ServicePort.spec.ports.port of type int32: " +
				"its previous form, if any, stays in force"}},
		{"moved to another file, where it no longer decodes", func(f *folder) {
			f.delete("b.yaml")
			f.write("c.yaml", brokenChat)
		}, []string{web, mail, chat}, nil, false, brokenIn("c.yaml")},
		{"moved to an earlier file, where it no longer decodes, in two steps", func(f *folder) {
			f.write("0.yaml", brokenChat)
			f.write("b.yaml", service("chat", "10.96.0.30")) // still the definition
			f.load()
			f.delete("b.yaml")
		}, []string{web, mail, "shop/chat=10.96.0.30"}, []string{"shop/chat"}, false, brokenIn("0.yaml")},
		{"moved to another file, where it no longer decodes, and gone", func(f *folder) {
			f.delete("b.yaml")
			f.write("c.yaml", brokenChat)
			f.load()
			f.delete("c.yaml")
		}, []string{web, mail}, []string{"shop/chat"}, false, nil},
		{"defined earlier as well", func(f *folder) { f.write("0.yaml", service("chat", "10.96.0.30")) },
			[]string{web, mail, "shop/chat=10.96.0.30"}, []string{"shop/chat"}, false,
			[]string{"File /b.yaml line 1: Service shop/chat is defined twice: the first definition, in 0.yaml, is used"}},
		{"defined later as well", func(f *folder) { f.write("c.yaml", service("chat", "10.96.0.30")) },
			[]string{web, mail, chat}, nil, false,
			[]string{"File /c.yaml line 1: Service shop/chat is defined twice: the first definition, in b.yaml, is used"}},
		{"now a directory", func(f *folder) {
			f.delete("b.yaml")
			f.mkdir("b.yaml")
		}, []string{web, mail}, []string{"shop/chat"}, false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFolder(t, start)
			f.load()
			f.store.MarkSynced()
			sourcetest.Applied(t, f.store)
			tt.change(f)
			f.load()
			f.expectServices(tt.services...)
			f.expectProblems(tt.problems...)
			f.expectChanged(tt.environment, tt.changed...)
			if !sourcetest.HasService(f.store, "shop", "web", 2) && tt.name != "endpoint gone" {
				t.Error("web lost its endpoints")
			}
			f.load()
			f.expectChanged(tt.environment, tt.changed...)
		})
	}
}

func (f *folder) expectChanged(environment bool, services ...string) {
	f.t.Helper()
	c, _ := f.store.Pending()
	var got []string
	for _, n := range c.Services {
		got = append(got, n.String())
	}
	if diff := cmp.Diff(services, got, cmpopts.EquateEmpty(), cmpopts.SortSlices(strings.Compare)); diff != "" || c.Environment != environment {
		f.t.Errorf("changed (-want +got), environment %v want %v:\n%s", c.Environment, environment, diff)
	}
}

// TestProblemsOfFilesEnd: a fault of a file is logged once, and its problem ends when the fault does.
func TestProblemsOfFilesEnd(t *testing.T) {
	f := newFolder(t, map[string]string{"a.yaml": service("web", "10.96.0.1")})
	f.load()
	for range 3 {
		f.write("a.yaml", "a: [")
		f.load()
		f.write("b.yaml", service("mail", "10.96.0.2")) // the change of another file must not log the fault again
		f.load()
	}
	if got := f.lines.Lines("a.yaml", "line=1"); len(got) != 1 {
		t.Errorf("a fault is logged %d times: %q", len(got), got)
	}
	if len(f.problems()) != 1 {
		t.Errorf("problems %q, want one", f.problems())
	}
	f.write("a.yaml", service("web", "10.96.0.1"))
	f.load()
	f.expectProblems()
	f.write("a.yaml", "a: [")
	f.load()
	f.delete("a.yaml")
	f.load()
	f.expectProblems()
	f.expectServices("shop/mail=10.96.0.2")
}

// TestSameTimeStamp: two versions that are written within one tick of the clock have equal time stamps.
func TestSameTimeStamp(t *testing.T) {
	f := newFolder(t, map[string]string{"a.yaml": service("web", "10.96.0.1")})
	info, err := os.Stat(filepath.Join(f.dir, "a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	f.load()
	f.write("a.yaml", service("web", "10.96.0.2"))
	if err := os.Chtimes(filepath.Join(f.dir, "a.yaml"), info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	f.load()
	f.expectServices("shop/web=10.96.0.2")
}

// TestCopiedWithItsTime: cp -p writes another file of equal size and sets its time back.
func TestCopiedWithItsTime(t *testing.T) {
	f := newFolder(t, map[string]string{"a.yaml": service("web", "10.96.0.1")})
	path, old := filepath.Join(f.dir, "a.yaml"), time.Now().Add(-time.Hour)
	setTime := func() {
		t.Helper()
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	setTime()
	f.load()
	f.m.files["a.yaml"].readAt = time.Now().Add(time.Hour) // as if it had been read long after its last change
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !f.m.files["a.yaml"].unchanged(before) {
		t.Error("a settled file is read at each look")
	}
	// The kernel gives equal times to changes within one tick of its clock.
	for after := before; inodeChanged(after).Equal(inodeChanged(before)); {
		f.write("a.yaml", service("web", "10.96.0.2"))
		setTime()
		if after, err = os.Stat(path); err != nil {
			t.Fatal(err)
		}
	}
	f.load()
	f.expectServices("shop/web=10.96.0.2")
}

// TestFileThatGoesDuringAScan: a file is renamed after the scan has listed it and before it reads it.
func TestFileThatGoesDuringAScan(t *testing.T) {
	f := newFolder(t, map[string]string{"a.yaml": service("web", "10.96.0.1")})
	f.load()
	f.m.apply([]string{"a.yaml", "gone.yaml"})
	f.expectServices("shop/web=10.96.0.1")
}

// TestUnreadableFile: a file that cannot be read is not gone. The test uses a link to itself, because root can read
// every file.
func TestUnreadableFile(t *testing.T) {
	f := newFolder(t, map[string]string{"a.yaml": service("web", "10.96.0.1"), "b.yaml": service("mail", "10.96.0.2")})
	f.load()
	f.delete("a.yaml")
	f.link("a.yaml", "a.yaml")
	for range 2 {
		f.load()
		f.expectServices("shop/web=10.96.0.1", "shop/mail=10.96.0.2")
		f.expectProblems("File /a.yaml line 1: cannot be read: too many levels of symbolic links: its previous content, if any, stays in force")
	}
	if got := f.lines.Lines("level=WARN"); len(got) != 1 {
		t.Errorf("logged %d times: %q", len(got), got)
	}
	f.delete("a.yaml")
	f.write("a.yaml", service("web", "10.96.0.1"))
	f.load()
	f.expectServices("shop/web=10.96.0.1", "shop/mail=10.96.0.2")
	f.expectProblems()
}

func (f *folder) link(target, name string) {
	f.t.Helper()
	if err := os.Symlink(target, filepath.Join(f.dir, name)); err != nil {
		f.t.Fatal(err)
	}
}

// TestNoPermission: the Problem of a file says who must be able to read it. Root can, so the test has the error of another user.
func TestNoPermission(t *testing.T) {
	var f file
	f.unreadable(&fs.PathError{Op: "open", Path: "/etc/verdict/a.yaml", Err: fs.ErrPermission})
	want := fmt.Sprintf("user %d must be able to read it: chmod o+r, or chown %[1]d", os.Geteuid())
	if len(f.faults) != 1 || !strings.HasSuffix(f.faults[0].text, want) {
		t.Errorf("%v, want it to end with %q", f.faults, want)
	}
}
