package shortform

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Objects are the Service and the EndpointSlices that a balancer stands for.
type Objects struct {
	Service *state.Service
	Slices  []*state.Slice
}

// Name returns the name of the Service.
func (lb *LoadBalancer) Name() state.Name {
	return state.Name{Namespace: cmp.Or(string(lb.Metadata.Namespace), "default"), Name: string(lb.Metadata.Name)}
}

// Objects returns what a balancer without faults stands for. From here on, it is a Service like any other.
func (lb *LoadBalancer) Objects() (Objects, []state.Problem) {
	spec := &lb.Spec
	svc := &state.Service{
		Name:         lb.Name(),
		Short:        true,
		Affinity:     time.Duration(spec.Affinity),
		Balancing:    state.Balancing{Scheduler: spec.Scheduler, Flags: strings.Join(spec.SchedulerFlags, ",")},
		KeepsSources: spec.Masquerade != nil && !*spec.Masquerade,
	}
	if spec.Forwarding != "nat" {
		svc.Balancing.Forwarding = state.Forwarding(spec.Forwarding)
	}
	for _, a := range spec.Addresses {
		svc.LoadBalancerIPs = append(svc.LoadBalancerIPs, a.Addr)
	}
	for _, r := range spec.SourceRanges {
		svc.SourceRanges = append(svc.SourceRanges, r.Prefix)
	}
	for i := range spec.Ports {
		for _, protocol := range spec.Ports[i].protocols() {
			svc.Ports = append(svc.Ports, state.ServicePort{
				Name: spec.portName(&spec.Ports[i]), Protocol: serviceport.ParseProtocol(protocol), Port: spec.Ports[i].Port.First,
				EndPort: spec.Ports[i].Port.Last,
			})
		}
	}
	spec.apply(svc)
	return Objects{Service: svc, Slices: spec.slices(svc.Name)}, spec.problems(svc)
}

// apply sets what Health asks for. Decode has accepted the texts; an empty one is the default.
func (h *Health) apply(svc *state.Service) {
	if h.Check != "" {
		check, _ := state.ParseHealthCheck(string(h.Check))
		svc.Check = &check
	}
	svc.Outliers, _ = state.ParseOutliers(h.OutlierDetection)
	svc.AllDown, _ = state.ParseAllDown(h.OnAllDown)
	svc.OnRemoval, _ = state.ParseOnRemoval(h.OnRemoval)
}

// sliceKey is what the endpoints of one slice have in common.
type sliceKey struct {
	family state.Family
	port   uint16 // of its endpoints; 0: the target ports
	weight uint16
	backup bool
}

// slices groups the endpoints. No EndpointSlice has such a name, so none of a file can be in the way.
func (s *Spec) slices(service state.Name) (list []*state.Slice) {
	at, ports := map[sliceKey]*state.Slice{}, map[uint16][]state.SlicePort{} // shared: there may be thousands of weights, and of ports
	for _, e := range s.Endpoints {
		key := sliceKey{state.FamilyOf(e.Address.Addr), e.Port, state.DefaultWeight, e.Backup}
		if e.Weight != nil {
			key.weight = *e.Weight
		}
		sl := at[key]
		if sl == nil {
			if ports[key.port] == nil {
				ports[key.port] = s.slicePorts(key.port)
			}
			sl = &state.Slice{
				Name:    state.Name{Namespace: service.Namespace, Name: fmt.Sprintf("%s:%d", service.Name, len(list))},
				Service: service, Family: key.family, Weight: key.weight, Backup: key.backup, Ports: ports[key.port],
			}
			at[key], list = sl, append(list, sl)
		}
		sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: e.Address.Addr, Ready: true, Serving: true})
	}
	return list
}

func (s *Spec) slicePorts(own uint16) (list []state.SlicePort) {
	for i := range s.Ports {
		p := &s.Ports[i]
		for _, protocol := range p.protocols() {
			list = append(list, state.SlicePort{
				Name: s.portName(p), Protocol: serviceport.ParseProtocol(protocol), Port: p.target(own),
			})
		}
	}
	return list
}

// problems reports a family that has addresses, but no endpoints, although the other one has.
func (s *Spec) problems(svc *state.Service) []state.Problem {
	f := state.ProblemList{Object: state.Object{Kind: "Service", Name: svc.Name}}
	served := map[state.Family]bool{}
	for _, e := range s.Endpoints {
		served[state.FamilyOf(e.Address.Addr)] = true
	}
	for i, a := range s.Addresses {
		if family := state.FamilyOf(a.Addr); len(served) > 0 && !served[family] {
			f.Add(fmt.Sprintf("spec.addresses[%d]", i), "%s has no %s endpoint: its connections are refused", a, family.Version())
		}
	}
	return f.Problems()
}
