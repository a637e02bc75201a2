package plan_test

import (
	"fmt"
	"net/netip"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// A Service and its EndpointSlice go in, the plan of each port comes out. The Service has externalTrafficPolicy Local,
// so its node port uses the Local pool for clients outside the cluster, and its cluster IP uses all endpoints.
func ExamplePlanner_Plan() {
	web := state.Name{Namespace: "shop", Name: "web"}
	svc := &state.Service{
		Name:          web,
		ClusterIPs:    []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Ports:         []state.ServicePort{{Name: "http", Protocol: state.TCP, Port: 80, NodePort: 30080}},
		ExternalLocal: true,
	}
	slice := &state.Slice{
		Name:    state.Name{Namespace: "shop", Name: "web-x7k2p"},
		Service: web,
		Family:  state.IPv4,
		Ports:   []state.SlicePort{{Name: "http", Protocol: state.TCP, Port: 8080}},
		Endpoints: []state.Endpoint{
			{Addr: netip.MustParseAddr("10.0.1.1"), Ready: true, Serving: true, Node: "node-a"},
			{Addr: netip.MustParseAddr("10.0.2.1"), Ready: true, Serving: true, Node: "node-b"},
		},
		Weight: state.DefaultWeight,
	}
	env := &plan.Environment{NodeName: "node-a", IPv4: true, IPv6: true}

	var planner plan.Planner
	for _, port := range planner.Plan(svc, []*state.Slice{slice}, env).Ports {
		fmt.Println(port.Name, port.Protocol)
		for _, endpoint := range port.Cluster {
			fmt.Println("  cluster pool:", endpoint.Addr)
		}
		for _, endpoint := range port.Local {
			fmt.Println("  local pool:", endpoint.Addr)
		}
		for _, frontend := range port.Frontends {
			fmt.Println(" ", frontend.Kind, "on port", frontend.Port, "decides by source:", frontend.Pool == serviceport.BySource)
		}
	}
	// Output:
	// shop/web:http tcp
	//   cluster pool: 10.0.1.1:8080
	//   cluster pool: 10.0.2.1:8080
	//   local pool: 10.0.1.1:8080
	//   cluster IP on port 80 decides by source: false
	//   node port on port 30080 decides by source: true
}
