package runner

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// apply writes the objects of the step.
func (w *objects) apply(do *scenario.Apply) error {
	list, err := do.Objects(w.options.Family)
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

// find returns an object that the scenario or the bed has written.
func (w *objects) find(kind, name string) (scenario.Object, error) {
	for _, o := range w.present {
		if o.Kind() == kind && o.Name() == name {
			return o, nil
		}
	}
	for _, o := range w.nodes() {
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
	change, err := do.Object(w.options.Family)
	if err != nil {
		return err
	}
	return w.put(merge(old, change))
}

// merge is a JSON merge patch: null removes a field, and a list replaces a list.
func merge(old, change map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range old {
		out[k] = v
	}
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
	return w.source.Delete(kind, o.Namespace(), name)
}

// endpoints writes the slices of a Service. It deletes slices of the same name that earlier steps wrote and this one
// does not.
func (w *objects) endpoints(do *scenario.Endpoints) error {
	svc, err := w.find("Service", do.Service)
	if err != nil {
		return err
	}
	list, err := do.Objects(w.options.Family, svc)
	if err != nil {
		return err
	}
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

func (b *Bed) restart(do *scenario.Restart) error {
	if do.Kill {
		return errors.Join(b.proxy.kill(), b.start())
	}
	return errors.Join(b.proxy.stop(), b.start())
}

// start starts the proxy again, with the same arguments. Its tables are still in the kernel.
func (b *Bed) start() error {
	b.objects.pending = true
	return b.proxy.start(b.proxy.arguments)
}

// changeAddress adds an address to a link of the node, or removes it. The end of the scenario removes an added one.
func (n *node) changeAddress(do *scenario.Address) error {
	a, err := lab.Lookup(n.options.Family, do.Name)
	if err != nil {
		return err
	}
	p, node := netip.PrefixFrom(a, a.BitLen()), n.world.Node
	if do.Remove {
		return errors.Join(node.RemoveAddress(do.Link, p), n.clients.readAddresses())
	}
	n.undo = append(n.undo, func() error {
		if err := n.clients.readAddresses(); err != nil || !n.clients.addrs[a] {
			return err
		}
		return node.RemoveAddress(do.Link, p)
	})
	return errors.Join(node.AddAddress(do.Link, p), n.clients.readAddresses())
}

// sysctl changes a setting of the node. The end of the scenario restores it.
func (n *node) sysctl(do *scenario.Sysctl) error {
	name, _, _ := strings.Cut(do.Setting, "=")
	var was []byte
	err := n.world.Node.Do(func() (err error) {
		was, err = os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
		return err
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	n.undo = append(n.undo, func() error { return n.world.Node.Sysctl(name + "=" + strings.TrimSpace(string(was))) })
	return n.world.Node.Sysctl(do.Setting)
}
