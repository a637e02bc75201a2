package shortform

// APIVersion and Kind mark a document in the short form.
const (
	APIVersion = "verdict-proxy.github.io/v1alpha1"
	Kind       = "LoadBalancer"
)

// LoadBalancer is a balancer in the short form. The tags of these types are the only place that says which fields and
// values there are: Decode, Schema and the table of config/README.md follow from them.
//
//	yaml     the name; "omitempty": the field may be missing
//	doc      what it means
//	default  what holds if it is missing
//	enum     the values that a text may have, with | between them
//	min      the smallest number or the fewest values of a list
type LoadBalancer struct {
	APIVersion string   `yaml:"apiVersion" enum:"verdict-proxy.github.io/v1alpha1" doc:"the version of this format"`
	Kind       string   `yaml:"kind" enum:"LoadBalancer" doc:"the kind of this object"`
	Metadata   Metadata `yaml:"metadata" doc:"the name"`
	Spec       Spec     `yaml:"spec" doc:"what clients connect to, and who serves them"`
}

// Metadata names a balancer.
type Metadata struct {
	Name      Label `yaml:"name" doc:"the name in logs, metrics and verdict list; no other LoadBalancer or Service of the namespace has it"`
	Namespace Label `yaml:"namespace,omitempty" default:"default" doc:"a group of balancers, with limits of its own"`
}

// Spec says what a balancer does.
type Spec struct {
	Addresses    []Address  `yaml:"addresses,flow" min:"1" doc:"the virtual addresses, IPv4 and IPv6"`
	Ports        []Port     `yaml:"ports" min:"1" doc:"the ports of each address"`
	Endpoints    []Endpoint `yaml:"endpoints,omitempty" doc:"who serves the connections; without endpoints, they are refused"`
	Balancing    `yaml:",inline"`
	Health       `yaml:",inline"`
	SourceRanges []Prefix   `yaml:"sourceRanges,omitempty,flow" doc:"CIDRs of clients that may connect; a family without a range is closed if the other one has a range" default:"all clients"`
	Masquerade   *bool      `yaml:"masquerade,omitempty" default:"true" doc:"endpoints see an address of this machine; false: they see the client's, and must send replies through this machine"`
	Forwarding   Forwarding `yaml:"forwarding,omitempty" default:"nat" doc:"how packets reach the endpoints: nat, route or tunnel, as the annotation forwarding has it"`
}

// Balancing says which endpoint gets a connection.
type Balancing struct {
	Scheduler      string   `yaml:"scheduler,omitempty" enum:"random|rr|wrr|lc|wlc|sed|nq|sh|mh|dh|lblc|lblcr|fo|ovf|twos" default:"random" doc:"how an endpoint is picked (see Schedulers)"`
	SchedulerFlags []string `yaml:"schedulerFlags,omitempty,flow" enum:"sh-port|mh-port|sh-fallback|mh-fallback" doc:"sh-port, mh-port: hash the client's port together with its address"`
	Affinity       Duration `yaml:"affinity,omitempty" default:"none" doc:"how long a client that returns gets the same endpoint, in whole seconds from 1s to 24h"`
}

// Health says which endpoints are good, and what happens if one is not.
type Health struct {
	Check            Check  `yaml:"check,omitempty" default:"the flag --health-check" doc:"how this machine asks the endpoints whether they serve (see active checks)"`
	OutlierDetection string `yaml:"outlierDetection,omitempty" enum:"off|observe|eject|off,refusals|observe,refusals|eject,refusals|refusals" default:"the flag --outlier-detection" doc:"what happens to endpoints that do not answer"`
	OnAllDown        string `yaml:"onAllDown,omitempty" enum:"keep|reject|backup" default:"keep" doc:"who gets connections while no endpoint is good: all, nobody, or the backups"`
	OnRemoval        string `yaml:"onRemoval,omitempty" enum:"keep|reset" default:"keep" doc:"what happens to open TCP connections of an endpoint that fails or is removed"`
}

// Port is a port of each address.
type Port struct {
	Name       Label    `yaml:"name,omitempty" default:"port- and the number; none for the only port" doc:"the name in logs, metrics and verdict list"`
	Port       Ports    `yaml:"port" doc:"the port to which clients connect, 1 to 65535, or a range such as 8000-8999, which keeps its ports"`
	TargetPort uint16   `yaml:"targetPort,omitempty" min:"1" default:"the same port" doc:"the port of the endpoints, 1 to 65535"`
	Protocols  []string `yaml:"protocols,omitempty,flow" min:"1" enum:"TCP|UDP|SCTP" default:"[TCP]" doc:"the protocols of the port"`
}

// Endpoint is one that serves connections.
type Endpoint struct {
	Address Address `yaml:"address" doc:"its address, of the family of one of the virtual addresses"`
	Port    uint16  `yaml:"port,omitempty" min:"1" default:"targetPort" doc:"its own port, 1 to 65535; only if there is one port"`
	Weight  *uint16 `yaml:"weight,omitempty" default:"1" doc:"its share of new connections, 0 to 65535; 0: no new connections"`
	Backup  bool    `yaml:"backup,omitempty" default:"false" doc:"it gets connections only while no other endpoint is good"`
}
