package demo

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"
)

// stacks are the sets of families that a kernel may have.
func stacks() map[string][]family {
	return map[string][]family{"two families": {ipv4(), ipv6()}, "IPv4": {ipv4()}}
}

func parse(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
}

func TestServiceManifest(t *testing.T) {
	for name, families := range stacks() {
		t.Run(name, func(t *testing.T) {
			var svc corev1.Service
			parse(t, serviceManifest(families, ejectAnnotation), &svc)
			if svc.Kind != "Service" || svc.APIVersion != "v1" || svc.Name != serviceName || svc.Spec.Type != corev1.ServiceTypeNodePort {
				t.Errorf("not a Service of type NodePort: %+v", svc)
			}
			var ips []string
			var names []corev1.IPFamily
			for _, f := range families {
				ips, names = append(ips, f.clusterIP.String()), append(names, corev1.IPFamily(f.name))
			}
			if svc.Spec.ClusterIP != ips[0] || !slices.Equal(svc.Spec.ClusterIPs, ips) || !slices.Equal(svc.Spec.IPFamilies, names) {
				t.Errorf("cluster IPs %s %v, families %v", svc.Spec.ClusterIP, svc.Spec.ClusterIPs, svc.Spec.IPFamilies)
			}
			if p := svc.Spec.Ports[0]; len(svc.Spec.Ports) != 1 || p.Port != servicePort || p.NodePort != nodePort || p.TargetPort.IntValue() != backendPort {
				t.Errorf("ports %+v", svc.Spec.Ports)
			}
		})
	}
}

// testBackends returns pods for a test. They have no namespaces.
func testBackends(families []family, names ...string) []*host {
	var hosts []*host
	for i, name := range names {
		h := &host{name: name}
		for _, f := range families {
			h.addresses = append(h.addresses, nth(f.pod, i))
		}
		hosts = append(hosts, h)
	}
	return hosts
}

func TestSlicesManifest(t *testing.T) {
	for name, families := range stacks() {
		for _, backends := range [][]string{{"pod-a", "pod-b", "pod-c"}, {"pod-a"}, nil} {
			t.Run(name+" "+strings.Join(backends, " "), func(t *testing.T) {
				hosts := testBackends(families, backends...)
				docs := strings.Split(slicesManifest(families, hosts), "---\n")
				if len(docs) != len(families) {
					t.Fatalf("%d documents, want %d", len(docs), len(families))
				}
				for i, doc := range docs {
					checkSlice(t, doc, &families[i], i, hosts)
				}
			})
		}
	}
}

func checkSlice(t *testing.T, doc string, f *family, index int, hosts []*host) {
	t.Helper()
	var slice discoveryv1.EndpointSlice
	parse(t, doc, &slice)
	if slice.Labels[discoveryv1.LabelServiceName] != serviceName || string(slice.AddressType) != f.name || slice.Kind != "EndpointSlice" {
		t.Errorf("not a slice of the Service for %s: %+v", f.name, slice)
	}
	if len(slice.Ports) != 1 || *slice.Ports[0].Port != backendPort || *slice.Ports[0].Name != "http" {
		t.Errorf("ports %+v", slice.Ports)
	}
	if len(slice.Endpoints) != len(hosts) {
		t.Fatalf("%d endpoints, want %d", len(slice.Endpoints), len(hosts))
	}
	for i, e := range slice.Endpoints {
		if want := hosts[i].addresses[index].String(); e.Addresses[0] != want || !*e.Conditions.Ready || *e.NodeName != nodeName {
			t.Errorf("endpoint %d is %+v, want %s, ready, on the node", i, e, want)
		}
	}
}

func TestFolder(t *testing.T) {
	parent := t.TempDir()
	f, err := newFolder(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "second, longer", "third"} {
		if err := f.write("a.yaml", text); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(f.path, "a.yaml"))
		if err != nil || string(got) != text {
			t.Errorf("read %q, %v; want %q", got, err, text)
		}
	}
	for dir, want := range map[string]string{parent: "manifests", f.path: "a.yaml"} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != want {
			t.Errorf("%s holds %v (%v), want %s only", dir, entries, err, want)
		}
	}
	if _, err := newFolder(parent); err == nil {
		t.Error("a second folder in the same place is no error")
	}
	if err := os.Remove(filepath.Join(f.path, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	if err := f.write("a.yaml", "x"); err == nil || !strings.Contains(err.Error(), "put the manifest a.yaml in place") {
		t.Errorf("writing into a folder that is gone: %v", err)
	}
}

// With these ranges, the proxy recognizes the addresses of pods and no others.
func TestRanges(t *testing.T) {
	for name, families := range stacks() {
		t.Run(name, func(t *testing.T) {
			list := strings.Split(ranges(families), ",")
			if len(list) != len(families) {
				t.Fatalf("ranges %v", list)
			}
			for i, text := range list {
				r, f := netip.MustParsePrefix(text), families[i]
				for a, inside := range map[netip.Addr]bool{f.pod: true, nth(f.pod, 3): true, f.gateway: true, f.node: false, f.client: false, f.clusterIP: false} {
					if r.Contains(a) != inside {
						t.Errorf("%s contains %s: %v, want %v", r, a, !inside, inside)
					}
				}
			}
		})
	}
}

func TestNth(t *testing.T) {
	tests := []struct {
		from string
		i    int
		want string
	}{
		{"10.0.1.1", 0, "10.0.1.1"}, {"10.0.1.1", 3, "10.0.1.4"}, {"10.0.1.254", 2, "10.0.2.0"}, {"fd00::ff", 1, "fd00::100"},
	}
	for _, tt := range tests {
		if got := nth(netip.MustParseAddr(tt.from), tt.i).String(); got != tt.want {
			t.Errorf("nth(%s, %d) = %s, want %s", tt.from, tt.i, got, tt.want)
		}
	}
}

func TestPicture(t *testing.T) {
	for name, families := range stacks() {
		t.Run(name, func(t *testing.T) {
			n := &network{families: families, backends: testBackends(families, backendNames()...), shop: testBackends(families, shopName)[0]}
			got := picture(n)
			for _, part := range []string{"192.168.7.2 ---", "pod-a  10.0.1.1 ", "pod-c  10.0.1.3 ", "10.96.0.10:80", "30080", "port 8080"} {
				if !strings.Contains(got, part) {
					t.Errorf("the picture lacks %q:\n%s", part, got)
				}
			}
			// The vertical line to which the pods are connected is straight.
			column := -1
			for line := range strings.Lines(got) {
				if at := strings.Index(line, "+--- "); at >= 0 {
					if column >= 0 && at != column {
						t.Errorf("crooked:\n%s", got)
					}
					column = at
				}
			}
		})
	}
}
