package plan

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func fateService() (*state.Service, *Environment) {
	svc := &state.Service{
		Name: state.Name{Namespace: "default", Name: "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		Ports: []state.ServicePort{{Name: "http", Protocol: state.TCP, Port: 80, NodePort: 30080}}, ExternalLocal: true,
	}
	return svc, &Environment{NodeName: "n1", Zone: "z1", IPv4: true}
}

func TestFates(t *testing.T) {
	svc, env := fateService()
	at := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, last}) }
	zones := func(names ...string) *state.Hints { return &state.Hints{Zones: names} }
	for _, tt := range []struct {
		name           string
		endpoints      []state.Endpoint
		cluster, local []string // by endpoint
	}{
		{"conditions", []state.Endpoint{
			{Addr: at(1), Ready: true, Serving: true, Node: "n1"}, {Addr: at(2), Node: "n1"},
			{Addr: at(3), Serving: true, Terminating: true, Node: "n1"}, {Addr: at(4), Terminating: true, Node: "n1"},
			{Addr: at(5), Ready: true, Serving: true, Node: "n2"},
		}, []string{"", "not ready", "terminating, while others are ready", "terminating and not serving", ""},
			[]string{"", "not ready", "terminating, while others are ready", "terminating and not serving", "on node n2"}},
		{"only terminating", []state.Endpoint{{Addr: at(1), Serving: true, Terminating: true, Node: "n1"}, {Addr: at(2), Node: "n1"}},
			[]string{"", "not ready"}, []string{"", "not ready"}},
		{"zones", []state.Endpoint{
			{Addr: at(1), Ready: true, Node: "n1", Hints: zones("z1")}, {Addr: at(2), Ready: true, Node: "n1", Hints: zones("z2", "z3")},
		}, []string{"", "its hints are for other zones: z2, z3 (this node is in z1)"}, []string{"", ""}},
		{"hints that do not count", []state.Endpoint{{Addr: at(1), Ready: true, Hints: zones("z2")}, {Addr: at(2), Ready: true}},
			[]string{"", ""}, []string{"on an unknown node", "on an unknown node"}},
	} {
		slice := &state.Slice{
			Name: state.Name{Namespace: "default", Name: "web-1"}, Service: svc.Name, Family: state.IPv4, Weight: 1,
			Ports: []state.SlicePort{{Name: "http", Protocol: state.TCP, Port: 8080}}, Endpoints: tt.endpoints,
		}
		var p Planner
		fates := p.Fates(svc, []*state.Slice{slice}, env)
		planned := p.Plan(svc, []*state.Slice{slice}, env)
		for i, f := range fates {
			if f.OutOfCluster != tt.cluster[i] || f.OutOfLocal != tt.local[i] {
				t.Errorf("%s: %s: %q and %q, want %q and %q", tt.name, f.Addr, f.OutOfCluster, f.OutOfLocal, tt.cluster[i], tt.local[i])
			}
			for pool, out := range map[string]string{"cluster": f.OutOfCluster, "local": f.OutOfLocal} {
				list := planned.Ports[0].Cluster
				if pool == "local" {
					list = planned.Ports[0].Local
				}
				if has := slices.ContainsFunc(list, func(e serviceport.Endpoint) bool { return e.Addr == f.Addr }); has != (out == "") {
					t.Errorf("%s: %s is in the %s pool: %t, but the reason is %q", tt.name, f.Addr, pool, has, out)
				}
			}
		}
		if len(fates) != len(tt.endpoints) {
			t.Errorf("%s: %d fates, want %d", tt.name, len(fates), len(tt.endpoints))
		}
	}
}

// TestFatesOfBothFamilies: the endpoints of each family are explained.
func TestFatesOfBothFamilies(t *testing.T) {
	var p Planner
	var got []string
	for _, f := range p.Fates(service(nil), []*state.Slice{slice("a", "10.0.0.1"), slice("b", "fd00::1 notready")}, environment()) {
		got = append(got, f.Addr.String()+" "+f.OutOfCluster)
	}
	equal(t, "fates", got, []string{"10.0.0.1:8080 ", "[fd00::1]:8080 not ready"})
}

// TestFatesHaveAllReasons: whatever leaves an endpoint out of a pool has a text of its own. All pairs of endpoints of
// different kinds meet.
func TestFatesHaveAllReasons(t *testing.T) {
	kinds := []string{"10.0.0.1 "}
	for _, words := range [][]string{
		{"", "draining ", "gone ", "notready ", "weightless "}, {"", "@ ", "@node-a "},
		{"", "zone=zone-1 ", "zone=zone-2 ", "node=node-a ", "node=node-b "},
		{"", "backup "}, {"", "failed "},
	} {
		var more []string
		for _, kind := range kinds {
			for _, word := range words {
				more = append(more, kind+word)
			}
		}
		kinds = more
	}
	seen := map[string]bool{}
	for i, kind := range kinds {
		for _, other := range kinds[i:] {
			for _, allDown := range []state.AllDown{state.KeepAll, state.BackupOnly, state.RefuseAll} {
				for _, f := range fatesOfTwo(kind, strings.Replace(other, "10.0.0.1", "10.0.0.2", 1), allDown) {
					for _, why := range []string{f.OutOfCluster, f.OutOfLocal} {
						why, _, _ = strings.Cut(why, ": ")
						seen[why] = true
					}
				}
			}
		}
	}
	equal(t, "reasons", slices.Sorted(maps.Keys(seen)), []string{
		"", "a backup, and another endpoint is good", "its hints are for other nodes", "its hints are for other zones",
		"not a backup, and no endpoint is good", "not good", "not good, and on-all-down is reject", "not ready", "on an unknown node",
		"on node node-b", "terminating and not serving", "terminating, while others are ready", "weight 0",
	})
}

// fatesOfTwo explains two endpoints, each in a slice of its own. Beside the words of slice, they have weightless, backup and
// failed.
func fatesOfTwo(a, b string, allDown state.AllDown) []Fate {
	var p Planner
	var list []*state.Slice
	for name, line := range map[string]string{"a": a, "b": b} {
		take := func(word string) (has bool) {
			has = strings.Contains(line, word)
			line = strings.ReplaceAll(line, word, "")
			return has
		}
		backup, failed, weightless := take("backup"), take("failed"), take("weightless")
		sl := slice(name, line)
		if sl.Backup = backup; weightless {
			sl.Weight = 0
		}
		if failed {
			p.Health = append(p.Health, fails(true, sl.Endpoints[0].Addr.String())...)
		}
		list = append(list, sl)
	}
	return p.Fates(service(func(s *state.Service) { s.AllDown = allDown }), list, environment())
}
