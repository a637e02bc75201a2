package ipvsctl

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// Support says what the kernel can do.
type Support struct {
	Schedulers []string // available, of those asked for
	Missing    []string // not available
}

// Has says whether a scheduler is available.
func (s *Support) Has(scheduler string) bool {
	for _, name := range s.Schedulers {
		if name == scheduler {
			return true
		}
	}
	return false
}

// String names what is missing, with the modules.
func (s *Support) String() string {
	if len(s.Missing) == 0 {
		return "all schedulers are available: " + strings.Join(s.Schedulers, " ")
	}
	modules := make([]string, len(s.Missing))
	for i, name := range s.Missing {
		modules[i] = Module(name)
	}
	return fmt.Sprintf("schedulers not available: %s (missing kernel modules: %s)", strings.Join(s.Missing, " "), strings.Join(modules, " "))
}

// probeKey has an address of TEST-NET-2, which no host has.
func probeKey(port uint16) Key {
	return Key{Addr: netip.AddrFrom4([4]byte{198, 51, 100, 1}), Port: port, Protocol: TCP}
}

// Probe finds out which schedulers the kernel has, by making a virtual server for each and deleting it again, as
// kube-proxy did (k/k #114878): module files and lists say nothing when schedulers are built in, or when we run in a
// container. The kernel loads a scheduler's module when it is asked for. ErrNoIPVS when there is no IPVS at all.
func Probe(o Options, schedulers []string) (Support, error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return Support{}, err
	}
	defer c.close()
	return probe(c, schedulers)
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
			return s, fmt.Errorf("try scheduler %s: %w", name, err)
		}
		s.Schedulers = append(s.Schedulers, name)
		if err := k.execute(Operation{Kind: DeleteServer, Server: v}); err != nil {
			return s, fmt.Errorf("delete the virtual server that tried scheduler %s: %w", name, err)
		}
	}
	return s, nil
}

// probePort finds a key that is free, and removes what an interrupted probe has left.
func probePort(k kernel) (uint16, error) {
	for port := uint16(1); port < 100; port++ {
		key := probeKey(port)
		f, exists, err := k.server(key)
		switch {
		case err != nil:
			return 0, err
		case !exists:
			return port, nil
		case f.ours:
			v := &VirtualServer{Key: key, Scheduler: f.header.scheduler}
			return port, k.execute(Operation{Kind: DeleteServer, Server: v})
		}
	}
	return 0, fmt.Errorf("try schedulers: %s has virtual servers of others on every port", probeKey(1).Addr)
}
