package demo

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// The Service of the demo.
const (
	serviceName = "web"
	servicePort = 80
	backendPort = 8080
	nodePort    = 30080
	nodeName    = "demo-node"
)

// ejectAnnotation asks Verdict to send no new connections to endpoints that do not answer.
const ejectAnnotation = "verdict-proxy.github.io/outlier-detection: eject"

// serviceManifest returns a Service with a cluster IP in each family and a node port.
func serviceManifest(families []family, annotations string) string {
	var ips, names []string
	for _, f := range families {
		ips, names = append(ips, fmt.Sprintf("%q", f.clusterIP)), append(names, f.name)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default, annotations: {%s}}
spec:
  type: NodePort
  clusterIP: %s
  clusterIPs: [%s]
  ipFamilies: [%s]
  ports: [{name: http, protocol: TCP, port: %d, targetPort: %d, nodePort: %d}]
`, serviceName, annotations, ips[0], strings.Join(ips, ", "), strings.Join(names, ", "), servicePort, backendPort, nodePort)
}

// slicesManifest returns an EndpointSlice for each family. They are in one file, so that an update is a single change.
func slicesManifest(families []family, backends []*host) string {
	var docs []string
	for i, f := range families {
		var endpoints strings.Builder
		for _, b := range backends {
			fmt.Fprintf(&endpoints, "- {addresses: [%q], conditions: {ready: true}, nodeName: %s}\n", b.addresses[i], nodeName)
		}
		docs = append(docs, fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-%s, namespace: default, labels: {kubernetes.io/service-name: %s}}
addressType: %s
ports: [{name: http, protocol: TCP, port: %d}]
endpoints:
%s`, serviceName, strings.ToLower(f.name), serviceName, f.name, backendPort, endpoints.String()))
	}
	return strings.Join(docs, "---\n")
}

// folder is the manifest directory.
type folder struct{ path string }

func newFolder(parent string) (folder, error) {
	f := folder{path: filepath.Join(parent, "manifests")}
	if err := os.Mkdir(f.path, 0o700); err != nil {
		return f, fmt.Errorf("create a folder for manifests: %w", err)
	}
	return f, nil
}

// write replaces a file as a whole, because the proxy watches the folder and must not see half of the file.
func (f folder) write(name, text string) error {
	draft := filepath.Join(filepath.Dir(f.path), name)
	if err := os.WriteFile(draft, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the manifest %s: %w", name, err)
	}
	if err := os.Rename(draft, filepath.Join(f.path, name)); err != nil {
		return fmt.Errorf("put the manifest %s in place: %w", name, err)
	}
	return nil
}

// ranges returns the pod ranges, for --cluster-cidr.
func ranges(families []family) string {
	var all []string
	for _, f := range families {
		all = append(all, f.podRange.String())
	}
	return strings.Join(all, ",")
}

func clusterIP(f *family) netip.AddrPort   { return netip.AddrPortFrom(f.clusterIP, servicePort) }
func nodeAddress(f *family) netip.AddrPort { return netip.AddrPortFrom(f.node, nodePort) }
