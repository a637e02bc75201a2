package ipvsctl

import (
	"fmt"
	"net/netip"

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
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
	return withKernel(o, func(k kernel) (int, error) { return adoptServers(k, o, places) })
}

func adoptServers(k kernel, o Options, places map[netip.Addr]bool) (int, error) {
	return eachAt(k, places, false, func(f wire.Server) (done bool, err error) {
		if o.excludes(f.Addr) {
			return false, nil
		}
		if places[f.Addr] {
			add := Operation{Kind: AddAddress, Server: &VirtualServer{Key: f.Key}}
			if err := k.execute(add); err != nil {
				return false, &OperationError{Operation: add, Err: err}
			}
		}
		if err := k.SetAdopted(f.Key, true); err != nil {
			return false, &KeyError{Key: f.Key, Err: fmt.Errorf("take it over: %w", err)}
		}
		return true, nil
	})
}

// eachAt calls a function for the virtual servers at the given addresses, either those of this package or the others. It
// counts what is done.
func eachAt(k kernel, places map[netip.Addr]bool, ours bool, do func(wire.Server) (done bool, err error)) (n int, err error) {
	servers, err := k.Servers()
	if err != nil {
		return 0, err
	}
	for _, f := range servers {
		if _, known := places[f.Addr]; !known || f.Ours != ours {
			continue
		}
		done, err := do(f)
		if err != nil {
			return n, err
		}
		if done {
			n++
		}
	}
	return n, nil
}

// Foreign counts the virtual servers of other tools at the given addresses.
func Foreign(o Options, places map[netip.Addr]bool) (int, error) {
	return withKernel(o, func(k kernel) (int, error) {
		return eachAt(k, places, false, func(wire.Server) (bool, error) { return true, nil })
	})
}

// HandOver gives the virtual servers at the given addresses to another Service proxy, which serves them by now. Cleanup
// leaves them alone then, and their connections live on. It returns how many there were.
func HandOver(o Options, places map[netip.Addr]bool) (int, error) {
	return withKernel(o, func(k kernel) (int, error) { return handOver(k, places) })
}

func handOver(k kernel, places map[netip.Addr]bool) (int, error) {
	return eachAt(k, places, true, func(f wire.Server) (bool, error) {
		if err := k.SetAdopted(f.Key, false); err != nil {
			return false, &KeyError{Key: f.Key, Err: fmt.Errorf("hand it over: %w", err)}
		}
		return true, nil
	})
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
