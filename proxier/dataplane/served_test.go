package dataplane

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestRenamedPort: a port that gets another name keeps all its numbers in nft and its virtual servers, whatever other ports
// the Service has.
func TestRenamedPort(t *testing.T) {
	for _, scheduler := range []string{"", "lc"} {
		w := newWorld(t, false)
		w.ask(scheduler)
		svc := w.services[web]
		dns := svc.Ports[0]
		dns.Name, dns.Protocol, dns.Frontends = "default/web:dns", state.UDP, slices.Clone(dns.Frontends)
		other := svc.Ports[0]
		other.Name, other.Frontends = "default/web:other", []plan.Frontend{at(plan.ClusterIP, "10.96.0.1", serviceport.ClusterPool)}
		other.Frontends[0].Port = 81
		svc.Ports = append(svc.Ports, dns, other)
		w.set(web)
		w.apply()
		tables := func() string { // without the stamp
			_, text, _ := strings.Cut(w.rules.kernel.String(), "map services")
			return text
		}
		before := tables()
		for i := range svc.Ports {
			svc.Ports[i].Name += "2"
		}
		slices.Reverse(svc.Ports)
		w.set(web)
		w.apply()
		if w.last.Err != nil || w.last.Full || w.last.Operations > 0 {
			t.Errorf("scheduler %q: %v; everything was written: %t; %d virtual servers changed", scheduler, w.last.Err, w.last.Full, w.last.Operations)
		}
		was := strings.NewReplacer("web:http", "web:http2", "web:dns", "web:dns2", "web:other", "web:other2").Replace(before)
		if diff := cmp.Diff(was, tables()); diff != "" {
			t.Errorf("scheduler %q: after new names (- with them, + is):\n%s", scheduler, diff)
		}
	}
}

// TestFormerNames: a new name is that of the port which had the protocol and the number, if that port is gone.
func TestFormerNames(t *testing.T) {
	service := func(ports ...servedPort) *served { return &served{ports} }
	named := func(name string, number uint16) servedPort {
		return servedPort{PortID: contents.PortID{Name: name}, protocol: state.TCP, number: number}
	}
	udp := named("b", 80)
	udp.protocol = state.UDP
	for name, tt := range map[string]struct {
		old, next *served
		want      map[contents.PortID]string
	}{
		"new":            {nil, service(named("a", 80)), nil},
		"same":           {service(named("a", 80)), service(named("a", 80)), nil},
		"renamed":        {service(named("a", 80)), service(named("b", 80)), map[contents.PortID]string{{Name: "b"}: "a"}},
		"added":          {service(named("a", 80)), service(named("a", 80), named("b", 81)), nil},
		"other protocol": {service(named("a", 80)), service(udp), map[contents.PortID]string{}},
		"other number":   {service(named("a", 80)), service(named("b", 81)), map[contents.PortID]string{}},
		"exchanged":      {service(named("a", 80), named("b", 81)), service(named("b", 80), named("a", 81)), nil},
		"twice":          {service(named("a", 80)), service(named("b", 80), named("c", 80)), map[contents.PortID]string{{Name: "b"}: "a"}},
	} {
		if diff := cmp.Diff(tt.want, tt.old.formerNames(tt.next)); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", name, diff)
		}
	}
}

// TestCountOf: a port has as many pools as it has lists with endpoints.
func TestCountOf(t *testing.T) {
	some := []serviceport.Endpoint{{}, {}}
	for i, tt := range []struct {
		cluster, local   []serviceport.Endpoint
		pools, endpoints int
	}{{nil, nil, 0, 0}, {some, nil, 1, 2}, {nil, some[:1], 1, 1}, {some, some[:1], 2, 2}} {
		if c := countOf(&plan.Port{Cluster: tt.cluster, Local: tt.local}, 0); int(c.pools) != tt.pools || int(c.endpoints) != tt.endpoints {
			t.Errorf("%d: %+v", i, c)
		}
	}
}

// TestOnRules: the dataplane names the ports that stay on the rules while others need not, until they are gone or the option is off.
func TestOnRules(t *testing.T) {
	rules := inMemory()
	d := New(Options{Ruleset: rules})
	named := func() (list []string) {
		d.EachOnRules(func(id contents.PortID, why string) { list = append(list, id.Name+": "+why) })
		return list
	}
	kept, offered := stickyPlan(1, 0), stickyPlan(2, 0)
	kept.Ports[0].SlowPath = "why"
	for _, tt := range []struct {
		after uint32
		want  string
	}{{0, ""}, {20, "default/svc-1:http: why"}, {0, ""}, {20, "default/svc-1:http: why"}} {
		d.SetEnvironment(Environment{Globals: Globals{FastPath: tt.after}})
		d.Set(kept)
		d.Set(offered)
		if got := strings.Join(named(), ", "); got != tt.want {
			t.Errorf("after %d packets: %q, want %q", tt.after, got, tt.want)
		}
	}
	d.Apply()
	set := regexp.MustCompile(`(?s)set fast-path \{.*?\n\t\}`).FindString(rules.kernel.String())
	if !strings.Contains(set, offered.Ports[0].Frontends[0].Addr.String()+" ") || strings.Contains(set, kept.Ports[0].Frontends[0].Addr.String()+" ") {
		t.Errorf("the rules offer\n%s", set)
	}
	if d.Delete(kept.Name); len(named()) > 0 {
		t.Errorf("it is gone, but: %q", named())
	}
}

// TestIPVSOnRules: no connection to a port that IPVS serves takes the fast path.
func TestIPVSOnRules(t *testing.T) {
	w := newWorld(t, false)
	w.SetEnvironment(Environment{Globals: Globals{FastPath: 20}})
	w.ask("lc")
	var got []string
	w.EachOnRules(func(id contents.PortID, why string) { got = append(got, id.Name+": "+why) })
	if want := []string{"default/web:http: IPVS serves the port"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestTickFollowsDevices: the fast path gets the devices that are there now, only while there is one. A failure is reported.
func TestTickFollowsDevices(t *testing.T) {
	var followed []string
	devices, failure := []state.Device{{Name: "veth1"}, {Name: "eth0"}}, error(nil)
	d := New(Options{
		Ruleset: inMemory(), Devices: func() []state.Device { return devices },
		FollowDevices: func(names []string) error { followed = names; return failure },
	})
	if d.Tick(); followed != nil {
		t.Errorf("without the fast path, it gets %q", followed)
	}
	d.SetEnvironment(Environment{Globals: Globals{FastPath: 20}})
	for _, devices = range [][]state.Device{devices, devices[:1]} {
		if r := d.Tick(); len(followed) != len(devices) || len(r.Failures) > 0 {
			t.Errorf("it gets %q of %v, failures %v", followed, devices, r.Failures)
		}
	}
	failure = errors.New("refused")
	if r := d.Tick(); len(r.Failures) != 1 || !errors.Is(r.Failures[0].Err, failure) {
		t.Errorf("failures %v", r.Failures)
	}
}

// TestFastPathDevices: without patterns, the fast path has all devices but ports of others. With patterns, it has those that match one.
func TestFastPathDevices(t *testing.T) {
	devices := []state.Device{{Name: "veth2"}, {Name: "eth0"}, {Name: "veth1", Port: true}, {Name: "br0"}}
	for want, patterns := range map[string][]string{
		"br0 eth0 veth2": nil, "br0 veth1 veth2": {"veth*", "br?"}, "": {"wlan*"},
	} {
		env := Environment{FastPathDevices: patterns}
		if got := strings.Join(env.fastPathDevices(devices), " "); got != want {
			t.Errorf("%q: %s, want %s", patterns, got, want)
		}
	}
}
