package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// givenNames are the names of the ports of one Service.
type givenNames struct {
	list  []string            // the second family reuses them
	given map[string]struct{} // the same, for a Service with many ports
}

// of returns the human-readable name of a port, which is its identity, too: no two ports of all Services have the
// same. It is called for the ports in their order. The second family reuses the string of the first.
func (n *givenNames) of(svc *state.Service, index int) string {
	if index < len(n.list) {
		return n.list[index]
	}
	port := &svc.Ports[index]
	name := plain(svc.Namespace) + "/" + plain(svc.Name.Name) + ":" + plain(shownName(port))
	// The API server rejects equal and missing names. In manifests, DNS may have two ports that are both shown as 53.
	if n.isGiven(name) {
		name += "/" + port.Protocol.String()
	}
	if n.isGiven(name) {
		name += "/" + strconv.Itoa(int(port.Port))
	}
	n.give(name, len(svc.Ports))
	return name
}

func shownName(port *state.ServicePort) string {
	if port.Name == "" {
		return strconv.Itoa(int(port.Port))
	}
	return port.Name
}

// fewPorts is the number of ports up to which names are compared without a map. Nearly every Service has fewer.
const fewPorts = 16

// isGiven reports whether an earlier port has a name.
func (n *givenNames) isGiven(name string) bool {
	if n.given == nil {
		return slices.Contains(n.list, name)
	}
	_, given := n.given[name]
	return given
}

func (n *givenNames) give(name string, ports int) {
	n.list = append(n.list, name)
	if ports <= fewPorts {
		return
	}
	if n.given == nil {
		n.given = make(map[string]struct{}, ports)
	}
	n.given[name] = struct{}{}
}

// plain returns a part of a name as it is shown. The names of the API have letters, digits, "-" and "." only. Other
// characters could end the part, or what the name is printed in. They are shown by their codes.
func plain(part string) string {
	if !strings.ContainsFunc(part, notInName) {
		return part
	}
	var text strings.Builder
	for i := range len(part) {
		if notInName(rune(part[i])) {
			fmt.Fprintf(&text, "%%%02X", part[i])
		} else {
			text.WriteByte(part[i])
		}
	}
	return text.String()
}

func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._~", r) // nft.Label has a tilde
}
