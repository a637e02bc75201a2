package snapshot

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Query says which frontends are wanted. The zero value wants all of them.
type Query struct {
	Family    program.Family // 0: both
	Services  []string
	Addresses []netip.Prefix
	Endpoints []EndpointRange
	Endpoint  string // the only one of them, as ADDRESS or ADDRESS:PORT: the daemon is asked which Services have it
	Engine    string
	Problem   bool // only frontends where some clients find no endpoint
	// Uncounted means that connection tracking is not read.
	Uncounted bool
}

// ParseServices parses NAMESPACE, NAMESPACE/SERVICE or NAMESPACE/SERVICE:PORT.
func ParseServices(args []string) ([]string, error) {
	for _, arg := range args {
		namespace, service, isService := strings.Cut(arg, "/")
		if namespace == "" || strings.Contains(namespace, ":") || strings.Contains(service, "/") || isService && (service == "" || service[0] == ':') {
			return nil, fmt.Errorf("%q must be NAMESPACE, NAMESPACE/SERVICE or NAMESPACE/SERVICE:PORT", arg)
		}
	}
	return args, nil
}

// matches reports whether the name of a namespace, a Service or a Service port selects a Service port
// (namespace/name:port). In the kernel, long names are shortened.
func matches(want, name string) bool {
	switch {
	case name == want, name == program.Label(want):
		return true
	case !strings.Contains(want, "/"):
		return strings.HasPrefix(name, want+"/")
	case strings.Contains(want, ":"):
		return false
	}
	return strings.HasPrefix(name, want+":") || strings.HasPrefix(name, program.ServiceLabel(want)+":")
}

// Match returns the function by which package nft selects frontends, or nil for all of them.
func (q *Query) Match() func(string) bool {
	if len(q.Services) == 0 {
		return nil
	}
	return func(name string) bool {
		return slices.ContainsFunc(q.Services, func(want string) bool { return matches(want, name) })
	}
}

// ParseRange parses an address or a range.
func ParseRange(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}

// EndpointRange selects endpoints by their address, and by their port unless it is 0.
type EndpointRange struct {
	in   netip.Prefix
	port uint16
}

// ParseEndpoint parses an address, ADDRESS:PORT or a range.
func ParseEndpoint(text string) (EndpointRange, error) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return EndpointRange{netip.PrefixFrom(at.Addr(), at.Addr().BitLen()), at.Port()}, nil
	}
	in, err := ParseRange(text)
	return EndpointRange{in: in}, err
}

func (r EndpointRange) matches(e *Endpoint) bool {
	return r.in.Contains(e.Address) && (r.port == 0 || r.port == e.Port)
}

func (q *Query) families() []program.Family {
	if q.Family != 0 {
		return []program.Family{q.Family}
	}
	both := program.Families()
	return both[:]
}

func (q *Query) inRanges(a netip.Addr) bool {
	return slices.ContainsFunc(q.Addresses, func(r netip.Prefix) bool { return r.Contains(a) })
}

// keep removes frontends that are not wanted.
func (t *Table) keep(q *Query) {
	t.Frontends = slices.DeleteFunc(t.Frontends, func(fe Frontend) bool { return !q.selects(t, &fe) })
	t.Open = slices.DeleteFunc(t.Open, func(p socket.Passing) bool {
		return !slices.ContainsFunc(t.Frontends, func(fe Frontend) bool { return fe.Service == p.Service })
	})
}

func (q *Query) selects(t *Table, fe *Frontend) bool {
	switch {
	case q.Engine != "" && fe.Engine != q.Engine, q.Problem && !fe.HasProblem():
		return false
	case len(q.Addresses) > 0 && !slices.ContainsFunc(t.addresses(fe), q.inRanges):
		return false
	}
	return len(q.Endpoints) == 0 || slices.ContainsFunc(fe.Endpoints, func(e Endpoint) bool {
		return slices.ContainsFunc(q.Endpoints, func(r EndpointRange) bool { return r.matches(&e) })
	})
}

const destinationForm = "ADDRESS:PORT or ADDRESS:PORT/PROTOCOL, such as 10.96.0.10:53/udp or [fd00::10]:80"

// ParseDestination reads ADDRESS:PORT[/PROTOCOL].
func ParseDestination(text string) (at netip.AddrPort, protocol uint8, err error) {
	address, name, hasProtocol := strings.Cut(text, "/")
	if _, err := netip.ParseAddr(address); hasProtocol && err != nil && !strings.Contains(text, ":") {
		return at, 0, fmt.Errorf("destination %q looks like a Service; write --service %s --from SOURCE", text, text)
	}
	protocol = unix.IPPROTO_TCP
	if hasProtocol {
		if protocol = protocolNumber(strings.ToUpper(name)); protocol == 0 {
			return at, 0, fmt.Errorf("destination %q: the protocol %q must be tcp, udp or sctp", text, name)
		}
	}
	if at, err = netip.ParseAddrPort(address); err == nil {
		if at.Port() == 0 {
			return at, 0, fmt.Errorf("destination %q has no port; write %s", text, destinationForm)
		}
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), protocol, nil
	}
	if _, err := netip.ParseAddr(strings.Trim(address, "[]")); err == nil {
		return at, 0, fmt.Errorf("destination %q has no port; write %s", text, destinationForm)
	}
	return at, 0, fmt.Errorf("destination %q must be %s", text, destinationForm)
}

// maxCompletions bounds what the shell has to show.
const maxCompletions = 500

// CompleteNames completes the names of namespaces and Services, from the frontends in the kernel.
func CompleteNames(_ *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
	return ServiceNames(begin), cobra.ShellCompDirectiveNoFileComp
}

// ServiceNames lists the Services (namespace/name) that begin with a text. Without a slash in the text, it lists
// namespaces as well. The daemon answers faster; ports of Services are in the kernel.
func ServiceNames(begin string) []string {
	names := map[string]bool{}
	add := func(name string) bool { // a Service or a Service port, and its namespace
		if strings.HasPrefix(name, begin) && len(names) < maxCompletions {
			service, _, _ := strings.Cut(name, ":")
			if strings.Contains(begin, ":") {
				service = name
			}
			names[service] = true
			if namespace, _, ok := strings.Cut(name, "/"); ok && !strings.Contains(begin, "/") {
				names[namespace] = true
			}
		}
		return false
	}
	if list, err := socket.NewClient().Names(begin); err == nil && !strings.Contains(begin, ":") {
		for _, name := range list {
			add(name)
		}
	} else if _, err := inspect.Counters(kernel.Options{}, 0, add); err != nil {
		return nil // the shell has no place for errors
	}
	return slices.Sorted(maps.Keys(names))
}
