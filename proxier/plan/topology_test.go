package plan

import (
	"testing"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func TestTopology(t *testing.T) {
	tests := []struct {
		name      string
		endpoints []string
		edit      func(*Environment)
		want      string
	}{
		{"no hints", []string{"10.0.0.1", "10.0.0.2"}, nil, "10.0.0.1:8080 10.0.0.2:8080"},
		{"zone", []string{"10.0.0.1 zone=zone-1", "10.0.0.2 zone=zone-2", "10.0.0.3 zone=zone-2,zone-1"}, nil,
			"10.0.0.1:8080 10.0.0.3:8080"},
		{"one ready endpoint without a zone hint", []string{"10.0.0.1 zone=zone-1", "10.0.0.2", "10.0.0.3 zone=zone-2"}, nil,
			"10.0.0.1:8080 10.0.0.2:8080 10.0.0.3:8080"},
		{"an endpoint without a hint that is not ready does not count",
			[]string{"10.0.0.1 zone=zone-1", "10.0.0.2 notready", "10.0.0.3 zone=zone-2"}, nil, "10.0.0.1:8080"},
		{"no endpoint for this zone", []string{"10.0.0.1 zone=zone-2", "10.0.0.2 zone=zone-3"}, nil,
			"10.0.0.1:8080 10.0.0.2:8080"},
		{"only one that is not ready is for this zone", []string{"10.0.0.1 zone=zone-1 notready", "10.0.0.2 zone=zone-2"}, nil,
			"10.0.0.2:8080"},
		{"the node has no zone", []string{"10.0.0.1 zone=zone-1", "10.0.0.2 zone=zone-2"},
			func(e *Environment) { e.Zone = "" }, "10.0.0.1:8080 10.0.0.2:8080"},
		{"the node has no zone and a hint is empty", []string{"10.0.0.1 zone=", "10.0.0.2 zone=zone-2"},
			func(e *Environment) { e.Zone = "" }, "10.0.0.1:8080 10.0.0.2:8080"},
		{"node before zone",
			[]string{"10.0.0.1 node=node-a zone=zone-1", "10.0.0.2 node=node-b zone=zone-1", "10.0.0.3 node=node-c zone=zone-2"},
			nil, "10.0.0.1:8080"},
		{"nothing for this node: its zone",
			[]string{"10.0.0.1 node=node-x zone=zone-1", "10.0.0.2 node=node-b zone=zone-2"}, nil, "10.0.0.1:8080"},
		{"one without a node hint: its zone",
			[]string{"10.0.0.1 node=node-a zone=zone-2", "10.0.0.2 zone=zone-1"}, nil, "10.0.0.2:8080"},
		{"one without a zone hint has a node hint",
			[]string{"10.0.0.1 zone=zone-1", "10.0.0.2 node=node-b"}, nil, "10.0.0.1:8080 10.0.0.2:8080"},
		{"nodes only, none is this one", []string{"10.0.0.1 node=node-b", "10.0.0.2 node=node-c"}, nil,
			"10.0.0.1:8080 10.0.0.2:8080"},
		{"the fallback to draining endpoints ignores hints",
			[]string{"10.0.0.1 zone=zone-1 draining", "10.0.0.2 zone=zone-2 draining"}, nil, "10.0.0.1:8080 10.0.0.2:8080"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env := environment()
			if tt.edit != nil {
				tt.edit(env)
			}
			p := portOf(t, planned(service(nil), []*state.Slice{slice("a", tt.endpoints...)}, env), state.IPv4, "shop/web:http")
			equal(t, "Cluster", show(p.Cluster), tt.want)
		})
	}
}

// TestTopologySparesLocal: hints choose among the endpoints of the Cluster pool. They do not empty the Local pool.
func TestTopologySparesLocal(t *testing.T) {
	svc := service(func(s *state.Service) { s.ExternalLocal, s.Ports[0].NodePort = true, 30080 })
	sl := slice("a", "10.0.0.1 @node-a zone=zone-2", "10.0.0.2 zone=zone-1")
	p := portOf(t, planned(svc, []*state.Slice{sl}, environment()), state.IPv4, "shop/web:http")
	equal(t, "Cluster", show(p.Cluster), "10.0.0.2:8080")
	equal(t, "Local", show(p.Local), "10.0.0.1:8080")
	equal(t, "node port", frontendOf(t, p, NodePort).Refusal, serviceport.NoRefusal)
}

// TestZeroWeightTakesNoPartInTopology: hints and missing hints of an endpoint of weight 0 do not count.
func TestZeroWeightTakesNoPartInTopology(t *testing.T) {
	list := []*state.Slice{slice("a", "10.0.0.1 zone=zone-1", "10.0.0.2 zone=zone-2"), weighted(0, slice("b", "10.0.0.3"))}
	p := portOf(t, planned(service(nil), list, environment()), state.IPv4, "shop/web:http")
	equal(t, "Cluster", show(p.Cluster), "10.0.0.1:8080")
}
