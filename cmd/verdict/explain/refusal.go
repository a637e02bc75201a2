package explain

import (
	"fmt"
	"net/netip"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// untranslated follows a packet that no pool takes through the filter chains.
func (x *explainer) untranslated() error {
	way, err := x.Route(x.packet.Dst)
	if err != nil {
		return err
	}
	hooks := x.hooksAfter(way)
	if x.unforwarded(way) {
		return nil
	}
	for _, hook := range hooks {
		p, err := x.walk(hook, "filter", x.packet)
		if err != nil {
			return err
		}
		if done, err := x.filtered(p); done || err != nil {
			return err
		}
		if l, ok := found(p, program.Balanced); ok {
			return x.balanced(l, hooks)
		}
	}
	if l, ok, err := x.nodePortByIPVS(); ok || err != nil {
		if err != nil {
			return err
		}
		return x.balanced(l, hooks)
	}
	if x.Service == "" {
		if err := x.noFrontend(); err != nil {
			return err
		}
	}
	return x.passes(way, hooks)
}

// filtered says what refuses or drops the packet, if anything does.
func (x *explainer) filtered(p inspect.Passage) (bool, error) {
	if x.droppedByPolicy(p) {
		return true, nil
	}
	outcome, how := Refused, "an ICMP error (port unreachable)"
	switch p.Fate {
	case inspect.Reset:
		how = "a TCP reset"
	case inspect.Unreachable:
	case inspect.Dropped:
		outcome, how = Dropped, "no answer"
	default:
		return false, nil
	}
	evidence := x.rules(p)
	if l, ok := found(p, program.Rejected, program.Dropped); ok {
		x.belongs(l)
		why, draining := "no endpoint is ready", false
		if outcome == Dropped {
			why, draining = x.dropping()
		}
		x.add("refusal", fmt.Sprintf("%s has no endpoint for this client: %s. The client gets %s.", l.Label, why, how), evidence...)
		if !draining {
			x.leftOut(&inspect.Pick{Local: outcome == Dropped})
		}
		x.end(outcome, why)
		return true, nil
	}
	return true, x.filteredAddress(p, outcome, how, evidence)
}

// dropping says why a frontend drops connections. A node that drains has the same rules, and keeps them when its daemon has ended.
func (x *explainer) dropping() (why string, draining bool) {
	why = "the traffic policy Local leaves no endpoint on this node"
	draining, err := x.Draining()
	switch {
	case draining:
		why = "this node drains (verdict drain), so only open connections go on"
	case err != nil:
		why += ", or the node has drained and its daemon does not run"
	}
	return why, draining
}

// filteredAddress is for addresses of Services without a frontend for the packet.
func (x *explainer) filteredAddress(p inspect.Passage, outcome Outcome, how string, evidence []string) error {
	if err := x.noFrontend(); err != nil {
		return err
	}
	why := "no Service port uses this port of a cluster IP"
	l, ok := foundIn(p, program.IPVSAddresses)
	own, inRange := foundIn(p, program.ServiceCIDRs)
	external, isExternal := foundIn(p, program.ExternalIPs)
	switch {
	case ok:
		why = "only frontends answer at an address that IPVS serves"
	case outcome == Dropped:
		l, why = own, "the address is in a range of Services (a ServiceCIDR, or --load-balancer-cidrs) and belongs to no Service"
	case inRange:
		l, why = external, "no Service port uses this port of an external or load balancer IP, whose range belongs to Services alone"
	case isExternal:
		l, why = external, "no Service port uses this port of an external or load balancer IP, and the packet would leave by "+
			x.packet.Interface+", by which it came: it would circle between this node and its router"
	default:
		l, _ = foundIn(p, program.ClusterIPs)
	}
	x.add("refusal", fmt.Sprintf("The client gets %s, because %s.", how, why), append(evidence, x.element(l))...)
	x.end(outcome, why)
	return nil
}

// passes says where a packet goes that Verdict leaves alone.
func (x *explainer) passes(way route, hooks []string) error {
	where := "The node forwards it by " + way.link + "."
	switch {
	case way.local:
		where = "It is for this node itself: a program that listens there gets it."
	case way.refused:
		where = "This node has no route to it: the client gets an ICMP error."
	case x.packet.Local:
		where = "It leaves by " + way.link + "."
	}
	x.add("routing", where)
	x.end(Passed, "")
	x.stoppedByOthers(append(hooks, "postrouting"))
	return nil
}

// balanced follows a packet to its virtual server.
func (x *explainer) balanced(l inspect.Look, hooks []string) error {
	x.belongs(l)
	server, ok, err := x.Server(ipvsctl.Key{
		Addr: x.packet.Dst, Port: x.packet.DstPort, Protocol: ipvsctl.Protocol(x.packet.Protocol),
	})
	if err != nil {
		return err
	}
	if !ok {
		x.add("IPVS", fmt.Sprintf("IPVS should serve %s, but it has no virtual server for it.", x.at()))
		x.end(Passed, "IPVS has no virtual server")
		return nil
	}
	evidence := []string{fmt.Sprintf("ipvsadm -A %s -s %s %s", x.at(), server.Scheduler, server.FlagText())}
	var takes []netip.AddrPort
	full := 0
	for _, r := range server.RealServers {
		line := fmt.Sprintf("-> %s weight %d, %d active, %d inactive", r.Addr, r.Weight, r.Active, r.Inactive)
		switch {
		case r.Full():
			line += fmt.Sprintf(", full: it may have %s", state.Plural(r.Limit, "connection"))
			full++
		case r.Weight > 0:
			takes = append(takes, r.Addr)
		}
		evidence = append(evidence, line)
	}
	x.add("IPVS", fmt.Sprintf("IPVS serves it: scheduler %s, %s with a weight above 0%s.",
		server.Scheduler, state.Plural(len(takes), "real server"), besidesFull(full)), evidence...)
	if len(takes) == 0 {
		x.end(Dropped, "no real server has a weight above 0"+besidesFull(full))
		return nil
	}
	x.Verdict.Outcome, x.Verdict.Endpoints = Served, takes
	if x.stoppedByOthers(append(hooks, "postrouting")) {
		return nil
	}
	if err := x.fastPath(hooks, route{}); err != nil {
		return err
	}
	return x.masquerading(takes, true)
}

// besidesFull mentions real servers that have as many connections as they may have.
func besidesFull(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (besides %s, full)", state.Plural(n, "real server"))
}
