package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/verdict-proxy/verdict/cmd/verdict/list"
)

// maxFrontends is how many frontends of a Service are explained.
const maxFrontends = 16

// frontendsOf lists the frontends of a Service, or of one of its ports.
func frontendsOf(name string) (out []question, err error) {
	if namespace, rest, ok := strings.Cut(name, "/"); !ok || namespace == "" || rest == "" || strings.Contains(rest, "/") {
		return nil, usage{fmt.Errorf("--service %q must be NAMESPACE/NAME or NAMESPACE/NAME:PORT", name)}
	}
	targets, err := list.Targets(name)
	if err != nil {
		return nil, fmt.Errorf("list the frontends of %s: %w", name, err)
	}
	for _, t := range targets {
		out = append(out, question{dst: netip.AddrPortFrom(t.Address, t.Port), protocol: t.Protocol})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the kernel has no frontend of %s: the Service does not exist, has no cluster IP, "+
			"or is not served; the log of the daemon and the Events of the Service say why", name)
	}
	return out[:min(len(out), maxFrontends)], nil
}
