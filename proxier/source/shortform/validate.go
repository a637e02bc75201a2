package shortform

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// validate finds what is wrong between the fields of a balancer.
func (f *faults) validate(lb *LoadBalancer) {
	f.once = map[any]bool{}
	for i, a := range lb.Spec.Addresses {
		f.unique(a, fmt.Sprintf("spec.addresses[%d]", i), "%s", a)
	}
	f.validatePorts(lb)
	f.validateEndpoints(lb)
	for i, flag := range lb.Spec.SchedulerFlags { // they begin with the name of their scheduler
		if of, _, _ := strings.Cut(flag, "-"); of != lb.Spec.Scheduler {
			f.add(fmt.Sprintf("spec.schedulerFlags[%d]", i), "%s: expected spec.scheduler to be %s", flag, of)
		}
	}
}

// unique adds a fault if there was an equal key before.
func (f *faults) unique(key any, field, what string, args ...any) {
	if f.once[key] {
		f.add(field, "%s occurs twice: expected it once", fmt.Sprintf(what, args...))
	}
	f.once[key] = true
}

func (f *faults) validatePorts(lb *LoadBalancer) {
	type named struct{ protocol, name string }
	taken := map[string]*[1 << 16]bool{} // ports, by protocol
	for i := range lb.Spec.Ports {
		p := &lb.Spec.Ports[i]
		at := fmt.Sprintf("spec.ports[%d]", i)
		for _, protocol := range p.protocols() {
			if taken[protocol] == nil {
				taken[protocol] = &[1 << 16]bool{}
			}
			if !p.Port.take(taken[protocol]) {
				f.add(at+".port", "%s port %s occurs twice: expected it once", protocol, p.Port)
			}
			f.unique(named{protocol, lb.Spec.portName(p)}, at+".name", "the %s port name %s", protocol, lb.Spec.portName(p))
		}
		if p.Port.Last != 0 && p.TargetPort != 0 && p.TargetPort != p.Port.First {
			f.add(at+".targetPort", "%d: expected %d or none, because connections to a range keep their port", p.TargetPort, p.Port.First)
		}
		if p.Name != "" && strings.Trim(string(p.Name), "0123456789-") == "" {
			f.add(at+".name", "%s is a number: expected a letter in it", p.Name)
		}
	}
}

func (f *faults) validateEndpoints(lb *LoadBalancer) {
	families := map[state.Family]bool{}
	for _, a := range lb.Spec.Addresses {
		families[state.FamilyOf(a.Addr)] = true
	}
	same := slices.IndexFunc(lb.Spec.Ports, func(p Port) bool { return p.target(0) == p.Port.First })
	for i, e := range lb.Spec.Endpoints {
		at := fmt.Sprintf("spec.endpoints[%d]", i)
		family := state.FamilyOf(e.Address.Addr)
		if !families[family] {
			f.add(at+".address", "%s serves nothing: expected an %s address in spec.addresses", e.Address, family.Version())
		}
		if e.Port != 0 && len(lb.Spec.Ports) > 1 {
			f.add(at+".port", "%d: expected no port, because spec.ports has %d", e.Port, len(lb.Spec.Ports))
		}
		if e.Port != 0 && lb.Spec.Ports[0].Port.Last != 0 {
			f.add(at+".port", "%d: expected no port, because connections to a range keep their port", e.Port)
		}
		f.unique(struct {
			address Address
			port    uint16
		}{e.Address, lb.Spec.Ports[0].target(e.Port)}, at, "endpoint %s", e.Address)
		f.validateLoop(lb, &e, at, same)
	}
}

// validateLoop finds an endpoint that leads back to the balancer, of which a port has the same target port. Who has a port of its own
// serves the only one.
func (f *faults) validateLoop(lb *LoadBalancer, e *Endpoint, at string, same int) {
	if e.Port != 0 {
		same = slices.Index([]uint16{lb.Spec.Ports[0].Port.First}, e.Port)
	}
	if same >= 0 && f.once[e.Address] {
		f.add(at+".address", "%s is in spec.addresses: expected another address, or another port than %d, so that connections do not return here",
			e.Address, lb.Spec.Ports[same].Port.First)
	}
}

// target returns the port of an endpoint, which may have one of its own.
func (p *Port) target(own uint16) uint16 { return cmp.Or(own, p.TargetPort, p.Port.First) }

func (p *Port) protocols() []string {
	if len(p.Protocols) == 0 {
		return []string{"TCP"}
	}
	return p.Protocols
}

// portName returns the name of a port, which connects it with its endpoints. The only port needs none. A name that is a
// number would be taken for a port without a name (plan.Port).
func (s *Spec) portName(p *Port) string {
	if p.Name != "" || len(s.Ports) == 1 {
		return string(p.Name)
	}
	return fmt.Sprintf("port-%d", p.Port.First)
}
