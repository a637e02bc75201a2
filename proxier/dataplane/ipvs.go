package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Balancer is the IPVS engine. ipvsctl.Engine documents the methods.
type Balancer interface {
	Set(name string, servers []ipvsctl.VirtualServer) error
	Delete(name string)
	Obstacle(servers []ipvsctl.VirtualServer) error
	Coming() []netip.Addr
	Add(now time.Time) (ipvsctl.Result, error)
	Remove(now time.Time) (ipvsctl.Result, error)
	Tick(now time.Time) (ipvsctl.Result, error)
	Intact(repair bool) (bool, error)
}

// ipvsPorts remembers which service ports IPVS has. nft serves a port that IPVS cannot serve, and IPVS is tried again later.
// Ports are named by ipvsName.
type ipvsPorts struct {
	Balancer
	services map[string]state.Name // the ports that IPVS serves or should serve, with their Services
	refused  map[string]backoff    // the ports that IPVS does not serve though it should
	retrying map[string]backoff    // the ports that the next Add offers to the kernel again: what the kernel said last time
	replan   map[state.Name]bool   // the Services that the next Tick has planned again
	looked   time.Time             // when due last looked at the refused ports
}

// backoff is why IPVS does not serve a service port, and for how long it is not tried again.
type backoff struct {
	reason string
	// The rest is set for what the kernel refused. Other obstacles are looked at every obstaclePeriod.
	since   time.Time
	wait    time.Duration
	servers []ipvsctl.VirtualServer // as they were refused; nil: not known yet
}

func (b *backoff) over(now time.Time) bool { return !now.Before(b.since.Add(b.wait)) }

func newIPVS(b Balancer) *ipvsPorts {
	if b == nil {
		return nil
	}
	return &ipvsPorts{
		Balancer: b, services: map[string]state.Name{}, refused: map[string]backoff{}, retrying: map[string]backoff{},
		replan: map[state.Name]bool{},
	}
}

// untilNextTick is the reason why nft serves a port while IPVS gives up its virtual servers with the old scheduler.
const untilNextTick = "the scheduler changes"

// offer hands virtual servers to IPVS. It returns the reason when IPVS cannot serve them now.
func (i *ipvsPorts) offer(name state.Name, key string, servers []ipvsctl.VirtualServer) (reason string) {
	if reason := i.waiting(key, servers); reason != "" {
		return reason
	}
	switch err := i.Obstacle(servers); {
	case errors.Is(err, ipvsctl.ErrReschedules):
		i.replan[name] = true
		return untilNextTick
	case err != nil:
		i.refused[key] = backoff{reason: explain(err)}
		return explain(err)
	}
	if err := i.Set(key, servers); err != nil {
		return err.Error()
	}
	return ""
}

// explain names the flag that excludes an address.
func explain(err error) string {
	if errors.Is(err, ipvsctl.ErrExcluded) {
		return err.Error() + " (--ipvs-exclude-cidrs)"
	}
	return err.Error()
}

// waiting returns the reason why a port is not tried now. A port that changed since the kernel refused it starts with a
// short backoff again.
func (i *ipvsPorts) waiting(key string, servers []ipvsctl.VirtualServer) string {
	b, ok := i.refused[key]
	if !ok {
		return ""
	}
	if b.servers == nil { // the first time that the port is planned since
		b.servers = servers
	}
	same := slices.EqualFunc(b.servers, servers, func(a, b ipvsctl.VirtualServer) bool { return reflect.DeepEqual(a, b) })
	if !same {
		b.wait = min(b.wait, firstBackoff)
	}
	i.refused[key] = b
	if !b.over(time.Now()) {
		return b.reason
	}
	delete(i.refused, key)
	if same {
		i.retrying[key] = b
	}
	return ""
}

// refuse notes that the kernel did not take a port, and returns what happens next.
func (i *ipvsPorts) refuse(f *ipvsctl.Failure, now time.Time) (next string) {
	last := i.retrying[f.Name]
	wait := longer(last.wait)
	i.refused[f.Name] = backoff{reason: f.Err.Error(), since: now, wait: wait, servers: last.servers}
	return fmt.Sprintf("nft serves the port; IPVS is tried again after %s", wait)
}

// forget gives up a port. IPVS drains it after the next nft transaction.
func (i *ipvsPorts) forget(id contents.PortID) {
	if i == nil || len(i.services) == 0 {
		return
	}
	key := ipvsName(id)
	i.Delete(key)
	delete(i.services, key)
	delete(i.refused, key)
}

// everyone lists all Services with a port that IPVS serves or should serve.
func (i *ipvsPorts) everyone() []state.Name {
	names := map[state.Name]bool{}
	for _, name := range i.services {
		names[name] = true
	}
	return slices.Collect(maps.Keys(names))
}

// due lists the Services to plan again now: those whose scheduler changes, and those whose refused ports are to be
// offered to IPVS again.
func (i *ipvsPorts) due(now time.Time) []state.Name {
	if len(i.refused) > 0 && now.Sub(i.looked) >= obstaclePeriod {
		i.looked = now
		for key, b := range i.refused {
			if b.over(now) {
				i.replan[i.services[key]] = true
			}
		}
	}
	names := slices.Collect(maps.Keys(i.replan))
	clear(i.replan)
	return names
}

// IPVS serves only addresses that are local. Where an address is local, this node can no longer reach the host that has
// it: if that host is an API server, Verdict does not even hear that the Service is gone. Users write any address into
// spec.externalIPs, and controllers such as servicelb of k3s write the addresses of nodes into the status of load
// balancers. So IPVS serves these addresses only where the operator allows it, and nft serves them elsewhere: nft takes
// the ports of the Service and no others.
//
// The rule needs no list of all nodes: addresses of other nodes are outside of --ipvs-external-cidrs.

// outside returns why IPVS must not serve a frontend. It returns "" if IPVS may.
func (e *Environment) outside(f *plan.Frontend) string {
	external := f.Kind == plan.ExternalIP
	switch {
	case !external && f.Kind != plan.LoadBalancer:
		return ""
	case contains(e.APIServers, f.Addr):
		return "is an address of an API server"
	case contains(e.NodeAddresses, f.Addr) || external && e.hasAddress(f.Addr):
		return "is an address of this node"
	case !slices.ContainsFunc(e.ExternalCIDRs, func(r netip.Prefix) bool { return r.Contains(f.Addr) }):
		return "is outside --ipvs-external-cidrs"
	}
	return ""
}

// divide notes in each frontend of a port whether IPVS serves it. With externalTrafficPolicy Local, one engine serves
// all addresses for clients outside: if nft serves one of them, it has the local pool, and would then take the packets
// to all of them.
func (e *Environment) divide(p *plan.Port) {
	localPool := false
	for i := range p.Frontends {
		f := &p.Frontends[i]
		f.IPVS = e.outside(f) == ""
		localPool = localPool || !f.IPVS && f.Pool == serviceport.BySource
	}
	for i := range p.Frontends {
		if f := &p.Frontends[i]; localPool && f.Pool == serviceport.BySource {
			f.IPVS = false
		}
	}
}

// keptOut collects Problems of frontends that nft serves although IPVS serves their ports. All ports of a Service have
// the same addresses, so each address is reported once.
type keptOut struct {
	list state.ProblemList
	seen map[netip.Addr]bool
}

func (k *keptOut) note(p *plan.Port, e *Environment) {
	for i := range p.Frontends {
		f := &p.Frontends[i]
		if f.IPVS || k.seen[f.Addr] {
			continue
		}
		if k.seen == nil {
			k.seen = map[netip.Addr]bool{}
		}
		k.seen[f.Addr] = true
		how := "by the nearest scheduler that it has"
		if p.Balancing.Forwarding != state.NAT {
			how += ", and with NAT"
		}
		k.list.Add(f.Kind.Field(), "%s %s; nft serves it, %s", nameOf(f), e.why(f), how)
	}
}

func (e *Environment) why(f *plan.Frontend) string {
	if reason := e.outside(f); reason != "" {
		return reason + ", so IPVS must not make it local"
	}
	return "has the same engine as the other addresses for clients outside (externalTrafficPolicy Local)"
}

// nameOf names a frontend without its port.
func nameOf(f *plan.Frontend) string {
	if !f.Addr.IsValid() {
		return "the node port"
	}
	if f.Kind == plan.LoadBalancer {
		return "load balancer IP " + f.Addr.String()
	}
	return f.Kind.String() + " " + f.Addr.String()
}
