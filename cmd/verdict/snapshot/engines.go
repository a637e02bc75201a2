package snapshot

import (
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
)

// join puts both engines into one table. The nft tables contain the Service port of each virtual server. With a filter,
// they also decide which virtual servers are listed.
func join(rules *inspect.Listing, servers []ipvsctl.Status, filtered bool) *Table {
	t := &Table{NodePortAddresses: append([]netip.Addr{}, rules.NodePortAddresses...), Frontends: []Frontend{}}
	left := map[ipvsctl.Key]ipvsctl.Status{}
	for _, s := range servers {
		left[s.Key] = s
	}
	take := func(k ipvsctl.Key) (ipvsctl.Status, bool, error) {
		s, ok := left[k]
		delete(left, k)
		return s, ok, nil
	}
	for i := range rules.Frontends {
		_ = t.add(&rules.Frontends[i], take) // take returns no error
	}
	for _, s := range left {
		if !filtered {
			t.Frontends = append(t.Frontends, fromIPVS(&s, nil))
		}
	}
	return t
}

// add adds what both engines have of a frontend.
func (t *Table) add(fe *inspect.FrontendStatus, find func(ipvsctl.Key) (ipvsctl.Status, bool, error)) error {
	if fe.Pool != program.NoPool || fe.Refusal != program.NoRefusal {
		t.Frontends = append(t.Frontends, fromRules(fe))
	}
	if !fe.IPVS {
		return nil
	}
	missing := describe(fe)
	missing.Engine, missing.Missing = IPVS, true
	for _, a := range t.addresses(&missing) {
		s, ok, err := find(ipvsctl.Key{Addr: a, Port: fe.Port, Protocol: ipvsctl.Protocol(fe.Protocol)})
		if err != nil {
			return err
		}
		if ok {
			t.Frontends = append(t.Frontends, fromIPVS(&s, fe))
			missing.Missing = false
		}
	}
	if missing.Missing {
		t.Frontends = append(t.Frontends, missing)
	}
	return nil
}

// describe fills in the fields that do not depend on the engine.
func describe(fe *inspect.FrontendStatus) Frontend {
	return Frontend{
		Service: fe.Name, Protocol: protocolName(fe.Protocol), Family: fe.Family.Version(), Address: fe.Addr, Port: fe.Port, LastPort: fe.LastPort,
		NodePort: !fe.Addr.IsValid(), SourceRanges: fe.Firewalled, Endpoints: []Endpoint{},
	}
}

func fromRules(fe *inspect.FrontendStatus) Frontend {
	out := describe(fe)
	out.Engine = NFT
	out.Connections, out.Refused = fe.Connections, fe.Refused
	out.InsideOnly = fe.IPVS && fe.Pool == program.BySource
	out.Local = fe.Pool == program.LocalPool || fe.Pool == program.BySource && !out.InsideOnly
	out.AffinitySeconds = int64(fe.Affinity / time.Second)
	switch fe.Refusal {
	case program.Reject:
		out.Refusal = "rejected"
	case program.Drop:
		out.Refusal = "dropped"
	}
	out.OutsideOnly = out.Refusal != "" && fe.Pool == program.BySource
	if len(fe.Cluster)+len(fe.Local) > 0 {
		out.Scheduler, out.SchedulerFlags = dataplane.SchedulerOf(fe.Method)
	}
	switch {
	case fe.Pool == program.ClusterPool || out.InsideOnly:
		out.add(fe.Cluster, func(e *Endpoint, n int) { e.Weight = n })
	case fe.Pool == program.LocalPool:
		out.add(fe.Local, func(e *Endpoint, n int) { e.Weight = n })
	case fe.Pool == program.BySource:
		out.add(fe.Local, func(e *Endpoint, n int) { e.Weight = n })
		out.add(fe.Cluster, func(e *Endpoint, n int) { e.InsideWeight = &n })
		for i := range out.Endpoints {
			if e := &out.Endpoints[i]; e.InsideWeight == nil {
				e.InsideWeight = new(int)
			}
		}
	}
	return out
}

// add puts the endpoints of a pool in, each once.
func (fe *Frontend) add(pool []inspect.EndpointStatus, weigh func(*Endpoint, int)) {
	for _, e := range pool {
		weigh(fe.endpoint(e.Addr), e.Slots)
	}
}

// fromIPVS describes a virtual server. fe is the frontend in the nft tables, or nil if they do not have it.
func fromIPVS(s *ipvsctl.Status, fe *inspect.FrontendStatus) Frontend {
	var out Frontend
	if fe != nil {
		out = describe(fe)
		// Pods and the node use the nft pool instead: because the others get only endpoints here, or because they get
		// endpoints without NAT.
		out.Local = fe.Pool == program.BySource && !s.WithoutNAT()
	}
	out.Protocol, out.Family = protocolName(uint8(s.Protocol)), program.FamilyOf(s.Addr).Version()
	out.Address, out.Port, out.Connections = s.Addr, s.Port, s.Connections
	out.Engine, out.Scheduler, out.SchedulerFlags = IPVS, s.Scheduler, s.FlagText()
	out.AffinitySeconds = int64(s.Persistence)
	out.Endpoints = make([]Endpoint, len(s.RealServers))
	for i, r := range s.RealServers {
		out.Endpoints[i] = Endpoint{
			Address: r.Addr.Addr(), Port: r.Addr.Port(), Weight: int(r.Weight), Options: r.Options(), Active: &r.Active, Inactive: &r.Inactive,
		}
	}
	return out
}
