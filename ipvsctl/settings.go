package ipvsctl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Change is a setting of the kernel that was changed.
type Change struct {
	Name, Old, New string
}

// Timeouts are those of IPVS connections in established, closing and UDP state. 0 leaves a timeout as it is. The
// kernel counts whole seconds and has one set of timeouts for each network namespace.
type Timeouts struct {
	TCP, TCPFin, UDP time.Duration
}

// SetTimeouts changes the timeouts that are not 0 and tells which ones were different.
func (e *Engine) SetTimeouts(t Timeouts) ([]Change, error) {
	if t == (Timeouts{}) {
		return nil, nil
	}
	for _, d := range []time.Duration{t.TCP, t.TCPFin, t.UDP} {
		if d < 0 || d > maxPersistence {
			return nil, fmt.Errorf("IPVS timeouts: %s is out of range; they stay as they are", d)
		}
	}
	old, err := e.kernel.timeouts()
	if err != nil {
		return nil, err
	}
	if err := e.kernel.setTimeouts(t); err != nil {
		return nil, err
	}
	now, err := e.kernel.timeouts()
	if err != nil {
		return nil, err
	}
	var changes []Change
	add := func(name string, old, now time.Duration) {
		if old != now {
			changes = append(changes, Change{Name: name, Old: old.String(), New: now.String()})
		}
	}
	add("IPVS timeout tcp", old.TCP, now.TCP)
	add("IPVS timeout tcpfin", old.TCPFin, now.TCPFin)
	add("IPVS timeout udp", old.UDP, now.UDP)
	return changes, nil
}

// Sysctl is a setting under /proc/sys and what goes wrong without it.
type Sysctl struct {
	Name, Value string
	Reason      string
}

// Sysctls lists what IPVS needs in the network namespace. Not among them is net.ipv4.vs.conn_reuse_mode, which
// kube-proxy once set to 0 for speed: since Linux 5.9 the default, 1, is fast as well, and 0 sends clients that reuse a
// port to real servers of weight 0 for ever (k/k #81775, #102122). We need 5.13 anyway.
func Sysctls(strictARP bool) []Sysctl {
	list := []Sysctl{
		{Name: "net.ipv4.vs.conntrack", Value: "1", Reason: "connections through IPVS cannot be masqueraded"},
		{Name: "net.ipv4.vs.expire_nodest_conn", Value: "1", Reason: "connections to a removed endpoint hang instead of ending"},
		{Name: "net.ipv4.vs.expire_quiescent_template", Value: "1", Reason: "clients with affinity stay with an endpoint that drains"},
	}
	if strictARP {
		// Load balancers in layer 2 mode (MetalLB) need that only the elected node answers for an address.
		list = append(list,
			Sysctl{Name: "net.ipv4.conf.all.arp_ignore", Value: "1", Reason: "this node answers ARP for load-balancer addresses of others"},
			Sysctl{Name: "net.ipv4.conf.all.arp_announce", Value: "2", Reason: "this node announces load-balancer addresses of others"})
	}
	return list
}

// ProcSys is where SetSysctls usually works. The network settings there are those of the calling thread's namespace.
const ProcSys = "/proc/sys"

// SetSysctls writes the settings that differ and tells which ones. One that cannot be written does not stop the others.
func SetSysctls(root string, list []Sysctl) ([]Change, error) {
	var changes []Change
	var errs []error
	for _, s := range list {
		old, err := s.set(root)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("set sysctl %s=%s: %w; without it %s", s.Name, s.Value, err, s.Reason))
		case old != s.Value:
			changes = append(changes, Change{Name: s.Name, Old: old, New: s.Value})
		}
	}
	return changes, errors.Join(errs...)
}

func (s Sysctl) set(root string) (old string, err error) {
	path := filepath.Join(root, strings.ReplaceAll(s.Name, ".", "/"))
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	old = strings.TrimSpace(string(text))
	if old == s.Value {
		return old, nil // also when /proc/sys is read-only, as in many containers
	}
	return old, os.WriteFile(path, []byte(s.Value), 0)
}
