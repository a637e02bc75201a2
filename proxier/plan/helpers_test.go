package plan

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/state"
)

const (
	here  = "node-a"
	there = "node-b"
	zone  = "zone-1"
)

func environment() *Environment {
	return &Environment{
		NodeName:      here,
		Zone:          zone,
		NodeAddresses: []netip.Addr{netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("fd00:1::1")},
		IPv4:          true,
		IPv6:          true,
		ExternalIPs:   []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
	}
}

// planned plans one Service with a fresh Planner.
func planned(svc *state.Service, list []*state.Slice, env *Environment) Service {
	var p Planner
	return p.Plan(svc, list, env)
}

// addrs reads addresses from a list separated by spaces.
func addrs(list string) (out []netip.Addr) {
	for _, s := range strings.Fields(list) {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func prefixes(list string) (out []netip.Prefix) {
	for _, s := range strings.Fields(list) {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// service is a Service with one TCP port and a cluster IP of each family, changed by edit.
func service(edit func(*state.Service)) *state.Service {
	svc := &state.Service{
		Name:       state.Name{Namespace: "shop", Name: "web"},
		ClusterIPs: addrs("10.96.0.10 fd00:96::10"),
		Ports:      []state.ServicePort{{Name: "http", Protocol: state.TCP, Port: 80}},
	}
	if edit != nil {
		edit(svc)
	}
	return svc
}

// slice makes an EndpointSlice for the port http (8080). A line describes an endpoint: its address, then notready,
// draining, gone or published, @node, zone=a,b and node=a,b. Without further words, an endpoint is ready and on another
// node.
func slice(name string, endpoints ...string) *state.Slice {
	sl := &state.Slice{
		Name:    state.Name{Namespace: "shop", Name: name},
		Service: state.Name{Namespace: "shop", Name: "web"},
		Family:  state.IPv4,
		Ports:   []state.SlicePort{{Name: "http", Protocol: state.TCP, Port: 8080}},
		Weight:  state.DefaultWeight,
	}
	for _, line := range endpoints {
		e := endpoint(line)
		sl.Family = state.FamilyOf(e.Addr)
		sl.Endpoints = append(sl.Endpoints, e)
	}
	return sl
}

func endpoint(line string) state.Endpoint {
	words := strings.Fields(line)
	e := state.Endpoint{Addr: netip.MustParseAddr(words[0]), Ready: true, Serving: true, Node: there}
	for _, w := range words[1:] {
		switch {
		case w == "notready":
			e.Ready, e.Serving = false, false
		case w == "draining":
			e.Ready, e.Terminating = false, true
		case w == "gone":
			e.Ready, e.Serving, e.Terminating = false, false, true
		case w == "published": // publishNotReadyAddresses
			e.Serving = false
		case strings.HasPrefix(w, "@"):
			e.Node = w[1:]
		case strings.HasPrefix(w, "zone="):
			hintsOf(&e).Zones = strings.Split(w[5:], ",")
		case strings.HasPrefix(w, "node="):
			hintsOf(&e).Nodes = strings.Split(w[5:], ",")
		default:
			panic("endpoint: unknown word " + w)
		}
	}
	return e
}

func hintsOf(e *state.Endpoint) *state.Hints {
	if e.Hints == nil {
		e.Hints = &state.Hints{}
	}
	return e.Hints
}

// show prints endpoints as "10.0.0.1:80 10.0.0.2:80".
func show(list []serviceport.Endpoint) string {
	var words []string
	for _, e := range list {
		words = append(words, e.Addr.String())
	}
	return strings.Join(words, " ")
}

func showAddrs(list []netip.AddrPort) string {
	var words []string
	for _, a := range list {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

func portOf(t *testing.T, s Service, family state.Family, name string) *Port {
	t.Helper()
	for i := range s.Ports {
		if p := &s.Ports[i]; p.Family == family && p.Name == name {
			return p
		}
	}
	t.Fatalf("no %v port %q in %+v", family, name, s.Ports)
	return nil
}

func frontendOf(t *testing.T, p *Port, kind FrontendKind) Frontend {
	t.Helper()
	for _, fe := range p.Frontends {
		if fe.Kind == kind {
			return fe
		}
	}
	t.Fatalf("port %s has no %v frontend: %+v", p.Name, kind, p.Frontends)
	return Frontend{}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}
