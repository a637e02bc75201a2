package runner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// objects are what a scenario has written.
type objects struct {
	family  lab.Family
	source  source
	present map[string]scenario.Object
	pending bool // something changed since the last fence
}

// apply writes the objects of the step.
func (w *objects) apply(do *scenario.Apply) error {
	list, err := do.Objects(w.family)
	if err != nil {
		return err
	}
	for _, o := range list {
		if err := w.put(o); err != nil {
			return err
		}
	}
	return nil
}

// put creates or replaces an object.
func (w *objects) put(o scenario.Object) error {
	w.pending = w.pending || fenced(o.Kind())
	if err := w.source.Put(o); err != nil {
		return err
	}
	w.present[key(o)] = o
	return nil
}

// fenced reports whether a fence can wait for changes of a kind. After changes of other kinds the runner sets no fence,
// so that a probe with a time limit measures from the change.
func fenced(kind string) bool { return kind == "Service" || kind == "EndpointSlice" }

// find returns an object that the scenario or the bed has written.
func (w *objects) find(kind, name string) (scenario.Object, error) {
	for _, o := range slices.Concat(slices.Collect(maps.Values(w.present)), w.nodes()) {
		if o.Kind() == kind && o.Name() == name {
			return o, nil
		}
	}
	return nil, fmt.Errorf("find %s %s: neither the scenario nor the runner has written it", kind, name)
}

func (w *objects) patch(do *scenario.Patch) error {
	old, err := w.find(do.Kind, do.Name)
	if err != nil {
		return err
	}
	change, err := do.Object(w.family)
	if err != nil {
		return err
	}
	return w.put(merge(old, change))
}

// merge is a JSON merge patch: null removes a field, and a list replaces a list.
func merge(old, change map[string]any) map[string]any {
	out := maps.Clone(old)
	for k, v := range change {
		into, both := out[k].(map[string]any)
		from, isMap := v.(map[string]any)
		switch {
		case v == nil:
			delete(out, k)
		case both && isMap:
			out[k] = merge(into, from)
		default:
			out[k] = v
		}
	}
	return out
}

func (w *objects) delete(kind, name string) error {
	o, err := w.find(kind, name)
	if err != nil {
		return err
	}
	w.pending = w.pending || fenced(kind)
	delete(w.present, key(o))
	return w.source.Delete(o)
}

// endpoints writes the slices of a Service. It deletes slices of the same name that earlier steps wrote and this one
// does not.
func (w *objects) endpoints(do *scenario.Endpoints) error {
	svc, err := w.find("Service", do.Service)
	if err != nil {
		return err
	}
	list := do.Objects(w.family, svc)
	var keep []string
	for _, o := range list {
		if err := w.put(o); err != nil {
			return err
		}
		keep = append(keep, o.Name())
	}
	name := do.Service + "-" + do.Slice
	for _, o := range w.present {
		if o.Kind() == "EndpointSlice" && strings.HasPrefix(o.Name(), name+"-") && !slices.Contains(keep, o.Name()) &&
			strings.HasPrefix(o.Name(), name+"-other") == do.Other {
			if err := w.delete("EndpointSlice", o.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// nodes are the Nodes as they are before every scenario. The family under test comes first, which makes it the primary one.
func (w *objects) nodes() []scenario.Object {
	return w.written(`
kind: Node
metadata: {name: node-1, labels: {kubernetes.io/hostname: node-1, topology.kubernetes.io/zone: z1}}
spec: {podCIDR: $NODE_PODS, podCIDRs: [$NODE_PODS, $OTHER_NODE_PODS]}
status: {addresses: [{type: InternalIP, address: $NODE}, {type: InternalIP, address: $OTHER_NODE}]}
---
kind: Node
metadata: {name: node-2, labels: {kubernetes.io/hostname: node-2, topology.kubernetes.io/zone: z2}}
spec: {podCIDR: $REMOTE_PODS, podCIDRs: [$REMOTE_PODS, $OTHER_REMOTE_PODS]}
status: {addresses: [{type: InternalIP, address: $REMOTE}, {type: InternalIP, address: $OTHER_REMOTE}]}
`)
}

// written are objects of the runner's own, written as in a scenario.
func (w *objects) written(text string) []scenario.Object {
	list, err := (&scenario.Apply{YAML: text}).Objects(w.family)
	if err != nil {
		panic(err) // the text is in this package
	}
	return list
}
