package ipvsctl

import (
	"fmt"
	"net/netip"
)

// Adopt takes over the virtual servers that another Service proxy left at the given addresses. An address with the value
// true is local only by that proxy's device, and gets a local route, so that it stays local without the device. Nothing
// else changes, so no connection notices. Call it before Open: the engine then inherits the virtual servers.
//
// An adopted virtual server that nobody wants ends when its last connection has ended, of whatever protocol and without
// a graceful period. Its endpoints live on, so nothing else should end their connections. One that Set claims becomes
// like any other.
//
// Adopt returns how many virtual servers it took over. After an error, another call goes on.
func Adopt(o Options, places map[netip.Addr]bool) (int, error) {
	return withKernel(o, func(k kernel) (int, error) { return adopt(k, o, places) })
}

func withKernel(o Options, do func(kernel) (int, error)) (int, error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return do(c)
}

func adopt(k kernel, o Options, places map[netip.Addr]bool) (n int, err error) {
	servers, err := k.servers()
	if err != nil {
		return 0, err
	}
	for _, f := range servers {
		route, known := places[f.key.Addr]
		if f.ours || !known || o.excludes(f.key.Addr) {
			continue
		}
		if route {
			add := Operation{Kind: AddAddress, Server: &VirtualServer{Key: f.key}}
			if err := k.execute(add); err != nil {
				return n, &OperationError{Operation: add, Err: err}
			}
		}
		if err := k.mark(f.key, ownerMark|adoptedMark); err != nil {
			return n, &KeyError{Key: f.key, Err: fmt.Errorf("take it over: %w", err)}
		}
		n++
	}
	return n, nil
}

// Foreign counts the virtual servers of other tools at the given addresses.
func Foreign(o Options, places map[netip.Addr]bool) (int, error) {
	return withKernel(o, func(k kernel) (n int, err error) {
		servers, err := k.servers()
		for _, f := range servers {
			if _, known := places[f.key.Addr]; known && !f.ours {
				n++
			}
		}
		return n, err
	})
}

// HandOver gives the virtual servers at the given addresses to another Service proxy, which serves them by now. Cleanup
// leaves them alone then, and their connections live on. It returns how many there were.
func HandOver(o Options, places map[netip.Addr]bool) (int, error) {
	return withKernel(o, func(k kernel) (int, error) { return handOver(k, places) })
}

func handOver(k kernel, places map[netip.Addr]bool) (n int, err error) {
	servers, err := k.servers()
	if err != nil {
		return 0, err
	}
	for _, f := range servers {
		if _, known := places[f.key.Addr]; !known || !f.ours {
			continue
		}
		if err := k.mark(f.key, 0); err != nil {
			return n, &KeyError{Key: f.key, Err: fmt.Errorf("hand it over: %w", err)}
		}
		n++
	}
	return n, nil
}

// Adopted lists the keys of virtual servers of another proxy whose connections may go on.
func (e *Engine) Adopted() (list []Key) {
	for k, s := range e.servers {
		if s.has.adopted && e.options.graceful() {
			list = append(list, k)
		}
	}
	return list
}
