package ipvsctl

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
)

// Support is what Probe found out about the schedulers that it was asked for.
type Support struct {
	Schedulers []string // the kernel has them
	Missing    []string // the kernel does not have them
}

// Has reports whether the kernel has a scheduler.
func (s *Support) Has(scheduler string) bool { return slices.Contains(s.Schedulers, scheduler) }

// String names the missing schedulers with their kernel modules.
func (s *Support) String() string {
	if len(s.Missing) == 0 {
		return "all schedulers are available: " + strings.Join(s.Schedulers, " ")
	}
	modules := make([]string, len(s.Missing))
	for i, name := range s.Missing {
		modules[i] = Module(name)
	}
	missing := strings.Join(s.Missing, " ")
	return fmt.Sprintf("schedulers not available: %s (missing kernel modules: %s)", missing, strings.Join(modules, " "))
}

// probeKey has an address of TEST-NET-2, which is reserved for documentation.
func probeKey(port uint16) Key {
	return Key{Addr: netip.AddrFrom4([4]byte{198, 51, 100, 1}), Port: port, Protocol: TCP}
}

// Probe finds out which schedulers the kernel has. It makes a virtual server with each and deletes it again, as
// kube-proxy did (k/k #114878): lists of modules do not show schedulers that are built into the kernel, and a
// container may not have them. The kernel loads the module of a scheduler on demand. When the kernel has no IPVS the
// error is ErrNoIPVS.
func Probe(o Options, schedulers []string) (Support, error) {
	return withKernel(o, func(k kernel) (Support, error) { return probe(k, schedulers) })
}

func probe(k kernel, schedulers []string) (Support, error) {
	var s Support
	port, err := probePort(k)
	if err != nil {
		return s, err
	}
	for _, name := range schedulers {
		v := &VirtualServer{Key: probeKey(port), Scheduler: name}
		err := k.execute(Operation{Kind: AddServer, Server: v})
		switch {
		case errors.Is(err, syscall.ENOENT):
			s.Missing = append(s.Missing, name)
			continue
		case err != nil:
			return s, fmt.Errorf("probe scheduler %s: %w", name, err)
		}
		s.Schedulers = append(s.Schedulers, name)
		if err := k.execute(Operation{Kind: DeleteServer, Server: v}); err != nil {
			return s, fmt.Errorf("delete the virtual server that probed scheduler %s: %w", name, err)
		}
	}
	return s, nil
}

// probePort returns a port that no virtual server at the probe's address has. It deletes what an interrupted probe
// left.
func probePort(k kernel) (uint16, error) {
	for port := uint16(1); port < 100; port++ {
		key := probeKey(port)
		f, exists, err := k.Server(key)
		switch {
		case err != nil:
			return 0, &KeyError{Key: key, Err: err}
		case !exists:
			return port, nil
		case f.Ours:
			o := Operation{Kind: DeleteServer, Server: &VirtualServer{Key: key, Scheduler: f.Scheduler}}
			if err := k.execute(o); err != nil {
				return 0, &OperationError{Operation: o, Err: err}
			}
			return port, nil
		}
	}
	return 0, fmt.Errorf("probe schedulers: other tools have virtual servers on ports 1 to 99 of %s", probeKey(1).Addr)
}

// Loaded reports whether IPVS is built into the kernel or loaded. Unlike Probe, it does not load the module.
func Loaded() bool {
	_, err := os.Stat("/proc/thread-self/net/ip_vs")
	return err == nil
}
