package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// portName returns the human-readable name of a port, which is its identity, too: no two ports of all Services have the
// same. It is called for the ports in their order. The second family reuses the string of the first.
func (p *Planner) portName(index int) string {
	if index < len(p.names) {
		return p.names[index]
	}
	port := &p.svc.Ports[index]
	name := plain(p.svc.Namespace) + "/" + plain(p.svc.Name.Name) + ":" + plain(shownName(port))
	// The API server rejects equal and missing names. In manifests, DNS may have two ports that are both shown as 53.
	if p.isGiven(name) {
		name += "/" + port.Protocol.String()
	}
	if p.isGiven(name) {
		name += "/" + strconv.Itoa(int(port.Port))
	}
	p.give(name)
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
func (p *Planner) isGiven(name string) bool {
	if p.given == nil {
		return slices.Contains(p.names, name)
	}
	_, given := p.given[name]
	return given
}

func (p *Planner) give(name string) {
	p.names = append(p.names, name)
	if len(p.svc.Ports) <= fewPorts {
		return
	}
	if p.given == nil {
		p.given = make(map[string]struct{}, len(p.svc.Ports))
	}
	p.given[name] = struct{}{}
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
