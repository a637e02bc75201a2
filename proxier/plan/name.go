package plan

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// givenNames are the names of the ports of one Service.
type givenNames struct {
	list  []string // the second family reuses them
	given map[string]bool
}

// of returns the human-readable name of a port, which is its identity, too: no two ports of all Services have the
// same. It is called for the ports in their order. The second family reuses the string of the first.
func (n *givenNames) of(svc *state.Service, index int) string {
	if index < len(n.list) {
		return n.list[index]
	}
	if n.given == nil {
		n.given = map[string]bool{}
	}
	port := &svc.Ports[index]
	name := escaped(svc.Namespace) + "/" + escaped(svc.Name.Name) + ":" + escaped(cmp.Or(port.Name, strconv.Itoa(int(port.Port))))
	// The API server rejects equal and missing names. In manifests, DNS may have two ports that are both shown as 53.
	if n.given[name] {
		name += "/" + port.Protocol.String()
	}
	if n.given[name] {
		name += "/" + strconv.Itoa(int(port.Port))
	}
	n.list = append(n.list, name)
	n.given[name] = true
	return name
}

// forget leaves nothing but memory for the next Service. A map never shrinks, so a large one goes.
func (n *givenNames) forget() {
	clear(n.list)
	n.list = n.list[:0]
	if len(n.given) > few {
		n.given = nil
	}
	clear(n.given)
}

// escaped returns a part of a name as it is shown. The names of the API have letters, digits, "-" and "." only, and nft.Label
// has a tilde. Other characters could end the part, or what the name is printed in. They are shown by their codes.
func escaped(part string) string { return strings.ReplaceAll(url.QueryEscape(part), "+", "%20") } // "+" stands for a space
