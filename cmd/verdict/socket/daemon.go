package socket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Daemon answers questions in the process of the daemon. Any goroutine may use it. Journal, Store and Log must be set.
type Daemon struct {
	Journal  *Journal
	Store    *state.Store
	Outliers Watcher // nil: nobody knows of endpoints that do not answer or fail their checks
	NodeName string
	// MaxEjected and Manifests are those of the settings.
	MaxEjected int
	Manifests  string
	Version    string
	Log        *slog.Logger
	// Reload reads the files again. It returns when the kernel has what they ask for, and says what cannot be used.
	Reload func(context.Context) error
	// Drain stops serving, and returns when that is done. Draining says how far that is; "": it has not begun. Nil: the daemon
	// cannot.
	Drain    func(context.Context, Drain) error
	Draining func() string
	// Leave records that the system stops, and returns when others can see it.
	Leave func(context.Context) error
	// End resets the connections that die with this node, and returns how many there are.
	End func() (int, error)
	// Passing counts open connections, at most some time ago.
	Passing func(within time.Duration) ([]Passing, error)
	// FastPath says which connections of a Service (namespace/name) take the fast path; "": of all Services.
	FastPath func(service string) FastPath
}

// Watcher knows endpoints that do not answer, fail their checks, or are backups. Lists are sorted by
// endpoint.
type Watcher interface {
	Statuses(of state.Name) []endpointhealth.Status // of all Services if it has no name
}

// ErrQuestion marks a question that makes no sense.
var ErrQuestion = errors.New("wrong question")

// ErrUnknown means that the daemon does not know the object.
var ErrUnknown = errors.New("the daemon does not know it")

// Status says what the daemon does.
func (d *Daemon) Status() Status {
	out := d.Journal.status()
	out.Version, out.PID, out.Synced = d.Version, os.Getpid(), d.Store.Synced()
	out.Manifests = d.Manifests
	if d.Draining != nil {
		out.Drain = d.Draining()
	}
	if c, ok := d.Store.Pending(); ok {
		out.WaitingServices = len(c.Services)
	}
	return out
}

// Passes lists the latest passes, the newest first.
func (d *Daemon) Passes() []Pass { return d.Journal.latest() }

// Problems lists what cannot be honored of an object (namespace/name); "": of all objects.
func (d *Daemon) Problems(object string) []Problem { return d.Journal.problemsOf(object) }

// maxEndpoints, maxFrontends and maxServices bound answers.
const (
	maxEndpoints = 10000
	maxFrontends = 10000
	maxServices  = 1000
)

// service finds a Service (namespace/name).
func (d *Daemon) service(text string) (*state.Service, []*state.Slice, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		return nil, nil, fmt.Errorf("%w: service %q must be NAMESPACE/NAME", ErrQuestion, text)
	}
	svc, list := d.Store.Service(state.Name{Namespace: namespace, Name: name})
	if svc == nil {
		return nil, nil, fmt.Errorf("%w: no Service %s, or another proxy serves it", ErrUnknown, text)
	}
	return svc, list, nil
}

// Endpoints explains the endpoints of one Service.
func (d *Daemon) Endpoints(service string) ([]Endpoint, error) {
	svc, list, err := d.service(service)
	if err != nil {
		return nil, err
	}
	env := plan.Environment{NodeName: d.NodeName, IPv4: true, IPv6: true}
	if node := d.Store.Environment().Node; node != nil {
		env.Zone = node.Zone
	}
	var outliers []endpointhealth.Status
	if d.Outliers != nil {
		outliers = d.Outliers.Statuses(svc.Name)
	}
	now := time.Now()
	out := []Endpoint{}
	p := plan.Planner{Health: d.Store.Health(svc.Name), MaxEjected: d.MaxEjected}
	for _, f := range p.Fates(svc, list, &env) {
		if len(out) == maxEndpoints {
			break
		}
		e := Endpoint{Port: f.Port, Addr: f.Addr.String(), Node: f.Node, OutOfCluster: f.OutOfCluster, OutOfLocal: f.OutOfLocal}
		e.remark(statusesAt(outliers, f.Addr, f.Protocol), now)
		out = append(out, e)
	}
	return out, nil
}

// statusesAt returns the statuses of one endpoint.
func statusesAt(list []endpointhealth.Status, at netip.AddrPort, protocol state.Protocol) []endpointhealth.Status {
	this := func(s endpointhealth.Status, at netip.AddrPort) int {
		return cmp.Or(s.At.Compare(at), cmp.Compare(s.Protocol, protocol))
	}
	begin, _ := slices.BinarySearchFunc(list, at, this)
	end := begin
	for end < len(list) && this(list[end], at) == 0 {
		end++
	}
	return list[begin:end]
}

// Outlying lists what is known of endpoints that do not answer, fail their checks, or are backups.
func (d *Daemon) Outlying() []Outlier {
	out := []Outlier{}
	if d.Outliers == nil {
		return out
	}
	list, now := d.Outliers.Statuses(state.Name{}), time.Now()
	for i := range list[:min(len(list), maxEndpoints)] {
		s := &list[i]
		out = append(out, Outlier{
			Addr: s.At.String(), Services: []string{s.Service.String()}, Bad: s.State.Bad(), Text: textOf(s, now),
		})
	}
	return out
}

// Frontends lists the frontends that Services ask for: one Service (namespace/name), those of a namespace, or those at an
// address.
func (d *Daemon) Frontends(of string) (Frontends, error) {
	out := Frontends{List: []Frontend{}}
	if strings.Contains(of, "/") {
		svc, _, err := d.service(of)
		if err == nil {
			out.Unsure = d.unsure(svc.Name)
			out.add(svc, netip.Addr{})
		}
		return out, err
	}
	at, err := netip.ParseAddr(of)
	if of == "" {
		return out, fmt.Errorf("%w: whose frontends?", ErrQuestion)
	}
	var names []state.Name
	for _, name := range d.Store.ServiceNames() {
		if err != nil && name.Namespace != of {
			continue
		}
		if svc, _ := d.Store.Service(name); svc != nil && out.add(svc, at) {
			names = append(names, name)
		}
	}
	out.Unsure = d.unsure(names...) || len(out.List) >= maxFrontends
	return out, nil
}

// add adds the frontends of a Service, or those at an address. It reports whether there are any.
func (f *Frontends) add(svc *state.Service, at netip.Addr) bool {
	before := len(f.List)
	add := func(a netip.Addr, family state.Family, protocol state.Protocol, port uint16) {
		if len(f.List) < maxFrontends && (!at.IsValid() || a == at) {
			f.List = append(f.List, Frontend{Address: a, Family: family.Version(), Protocol: uint8(protocol), Port: port})
		}
	}
	for _, addrs := range [][]netip.Addr{svc.ClusterIPs, svc.ExternalIPs, svc.LoadBalancerIPs} {
		for _, a := range addrs {
			for _, p := range svc.Ports {
				add(a, state.FamilyOf(a), p.Protocol, p.Port)
			}
		}
	}
	for _, a := range svc.ClusterIPs {
		for _, p := range svc.Ports {
			if p.NodePort != 0 {
				add(netip.Addr{}, state.FamilyOf(a), p.Protocol, p.NodePort)
			}
		}
	}
	return len(f.List) > before
}

// Names lists the Services (namespace/name) that begin with a text, at most as many as said.
func (d *Daemon) Names(begin string, most int) []string {
	out := []string{}
	for _, name := range d.Store.ServiceNames() {
		if text := name.String(); len(out) < most && strings.HasPrefix(text, begin) {
			out = append(out, text)
		}
	}
	return out
}

// unsure reports whether the kernel may have something else for a Service than its object asks for.
func (d *Daemon) unsure(name ...state.Name) bool {
	if !d.Store.Synced() || d.Journal.status().LastError != "" {
		return true
	}
	c, waits := d.Store.Pending()
	return waits && slices.ContainsFunc(name, func(n state.Name) bool { return slices.Contains(c.Services, n) })
}

// ServicesOf lists the Services that have an endpoint (ADDRESS or ADDRESS:PORT). It walks over all endpoints, as an
// index would cost memory for every endpoint of the cluster, all the time: 2 ms with 100,000 endpoints.
func (d *Daemon) ServicesOf(endpoint string) (Services, error) {
	out := Services{List: []string{}}
	var port uint16
	at, err := netip.ParseAddr(endpoint)
	if err != nil {
		both, err := netip.ParseAddrPort(endpoint)
		if err != nil {
			return out, fmt.Errorf("%w: endpoint %q must be ADDRESS or ADDRESS:PORT", ErrQuestion, endpoint)
		}
		at, port = both.Addr(), both.Port()
	}
	found := map[state.Name]bool{}
	for _, sl := range d.Store.Slices() {
		if len(found) == maxServices {
			out.Unsure = true
			break
		}
		if sliceHas(sl, at, port) {
			found[sl.Service] = true
		}
	}
	list := slices.SortedFunc(maps.Keys(found), state.Name.Compare)
	for _, name := range list {
		out.List = append(out.List, name.String())
	}
	out.Unsure = out.Unsure || d.unsure(list...)
	return out, nil
}

func sliceHas(sl *state.Slice, at netip.Addr, port uint16) bool {
	if port != 0 && !slices.ContainsFunc(sl.Ports, func(p state.SlicePort) bool { return p.Port == port }) {
		return false
	}
	for i := range sl.Endpoints {
		if sl.Endpoints[i].Addr == at {
			return true
		}
	}
	return false
}
