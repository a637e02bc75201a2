package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// portNames lists the names of the ports that a Service gets in IPv4.
func portNames(t *testing.T, namespace, name string, ports ...state.ServicePort) (names []string) {
	t.Helper()
	svc := service(func(s *state.Service) {
		s.Name, s.Ports = state.Name{Namespace: namespace, Name: name}, ports
	})
	for _, p := range planned(svc, nil, environment()).Ports {
		if p.Family == state.IPv4 {
			names = append(names, p.Name)
		}
	}
	return names
}

// TestNamesAreIdentities: no two ports have the same name, whatever the names in the objects.
func TestNamesAreIdentities(t *testing.T) {
	tcp := func(name string, number uint16) state.ServicePort {
		return state.ServicePort{Name: name, Protocol: state.TCP, Port: number}
	}
	udp := func(name string, number uint16) state.ServicePort {
		return state.ServicePort{Name: name, Protocol: state.UDP, Port: number}
	}
	var many []state.ServicePort
	for i := range uint16(few) {
		many = append(many, tcp("", 1000+i))
	}
	dns := []state.ServicePort{udp("53", 1), tcp("53", 2), udp("", 53), tcp("", 53)}
	var all []string
	for _, tt := range []struct {
		namespace, name string
		ports           []state.ServicePort
		want            string
	}{
		{"d", "b", []state.ServicePort{tcp("c:d", 1)}, "d/b:c%3Ad"},
		{"d", "b:c", []state.ServicePort{tcp("d", 1)}, "d/b%3Ac:d"},
		{"d", "b%3Ac", []state.ServicePort{tcp("d", 1)}, "d/b%253Ac:d"},
		{"d/b", "c", []state.ServicePort{tcp("d", 1)}, "d%2Fb/c:d"},
		{"d", "b/c", []state.ServicePort{tcp("d", 1)}, "d/b%2Fc:d"},
		{"d", "dns", dns, "d/dns:53 d/dns:53/tcp d/dns:53/udp d/dns:53/tcp/53"},
		{"d", "q", []state.ServicePort{tcp("a\"\n\x1b", 1), tcp("é", 2)}, "d/q:a%22%0A%1B d/q:%C3%A9"},
		{"d", "many", slices.Concat(many, dns), ""},
	} {
		got := portNames(t, tt.namespace, tt.name, tt.ports...)
		if tt.want != "" {
			equal(t, "names", strings.Join(got, " "), tt.want)
		}
		all = append(all, got...)
	}
	slices.Sort(all)
	if unique := slices.Compact(slices.Clone(all)); len(unique) != len(all) {
		t.Errorf("%d ports have %d names: %q", len(all), len(unique), all)
	}
}
