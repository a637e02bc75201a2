package manifests

import (
	"github.com/verdict-proxy/verdict/proxier/source/convert"
	"github.com/verdict-proxy/verdict/proxier/source/shortform"
	"github.com/verdict-proxy/verdict/proxier/source/sink"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// wanted holds the objects of all files.
type wanted struct {
	services     []sink.Found[state.Service]
	slices       []sink.Found[state.Slice]
	nodes        []sink.Found[state.Node]
	serviceCIDRs []sink.Found[convert.ServiceCIDR]
}

func (w *wanted) add(o object, nodeName string) {
	switch o.id.kind {
	case convert.KindService:
		if both, ok := o.value.(*shortform.Objects); ok {
			o.value = both.Service
			for _, sl := range both.Slices {
				w.slices = append(w.slices, sink.Found[state.Slice]{Name: sl.Name, Value: sl})
			}
		}
		w.services = append(w.services, foundIn[state.Service](o))
	case convert.KindSlice:
		w.slices = append(w.slices, foundIn[state.Slice](o))
	case convert.KindServiceCIDR:
		w.serviceCIDRs = append(w.serviceCIDRs, foundIn[convert.ServiceCIDR](o))
	case convert.KindNode:
		if o.id.name.Name == nodeName {
			w.nodes = append(w.nodes, foundIn[state.Node](o))
		}
	}
}

func foundIn[T any](o object) sink.Found[T] {
	value, _ := o.value.(*T) // nil if the proxy does not serve the object
	return sink.Found[T]{Name: o.id.name, Value: value, Problems: o.problems}
}
