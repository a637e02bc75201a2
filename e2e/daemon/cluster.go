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
	Notes     string   // further annotations, each followed by a comma
	NodePort  int      // 0: none
	Endpoints []string // addresses; one that begins with "-" is not ready
	Backups   []string // addresses of backup endpoints, in a slice of their own
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
	notes := s.Notes
	if s.Mode != "" {
		notes += fmt.Sprintf(`"verdict-proxy.github.io/outlier-detection": %q`, s.Mode)
	}
	text := fmt.Sprintf(`---
{"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": %[1]q, "name": %[2]q%[6]s},
 "spec": {"clusterIP": %[3]q, "clusterIPs": [%[3]q], %[4]s "ports": [{"name": "http", "port": %[7]d, "targetPort": 8080%[5]s}]}}
`, namespace, name, s.ClusterIP, s.Spec, nodePort, annotations(notes), cmp.Or(s.Port, 80)) + s.slice("1", "", s.Endpoints)
	if len(s.Backups) > 0 {
		text += s.slice("backup", `"verdict-proxy.github.io/backup": "true"`, s.Backups)
	}
	return text
}

// slice is one slice of the Service.
func (s *Service) slice(number, notes string, endpoints []string) string {
	namespace, name, _ := strings.Cut(s.Name, "/")
	var ends []string
	for _, e := range endpoints {
		address, notReady := strings.CutPrefix(e, "-")
		ends = append(ends, fmt.Sprintf(`{"addresses": [%q], "nodeName": %q, "conditions": {"ready": %t}}`, address, s.Node, !notReady))
	}
	return fmt.Sprintf(`---
{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
 "metadata": {"namespace": %[1]q, "name": "%[2]s-%[3]s", "labels": {"kubernetes.io/service-name": %[2]q}%[4]s},
 "ports": [{"name": "http", "port": 8080}], "endpoints": [%[5]s]}
`, namespace, name, number, annotations(notes), strings.Join(ends, ", "))
}

// annotations is the field of an object's metadata.
func annotations(notes string) string {
	if notes == "" {
		return ""
	}
	return fmt.Sprintf(`, "annotations": {%s}`, strings.TrimSuffix(notes, ","))
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
