package plan

import (
	"maps"
	"net/netip"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Limits bound what one Service may become. A tenant can write 600 external IPs and 200 ports into one object, which
// would be 120,000 frontends.
type Limits struct {
	Frontends Limit
	// Ranges counts the frontends with a range of ports: one in IPv6 as two, because it takes the kernel twice as long.
	Ranges Limit
	// Elements counts the endpoints of all pools, those in no pool whose UDP flows are kept, and the source ranges of
	// all frontends.
	Elements Limit
	// Slots counts the same, and the slots that nft needs beyond them: for weights, and for hash tables.
	Slots Limit
}

// Slots counts what nft needs for a port beyond one element for each endpoint: slots for weights, and those of each hash
// table. Ports of a Service share tables of the same name.
type Slots func(port *Port) (weights int, tables map[string]int)

// Limit is a number and the flag that sets it. The zero Limit allows everything.
type Limit struct {
	N    int
	Flag string
}

func (l Limit) none() bool { return l.Flag == "" }

// visits times the limit of elements is how often the ports of a Service with many ports look at endpoints before each has to be
// content with an equal share of that. Four times, because not all endpoints that are looked at become elements.
const visits = 4

// members returns how many endpoint addresses are used; less than zero: all.
func (l *Limits) members() int {
	if l.Elements.none() {
		return -1
	}
	return max(1, l.Elements.N)
}

// maxSlices limits how many EndpointSlices of one Service are used. 4,096 full slices have 400,000 endpoints.
const maxSlices = 4096

// byTrust lists the kinds of frontends in the order in which they get room: what the API server allocates or checks,
// then what a controller writes, then what a user writes.
var byTrust = [...]FrontendKind{ClusterIP, NodePort, LoadBalancer, ExternalIP}

// room is what is left of the Limits while a Service is planned.
type room struct {
	limits    Limits
	frontends [NodePort + 1]int // by kind
	ranges    [NodePort + 1]int // of these, with a range of ports
	elements  int
	visits    int // how often ports may still look at endpoints
	share     int // how often each port may, whatever the others do
	ports     int // service ports that are still to be planned; each keeps room for one element
	used      Usage
	cut       Usage          // what had no room; each range once
	plain     []string       // the ports without weights and hash tables
	narrow    bool           // the limit of slots is the reason for some of them
	tables    map[string]int // hash tables that were counted, with their slots
}

// open shares the room for frontends among the kinds.
func (r *room) open(limits Limits, svc *state.Service, families int) {
	*r = room{limits: limits, elements: limits.Elements.N, ports: len(svc.Ports) * families, visits: visits * limits.Elements.N}
	r.share = max(1, r.visits/max(1, r.ports))
	nodePorts, ranges := 0, 0
	for i := range svc.Ports {
		switch p := &svc.Ports[i]; {
		case p.EndPort != 0:
			ranges++
		case p.NodePort != 0:
			nodePorts++
		}
	}
	r.frontends = limits.Frontends.share([...]int{
		ClusterIP: len(svc.ClusterIPs) * len(svc.Ports), ExternalIP: len(svc.ExternalIPs) * len(svc.Ports),
		LoadBalancer: len(svc.LoadBalancerIPs) * len(svc.Ports), NodePort: nodePorts * families,
	})
	if ranges > 0 {
		r.ranges = limits.Ranges.share([...]int{
			ClusterIP: rangeCosts(svc.ClusterIPs) * ranges, ExternalIP: rangeCosts(svc.ExternalIPs) * ranges,
			LoadBalancer: rangeCosts(svc.LoadBalancerIPs) * ranges, NodePort: 0,
		})
	}
}

// rangeCosts returns what a range of ports at each of the addresses counts.
func rangeCosts(addrs []netip.Addr) (n int) {
	for _, a := range addrs {
		n += rangeCost(state.FamilyOf(a))
	}
	return n
}

// rangeCost returns what a frontend with a range of ports counts.
func rangeCost(f state.Family) int {
	if f == state.IPv6 {
		return 2
	}
	return 1
}

// share gives the kinds as much of what they want as the limit allows.
func (l Limit) share(wanted [NodePort + 1]int) [NodePort + 1]int {
	for _, kind := range byTrust {
		if !l.none() {
			wanted[kind] = min(wanted[kind], l.N)
			l.N -= wanted[kind]
		}
	}
	return wanted
}

// atMost bounds a number of frontends or ports by the limit, to make room for them.
func (r *room) atMost(n int) int {
	if r.limits.Frontends.none() {
		return n
	}
	return min(n, r.limits.Frontends.N)
}

// take takes room for n frontends of a kind. It returns for how many there is room. ranged is what each counts as one with a
// range of ports; 0: they have none.
func (r *room) take(kind FrontendKind, n, ranged int) (allowed int) {
	allowed = min(n, r.frontends[kind])
	r.cut.Frontends += n - allowed
	if ranged > 0 {
		fit := min(allowed, r.ranges[kind]/ranged)
		r.ranges[kind] -= fit * ranged
		r.used.Ranges += fit * ranged
		r.cut.Ranges += allowed - fit
		allowed = fit
	}
	r.frontends[kind] -= allowed
	r.used.Frontends += allowed
	return allowed
}

// element takes room for n endpoints. It returns for how many there is room: at least one, so that each port works.
func (r *room) element(n int) (allowed int) {
	allowed = n
	if !r.limits.Elements.none() {
		allowed = min(n, max(r.elements-r.ports, 1))
	}
	r.elements -= allowed
	r.used.Elements += allowed
	r.cut.Elements += n - allowed
	return allowed
}

// look takes room for a port to look at n endpoints. It returns for how many there is room.
func (r *room) look(n int) (allowed int) {
	if r.limits.Elements.none() {
		return n
	}
	allowed = min(n, max(r.visits, r.share))
	r.visits -= allowed
	r.cut.Elements += n - allowed
	return allowed
}

// sources takes room for n source ranges, all or none: a frontend without some of its ranges would refuse clients.
func (r *room) sources(n int) bool {
	if !r.limits.Elements.none() && n > max(r.elements-r.ports, 0) {
		r.cut.Elements += n
		return false
	}
	r.elements -= n
	r.used.Elements += n
	return true
}

// slots takes room for the slots of a port, all or none. Weights count as endpoints do, so that the elements of one
// Service stay within its own limit. Hash tables have a limit of their own there (package dataplane).
func (r *room) slots(port *Port, count Slots) {
	if count == nil {
		return
	}
	weights, tables := count(port)
	n := weights
	for name, slots := range tables {
		if _, counted := r.tables[name]; !counted {
			n += slots
		}
	}
	switch {
	case !r.limits.Slots.none() && n > 0 && r.used.Elements+n > r.limits.Slots.N-r.ports:
		r.narrow = true
	case r.limits.Elements.none() || weights == 0 || weights <= r.elements-r.ports:
		r.elements -= weights
		r.used.Elements += n
		if r.tables == nil && len(tables) > 0 {
			r.tables = map[string]int{}
		}
		maps.Copy(r.tables, tables)
		return
	}
	port.Plain = true
	r.plain = append(r.plain, port.Name)
}

// report adds Problems for what had no room.
func (r *room) report(out *Service, slices int) {
	out.Used, out.Cut, out.Narrow = r.used, r.cut != Usage{}, r.narrow
	if n := r.cut.Frontends; n > 0 {
		out.report("spec.ports", "%d of %d frontends (addresses x ports) have no room (%s) and are not served: external IPs "+
			"first, then load balancer IPs, node ports and cluster IPs", n, n+r.used.Frontends, r.limits.Frontends.Flag)
	}
	if n := r.cut.Ranges; n > 0 {
		out.report("spec.ports", "%d frontends with port ranges have no room (%s, one in IPv6 counts twice) and are not served: older "+
			"Services have room first, and of one Service cluster IPs, then load balancer IPs and external IPs", n, r.limits.Ranges.Flag)
	}
	if n := r.cut.Elements; n > 0 {
		out.report("spec.ports", "%d of %d endpoints and source ranges have no room (%s) and are not used",
			n, n+r.used.Elements, r.limits.Elements.Flag)
	}
	if n := len(r.plain); n > 0 {
		flag := r.limits.Elements.Flag
		if r.narrow {
			flag = r.limits.Slots.Flag
		}
		out.report("metadata.annotations", "slots for weights or hashing have no room (%s) at %d service ports, the first is %s: nft "+
			"picks their endpoints at random, all alike", flag, n, r.plain[0])
	}
	if slices > maxSlices {
		out.report("metadata.name", "the Service has %d EndpointSlices: the first %d by name are used", slices, maxSlices)
	}
}
