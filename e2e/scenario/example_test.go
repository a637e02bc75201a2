package scenario_test

import (
	"fmt"
	"log"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

const example = `
== a node port follows its endpoints
apply
    kind: Service
    metadata: {name: web}
    spec: {type: NodePort, clusterIPs: [$VIP1], ports: [{port: 80, nodePort: 30080}]}
endpoints web a c
probe tcp from x to $NODE:30080 => a c
endpoints web c
probe tcp from x to $NODE:30080 => c source node
`

// A file holds scenarios. Each step has a kind and the form that its verb gives it.
func Example() {
	list, err := scenario.Parse("nodeports.txt", example)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range list {
		fmt.Printf("%s: %s, in %v, %d checks\n", s.File, s.Name, s.Families, s.Probes())
		for i := range s.Steps {
			step := &s.Steps[i]
			fmt.Printf("line %d, check %t: %T\n", step.Line, step.Expects(), step.Do)
		}
	}
	// Output:
	// nodeports: a node port follows its endpoints, in [IPv4 IPv6], 2 checks
	// line 3, check false: *scenario.Apply
	// line 7, check false: *scenario.Endpoints
	// line 8, check true: *scenario.Probe
	// line 9, check false: *scenario.Endpoints
	// line 10, check true: *scenario.Probe
}

// A probe says which client connects to which target, and what it expects.
func ExampleProbe() {
	list, err := scenario.Parse("nodeports.txt", example)
	if err != nil {
		log.Fatal(err)
	}
	probe := list[0].Steps[4].Do.(*scenario.Probe)
	fmt.Println("from", probe.From, "to", probe.To.Name, "port", probe.To.Port)
	fmt.Println("answered by", probe.Backends, "which see the address of the", probe.Source)
	// Output:
	// from x to NODE port 30080
	// answered by [c] which see the address of the node
}

// Objects are complete, and names have become addresses of a family.
func ExampleApply_Objects() {
	list, err := scenario.Parse("nodeports.txt", example)
	if err != nil {
		log.Fatal(err)
	}
	apply := list[0].Steps[0].Do.(*scenario.Apply)
	for _, f := range lab.Families() {
		objects, err := apply.Objects(f)
		if err != nil {
			log.Fatal(err)
		}
		for _, o := range objects {
			spec := o["spec"].(map[string]any)
			fmt.Println(o.Kind(), o.Namespace()+"/"+o.Name(), spec["clusterIP"], spec["ports"])
		}
	}
	// Output:
	// Service default/web 10.96.0.11 [map[nodePort:30080 port:80 protocol:TCP]]
	// Service default/web fd00:10:96::11 [map[nodePort:30080 port:80 protocol:TCP]]
}

// A mistake is reported with its file and line.
func ExampleParse() {
	_, err := scenario.Parse("nodeports.txt", "== two mistakes\nrestart\nprobe tcp from x to $NODE:30080 => a b e\nfly\n")
	fmt.Println(err)
	// Output:
	// nodeports.txt:3: "e" is not an endpoint
	// nodeports.txt:4: no step is called "fly"
}
