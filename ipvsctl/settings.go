package ipvsctl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// Change is a kernel setting that changed.
type Change struct {
	Name, Old, New string
}

// SetTimeouts changes the timeouts that are not 0. It returns those that changed.
func (e *Engine) SetTimeouts(t Timeouts) ([]Change, error) {
	if t == (Timeouts{}) {
		return nil, nil
	}
	for _, d := range []time.Duration{t.TCP, t.TCPFin, t.UDP} {
		if d < 0 || d > maxPersistence {
			return nil, fmt.Errorf("set IPVS timeouts: %s is not in 0 to %s; they stay as they are", d, maxPersistence)
		}
	}
	old, err := e.kernel.Timeouts()
	if err != nil {
		return nil, err
	}
	if err := e.kernel.SetTimeouts(t); err != nil {
		return nil, err
	}
	now, err := e.kernel.Timeouts()
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

// daemonChange replaces a synchronization daemon. One of both may be nil.
type daemonChange struct{ old, now *wire.Daemon }

// daemonsToChange compares the daemons that run with the wanted ones. It leaves those of other tools alone, and lists wanted ones
// whose roles they have.
func (l link) daemonsToChange(wanted []wire.Daemon) (list []daemonChange, taken []wire.Daemon, err error) {
	running, err := l.kernel.Daemons()
	for i := range wanted {
		c := daemonChange{now: &wanted[i]}
		if j := slices.IndexFunc(running, c.now.SameRole); j >= 0 {
			c.old = &running[j]
		}
		switch {
		case c.old != nil && !c.old.Ours:
			taken = append(taken, *c.now)
		case c.old == nil || *c.old != *c.now:
			list = append(list, c)
		}
	}
	for i, d := range running {
		if d.Ours && !slices.ContainsFunc(wanted, d.SameRole) {
			list = append(list, daemonChange{old: &running[i]})
		}
	}
	return list, taken, err
}

// SetDaemons starts and ends synchronization daemons as Options.Sync says. It returns what changed.
func (e *Engine) SetDaemons() (changes []Change, err error) {
	list, taken, err := e.daemonsToChange(e.options.Sync)
	if err != nil {
		return nil, err
	}
	for _, d := range taken {
		err = errors.Join(err, fmt.Errorf("start synchronization daemon %s: another tool runs the %s; it stays", d, d.Role))
	}
	for _, c := range list {
		done, changeErr := e.replace(c)
		if err = errors.Join(err, changeErr); changeErr == nil {
			changes = append(changes, done)
		}
	}
	return changes, err
}

func (l link) replace(c daemonChange) (Change, error) {
	done := Change{Name: "IPVS synchronization daemon", Old: "none", New: "none"}
	if c.old != nil {
		done.Old = c.old.String()
		if err := l.kernel.StopDaemon(*c.old); err != nil {
			return done, fmt.Errorf("stop synchronization daemon %s: %w", c.old, err)
		}
	}
	if c.now != nil {
		done.New = c.now.String()
		if err := l.kernel.StartDaemon(*c.now); err != nil {
			return done, fmt.Errorf("start synchronization daemon %s: %w", c.now, err)
		}
	}
	return done, nil
}

// daemonsIntact reports whether the daemons run that Options.Sync names, as far as that is known.
func (e *Engine) daemonsIntact(repair bool) (bool, error) {
	list, _, err := e.daemonsToChange(e.options.Sync)
	if repair && err == nil && len(list) > 0 {
		_, err = e.SetDaemons()
	}
	return err != nil || len(list) == 0, err
}

// Sysctl is a setting under /proc/sys.
type Sysctl struct {
	Name, Value string
	Reason      string // what goes wrong without the setting
}

// Sysctls lists the settings that IPVS needs in the network namespace. It leaves net.ipv4.vs.conn_reuse_mode alone.
// kube-proxy once set it to 0 for speed. Since Linux 5.9 the default, 1, is fast as well, and Verdict needs Linux 5.13.
// With 0, the kernel keeps sending clients that reuse a port to real servers of weight 0 (k/k #81775, #102122).
func Sysctls(strictARP bool) []Sysctl {
	list := []Sysctl{
		{
			Name: "net.ipv4.vs.conntrack", Value: "1",
			Reason: "connections through IPVS cannot be masqueraded",
		},
		{
			Name: "net.ipv4.vs.expire_nodest_conn", Value: "1",
			Reason: "connections to a removed endpoint hang instead of ending",
		},
		{
			Name: "net.ipv4.vs.expire_quiescent_template", Value: "1",
			Reason: "clients with affinity stay with an endpoint that drains",
		},
	}
	if strictARP {
		// Load balancers in layer 2 mode (MetalLB) require that only the elected node answers ARP for an address.
		list = append(list,
			Sysctl{
				Name: "net.ipv4.conf.all.arp_ignore", Value: "1",
				Reason: "this node answers ARP for load-balancer addresses of other nodes",
			},
			Sysctl{
				Name: "net.ipv4.conf.all.arp_announce", Value: "2",
				Reason: "this node announces load-balancer addresses of other nodes",
			})
	}
	return list
}

// ProcSys is the root that SetSysctls needs, except in tests. It shows the network settings of the calling thread's
// namespace.
const ProcSys = "/proc/sys"

// SetSysctls writes the settings that differ and returns them. It goes on when it cannot write one of them.
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
		return old, nil // without a write: /proc/sys is read-only in many containers
	}
	return old, os.WriteFile(path, []byte(s.Value), 0)
}
