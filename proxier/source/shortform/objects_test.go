package shortform

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func objectsOf(t *testing.T, text string) (Objects, []state.Problem) {
	t.Helper()
	lb, faults := Decode([]byte(text))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return lb.Objects()
}

func ready(addresses ...string) (list []state.Endpoint) {
	for _, a := range addresses {
		list = append(list, state.Endpoint{Addr: netip.MustParseAddr(a), Ready: true, Serving: true})
	}
	return list
}

func TestObjects(t *testing.T) {
	web := state.Name{Namespace: "shop", Name: "web"}
	ports := []state.SlicePort{{Name: "port-80", Protocol: state.TCP, Port: 8080}, {Name: "secure", Protocol: state.TCP, Port: 8443},
		{Name: "secure", Protocol: state.UDP, Port: 8443}}
	slice := func(name string, f state.Family, weight uint16, backup bool, e ...string) *state.Slice {
		return &state.Slice{Name: state.Name{Namespace: "shop", Name: name}, Service: web, Family: f, Weight: weight, Backup: backup,
			Ports: ports, Endpoints: ready(e...)}
	}
	want := Objects{
		Service: &state.Service{
			Name:            web,
			Short:           true,
			LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")},
			SourceRanges:    []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:1::/48")},
			KeepsSources:    true,
			Ports: []state.ServicePort{{Name: "port-80", Protocol: state.TCP, Port: 80}, {Name: "secure", Protocol: state.TCP, Port: 443},
				{Name: "secure", Protocol: state.UDP, Port: 443}},
			Affinity:  3 * time.Hour,
			Balancing: state.Balancing{Scheduler: "mh", Flags: "mh-port"},
			Outliers:  state.OutlierDetection{Mode: state.OutlierEject, Refusals: true},
			Check: &state.HealthCheck{Kind: state.CheckHTTP, Path: "/healthz", MinStatus: 200, MaxStatus: 399, Interval: 2 * time.Second,
				Timeout: time.Second, Rise: 2, Fall: 3},
			AllDown:   state.BackupOnly,
			OnRemoval: state.ResetThose,
		},
		Slices: []*state.Slice{
			slice("web:0", state.IPv4, 3, false, "10.0.0.1", "10.0.0.3"), slice("web:1", state.IPv4, 1, false, "10.0.0.2"),
			slice("web:2", state.IPv4, 1, true, "10.0.0.9"), slice("web:3", state.IPv6, 1, false, "fd00::1"),
		},
	}
	got, problems := objectsOf(t, complete)
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" || len(problems) > 0 {
		t.Errorf("objects (-want +got):\n%s\n%v", diff, problems)
	}
}

// TestPortsOfEndpoints: an endpoint with a port of its own is in a slice of its own.
func TestPortsOfEndpoints(t *testing.T) {
	got, _ := objectsOf(t, one)
	var ports []uint16
	for _, sl := range got.Slices {
		ports = append(ports, sl.Ports[0].Port)
	}
	if diff := cmp.Diff([]uint16{80, 81}, ports); diff != "" || got.Service.String() != "default/one" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// TestRange: a range is one port.
func TestRange(t *testing.T) {
	ranged := strings.NewReplacer("{port: 80}", "{port: 8000-8999}", ", {address: 10.0.0.1, port: 81}", "").Replace(one)
	got, _ := objectsOf(t, ranged)
	want := []state.ServicePort{{Protocol: state.TCP, Port: 8000, EndPort: 8999}}
	if diff := cmp.Diff(want, got.Service.Ports); diff != "" || got.Slices[0].Ports[0].Port != 8000 {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// TestFamilyWithoutEndpoints is reported: nobody wants an address that refuses everybody.
func TestFamilyWithoutEndpoints(t *testing.T) {
	lb, faults := Decode([]byte(one))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	lb.Spec.Addresses = append(lb.Spec.Addresses, Address{netip.MustParseAddr("2001:db8::1")})
	_, problems := lb.Objects()
	if len(problems) != 1 || problems[0].Field != "spec.addresses[1]" {
		t.Errorf("problems %v", problems)
	}
	lb.Spec.Endpoints = nil
	if _, problems = lb.Objects(); len(problems) > 0 {
		t.Errorf("without endpoints: problems %v", problems)
	}
}

// TestObjectsLookAtEveryField: a field that nothing reads would be a promise that nobody keeps.
func TestObjectsLookAtEveryField(t *testing.T) {
	lb, faults := Decode([]byte(complete))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	want, _ := lb.Objects()
	oneValue := []string{"APIVersion", "Kind"}
	for path, changed := range fields.Each(*lb) {
		got, _ := changed.Objects()
		if cmp.Equal(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})) != slices.Contains(oneValue, path) {
			t.Errorf("%s changes what a balancer stands for: %t", path, slices.Contains(oneValue, path))
		}
	}
}
