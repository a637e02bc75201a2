package manifests

import (
	"fmt"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/source/convert"
	"github.com/verdict-proxy/verdict/proxier/source/sink"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Kept is what the kernel has from an earlier process, as objects. A manifest that cannot be read at the start of a process
// must not end what it defines: nobody knows what that is, but the kernel has it. So objects of the kernel that no manifest
// defines stay in force until all manifests can be read.
type Kept struct {
	Services []*state.Service
	Slices   []*state.Slice // each with one port
	// Short returns how the kernel shows the name of a Service and of one of its ports: it has no room for long ones.
	Short func(state.Name, state.ServicePort) (service state.Name, port string)
}

// beginning is what the source knows about the start of the process.
type beginning struct {
	read     func() (Kept, error) // asks the kernel; nil: nothing is kept
	over     bool                 // the directory was read once
	dangling []string             // links without a target
	services map[state.Name]*state.Service
	slices   map[state.Name][]*state.Slice // by Service
	short    func(state.Name, state.ServicePort) (state.Name, string)
}

func (b *beginning) keeps() bool { return len(b.services)+len(b.slices) > 0 }

// hold begins to keep what the kernel has. It reports whether that is anything.
func (b *beginning) hold() (bool, error) {
	if b.read == nil {
		return false, nil
	}
	kept, err := b.read()
	if err != nil {
		return false, fmt.Errorf("read what the kernel has: %w", err)
	}
	b.services, b.slices, b.short = map[state.Name]*state.Service{}, map[state.Name][]*state.Slice{}, kept.Short
	for _, svc := range kept.Services {
		b.services[svc.Name] = svc
	}
	for _, sl := range kept.Slices {
		b.slices[sl.Service] = append(b.slices[sl.Service], sl)
	}
	return b.keeps(), nil
}

func (b *beginning) release() { b.services, b.slices = nil, nil }

// keptProblem is the Problem of each object that is kept.
const keptProblem = "no manifest defines it, and not all manifests could be read since the start: it is served as the kernel has it"

// complete adds to the objects of all files what is kept. What a file has defined once is not kept any more.
func (b *beginning) complete(w *wanted) {
	if !b.keeps() {
		return
	}
	for _, f := range w.services {
		delete(b.services, f.Name)
		if f.Value != nil {
			b.recognize(f.Value)
		}
	}
	for _, f := range w.slices {
		if f.Value != nil {
			b.recognizeService(f.Value)
			b.forgetSlices(f.Value)
		}
	}
	for name, svc := range b.services {
		f := convert.NewFindings(convert.KindService, name)
		f.Add("", keptProblem)
		w.services = append(w.services, sink.Found[state.Service]{Name: name, Value: svc, Problems: f.Problems()})
	}
	for _, list := range b.slices {
		for _, sl := range list {
			w.slices = append(w.slices, sink.Found[state.Slice]{Name: sl.Name, Value: sl})
		}
	}
}

// recognize gives what is kept under the short name of a Service the name that a file has.
func (b *beginning) recognize(svc *state.Service) {
	for _, p := range svc.Ports {
		service, port := b.short(svc.Name, p)
		if service == svc.Name && port == p.Name {
			continue
		}
		if service != svc.Name {
			delete(b.services, service)
		}
		list := b.slices[service]
		delete(b.slices, service)
		for _, sl := range list {
			if sl.Ports[0].Name == port && sl.Ports[0].Protocol == p.Protocol {
				renamed := *sl
				renamed.Service, renamed.Ports = svc.Name, []state.SlicePort{sl.Ports[0]}
				renamed.Ports[0].Name = p.Name
				sl = &renamed
			}
			b.slices[sl.Service] = append(b.slices[sl.Service], sl)
		}
	}
}

// recognizeService gives a Service that is kept under a short name the name that a slice has.
func (b *beginning) recognizeService(sl *state.Slice) {
	for _, p := range sl.Ports {
		service, port := b.short(sl.Service, state.ServicePort{Name: p.Name, Protocol: p.Protocol})
		kept := b.services[service]
		if kept == nil || service == sl.Service && port == p.Name {
			continue
		}
		renamed := *kept
		renamed.Name, renamed.Ports = sl.Service, slices.Clone(kept.Ports)
		for i := range renamed.Ports {
			if renamed.Ports[i].Name == port && renamed.Ports[i].Protocol == p.Protocol {
				renamed.Ports[i].Name = p.Name
			}
		}
		delete(b.services, service)
		b.services[sl.Service] = &renamed
		b.recognize(&renamed)
	}
}

// forgetSlices lets go of the slices whose endpoints a file has: those of the same family and port. Another family may be
// in another file.
func (b *beginning) forgetSlices(sl *state.Slice) {
	rest := slices.DeleteFunc(b.slices[sl.Service], func(kept *state.Slice) bool {
		return kept.Family == sl.Family && slices.ContainsFunc(sl.Ports, func(p state.SlicePort) bool {
			return p.Name == kept.Ports[0].Name && p.Protocol == kept.Ports[0].Protocol
		})
	})
	if b.slices[sl.Service] = rest; len(rest) == 0 {
		delete(b.slices, sl.Service)
	}
}
