package daemon

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// Service describes a Service of a manifest.
type Service struct {
	Name      string // namespace/name
	ClusterIP netip.Addr
	Spec      string   // further fields of its spec, each followed by a comma: `"sessionAffinity": "ClientIP",`
	Mode      string   // the annotation about outlier detection; "": none
	Port      uint16   // 0: 80
	NodePort  int      // 0: none
	Endpoints []string // addresses; one that begins with "-" is not ready
	Node      string   // of all endpoints
}

// Manifest is the Service and its slice, as documents of YAML. Its port is "http", and leads to 8080.
func (s *Service) Manifest() string {
	namespace, name, _ := strings.Cut(s.Name, "/")
	nodePort := ""
	if s.NodePort != 0 {
		nodePort = fmt.Sprintf(`, "nodePort": %d`, s.NodePort)
		s.Spec += `"type": "NodePort", `
	}
	var ends []string
	for _, e := range s.Endpoints {
		address, notReady := strings.CutPrefix(e, "-")
		ends = append(ends, fmt.Sprintf(`{"addresses": [%q], "nodeName": %q, "conditions": {"ready": %t}}`, address, s.Node, !notReady))
	}
	notes := ""
	if s.Mode != "" {
		notes = fmt.Sprintf(`, "annotations": {"verdict-proxy.github.io/outlier-detection": %q}`, s.Mode)
	}
	return fmt.Sprintf(`---
{"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": %[1]q, "name": %[2]q%[7]s},
 "spec": {"clusterIP": %[3]q, "clusterIPs": [%[3]q], %[4]s "ports": [{"name": "http", "port": %[8]d, "targetPort": 8080%[5]s}]}}
---
{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
 "metadata": {"namespace": %[1]q, "name": "%[2]s-1", "labels": {"kubernetes.io/service-name": %[2]q}},
 "ports": [{"name": "http", "port": 8080}], "endpoints": [%[6]s]}
`, namespace, name, s.ClusterIP, s.Spec, nodePort, strings.Join(ends, ", "), notes, cmp.Or(s.Port, 80))
}

// Numbered is Service number n of a large cluster. It has endpoints of its own as long as there are addresses.
func Numbered(n, endpoints int) *Service {
	s := &Service{Name: fmt.Sprintf("team-%02d/service-%05d", n%40, n), ClusterIP: ClusterIP(n), Node: "n2"}
	for e := range endpoints {
		at := n*endpoints + e
		s.Endpoints = append(s.Endpoints, netip.AddrFrom4([4]byte{11, byte(at >> 16), byte(at >> 8), byte(at)}).String())
	}
	return s
}

// ClusterIP is the address of Service number n.
func ClusterIP(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 100, byte(n >> 8), byte(n)}) }

// perFile is how many Services a file has.
const perFile = 500

// Fill writes Services 0 to n-1 into a folder.
func Fill(t testing.TB, dir string, services, endpoints int) {
	t.Helper()
	for first := 0; first < services; first += perFile {
		var text strings.Builder
		for n := first; n < min(first+perFile, services); n++ {
			text.WriteString(Numbered(n, endpoints).Manifest())
		}
		WriteFile(t, dir, fmt.Sprintf("many-%05d.yaml", first), text.String())
	}
}
