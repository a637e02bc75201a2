package kernelmetrics

import (
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
)

// ports add up what the kernel counted, by service port. The kernel's counter of a frontend starts again when the
// element is replaced, and a service port has several frontends. Their plain sum could fall by a part, and Prometheus
// would take the rest for new connections.
type ports struct {
	latest map[inspect.Traffic]uint64 // the kernel's counters at the latest reading, by frontend
	totals map[port]uint64
}

// port is a service port, and what was counted: "" for connections, or why packets were refused.
type port struct {
	family       program.Family
	name, reason string
}

// add takes a reading over. It forgets frontends and service ports that are gone.
func (p *ports) add(list []inspect.Traffic) {
	latest, totals := make(map[inspect.Traffic]uint64, len(list)), make(map[port]uint64, len(p.totals))
	for i := range list {
		t := &list[i]
		fe := *t
		if fe.Packets = 0; t.Set == virtualServer {
			fe.Name = "" // its counter goes on when it becomes that of another service port
		}
		of := port{family: t.Family, name: t.Name, reason: reason(t.Set)}
		if _, again := latest[fe]; again {
			continue // the kernel repeats elements while it resizes a set
		}
		latest[fe] = t.Packets
		if of.name == "" && t.Set == virtualServer {
			continue
		}
		if _, ok := totals[of]; !ok {
			totals[of] = p.totals[of]
		}
		more := t.Packets
		if before := p.latest[fe]; before <= t.Packets {
			more -= before
		}
		totals[of] += more
	}
	p.latest, p.totals = latest, totals
}

// reason says why the packets that a set counts were refused; "": they were not.
func reason(set string) string {
	switch inspect.RefusalOf(set) {
	case program.Reject:
		return "no_endpoints"
	case program.Drop:
		return "no_local_endpoints"
	}
	return ""
}

// virtualServer stands for the set of a frontend in what virtual servers count.
const virtualServer = "virtual server"

// byIPVS reports whether IPVS serves a frontend.
func byIPVS(t inspect.Traffic) bool {
	return t.Set == program.IPVSFrontends.Name() || t.Set == program.IPVSNodePorts.Name()
}

// byVirtualServers returns how many connections each virtual server has balanced, with the service port that the rules
// name for it. A virtual server that drains has none. That of a node port has an address of the node.
func byVirtualServers(servers []ipvsctl.Status, list []inspect.Traffic) []inspect.Traffic {
	names := map[inspect.Traffic]string{} // by place
	for _, t := range list {
		if byIPVS(t) {
			names[inspect.Traffic{Family: t.Family, Addr: t.Addr, Protocol: t.Protocol, Port: t.Port}] = t.Name
		}
	}
	out := make([]inspect.Traffic, len(servers))
	for i := range servers {
		v := &servers[i]
		at := inspect.Traffic{Family: program.FamilyOf(v.Addr), Addr: v.Addr, Protocol: uint8(v.Protocol), Port: v.Port}
		name, ok := names[at]
		if !ok {
			atNodePort := at
			atNodePort.Addr = netip.Addr{}
			name = names[atNodePort]
		}
		at.Set, at.Name, at.Packets = virtualServer, name, v.Connections
		out[i] = at
	}
	return out
}

// connections shows what service ports have, and reports whether it could.
func (c *Collector) connections(s *scrape, now time.Time) bool {
	if c.options.Most == 0 {
		return false
	}
	list, err := c.options.Traffic(within)
	if err != nil {
		c.failed("connections", now, err)
		return false
	}
	balanced := byVirtualServers(c.virtual, list)
	c.ports.add(append(slices.DeleteFunc(list, byIPVS), balanced...))
	for of, n := range c.ports.totals {
		namespace, service, name := splitName(of.name)
		if of.reason == "" {
			s.counter(connectionsDesc, float64(n), familyLabel(of.family), namespace, service, name)
		} else {
			s.counter(refusedDesc, float64(n), familyLabel(of.family), namespace, service, name, of.reason)
		}
	}
	return true
}
