package runner

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// step takes one step.
func (b *Bed) step(do any) error {
	switch do := do.(type) {
	case *scenario.Apply, *scenario.Patch, *scenario.Delete, *scenario.Endpoints:
		return b.change(do)
	case *scenario.Restart:
		return errors.Join(b.end(do.Kill), b.start())
	case *scenario.Stop:
		return b.end(false)
	case *scenario.Start:
		return b.start()
	case *scenario.Address:
		return b.changeAddress(do)
	case *scenario.Sysctl:
		return b.sysctl(do.Setting)
	case *scenario.Pause:
		time.Sleep(do.For)
		return nil
	}
	return b.check(do)
}

func (b *Bed) change(do any) error {
	switch do := do.(type) {
	case *scenario.Apply:
		list, err := do.Objects(b.options.Family)
		if err != nil {
			return err
		}
		for _, o := range list {
			if err := b.put(o); err != nil {
				return err
			}
		}
		return nil
	case *scenario.Patch:
		return b.patch(do)
	case *scenario.Delete:
		return b.delete(do.Kind, do.Name)
	case *scenario.Endpoints:
		return b.endpoints(do)
	}
	return fmt.Errorf("no change: %T", do)
}

func (b *Bed) put(o scenario.Object) error {
	b.pending = b.pending || fenced(o.Kind())
	if err := b.source.Put(o); err != nil {
		return err
	}
	b.present[key(o)] = o
	return nil
}

// find looks for an object that the scenario or the bed has written.
func (b *Bed) find(kind, name string) (scenario.Object, error) {
	for _, o := range b.present {
		if o.Kind() == kind && o.Name() == name {
			return o, nil
		}
	}
	for _, o := range b.nodes() {
		if o.Kind() == kind && o.Name() == name {
			return o, nil
		}
	}
	return nil, fmt.Errorf("there is no %s %s", kind, name)
}

func (b *Bed) patch(do *scenario.Patch) error {
	old, err := b.find(do.Kind, do.Name)
	if err != nil {
		return err
	}
	change, err := do.Object(b.options.Family)
	if err != nil {
		return err
	}
	return b.put(merge(old, change))
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

func (b *Bed) delete(kind, name string) error {
	o, err := b.find(kind, name)
	if err != nil {
		return err
	}
	b.pending = b.pending || fenced(kind)
	delete(b.present, key(o))
	return b.source.Delete(kind, o.Namespace(), name)
}

// endpoints writes the slices of a Service and deletes those of the same name that are not needed any more.
func (b *Bed) endpoints(do *scenario.Endpoints) error {
	svc, err := b.find("Service", do.Service)
	if err != nil {
		return err
	}
	list, err := do.Objects(b.options.Family, svc)
	if err != nil {
		return err
	}
	var keep []string
	for _, o := range list {
		if err := b.put(o); err != nil {
			return err
		}
		keep = append(keep, o.Name())
	}
	name := do.Service + "-" + do.Slice
	for _, o := range b.present {
		if o.Kind() == "EndpointSlice" && strings.HasPrefix(o.Name(), name+"-") && !slices.Contains(keep, o.Name()) &&
			strings.HasPrefix(o.Name(), name+"-other") == do.Other {
			if err := b.delete("EndpointSlice", o.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Bed) end(kill bool) error {
	if kill {
		return b.proxy.kill()
	}
	return b.proxy.stop()
}

// start starts the proxy again with the same arguments, over what it left in the kernel.
func (b *Bed) start() error {
	b.pending = true
	return b.proxy.start(b.proxy.arguments)
}

func (b *Bed) changeAddress(do *scenario.Address) error {
	a, err := lab.Lookup(b.options.Family, do.Name)
	if err != nil {
		return err
	}
	p, node := netip.PrefixFrom(a, a.BitLen()), b.world.Node
	if do.Remove {
		return errors.Join(node.RemoveAddress(do.Link, p), b.readAddresses())
	}
	b.undo = append(b.undo, func() error {
		if err := b.readAddresses(); err != nil || !b.addrs[a] {
			return err
		}
		return node.RemoveAddress(do.Link, p)
	})
	return errors.Join(node.AddAddress(do.Link, p), b.readAddresses())
}

// sysctl changes a setting of the node and restores it when the scenario ends.
func (b *Bed) sysctl(setting string) error {
	name, _, _ := strings.Cut(setting, "=")
	var was []byte
	err := b.world.Node.Do(func() (err error) {
		was, err = os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
		return err
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	b.undo = append(b.undo, func() error { return b.world.Node.Sysctl(name + "=" + strings.TrimSpace(string(was))) })
	return b.world.Node.Sysctl(setting)
}
