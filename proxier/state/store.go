package state

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Store holds the wanted state of the whole cluster. All methods may be called from any goroutine. Values that go in
// and out are shared, so nobody may change them afterwards.
type Store struct {
	whole    sync.RWMutex // Together holds it; Take and Service wait for its end
	mu       sync.Mutex
	services map[Name]*Service
	slices   map[Name]*Slice   // by the slice's own name
	members  map[Name][]*Slice // by Service, sorted by slice name; never changed in place, because readers hold the lists
	health   map[Name]Health
	problems map[Object][]Problem
	// problemsOf holds the objects whose problems changed since the last call of ChangedProblems.
	problemsOf map[Object]struct{}

	node         *Node
	serviceCIDRs []netip.Prefix
	hostAddrs    []netip.Addr
	primary      []netip.Addr
	apiServers   []netip.AddrPort // the endpoints of the Service default/kubernetes, sorted
	connected    []netip.AddrPort // see AddServer; never changed in place

	revision uint64
	dirty    map[Name]pending // the Services with changes that the kernel does not have
	counts   ChangeCounts
	queue    Turns[string] // the names of those that no pass has taken since
	envDirty uint64        // revision of the latest change of node, ranges or host addresses; 0: no change
	synced   bool
	wake     chan struct{}
}

// NewStore returns an empty store that is not synced yet.
func NewStore() *Store {
	return &Store{
		services: map[Name]*Service{},
		slices:   map[Name]*Slice{},
		members:  map[Name][]*Slice{},
		health:   map[Name]Health{},
		problems: map[Object][]Problem{},
		dirty:    map[Name]pending{},
		queue:    NewTurns[string](),
		wake:     make(chan struct{}, 1),

		problemsOf: map[Object]struct{}{},
	}
}

// Wake delivers a value after a change. Several changes may share one value.
func (s *Store) Wake() <-chan struct{} { return s.wake }

func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// touch marks a Service as changed. The caller holds mu.
func (s *Store) touch(n Name, kind changeKinds) {
	s.revision++
	before := s.dirty[n]
	if !before.queued {
		s.queue.Push(n.Namespace, n.Name)
	}
	s.counts.changed(before.kinds, kind)
	s.dirty[n] = pending{latest: s.revision, queued: true, kinds: before.kinds | kind}
	s.signal()
}

func (s *Store) touchEnv() {
	s.revision++
	s.envDirty = s.revision
	s.signal()
}

// MarkSynced records that every source has delivered its first complete list. The loop programs nothing before that.
func (s *Store) MarkSynced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
	s.forgetHealth()
	s.signal()
}

// Synced reports whether MarkSynced was called.
func (s *Store) Synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// Together calls a function that makes several changes. Take and Service see all of them or none.
func (s *Store) Together(change func()) {
	s.whole.Lock()
	defer s.whole.Unlock()
	change()
}

// SetService adds or replaces a Service and the problems of its object.
func (s *Store) SetService(svc *Service, problems []Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services[svc.Name] = svc
	s.setProblems("Service", svc.Name, problems)
	s.touch(svc.Name, serviceChanged)
}

// DeleteService removes a Service. An unknown name is no change.
func (s *Store) DeleteService(n Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setProblems("Service", n, nil)
	if _, ok := s.services[n]; !ok {
		return
	}
	delete(s.services, n)
	delete(s.health, n)
	s.touch(n, serviceChanged)
}

// SetSlice adds or replaces an EndpointSlice. A slice that moved to another Service changes both Services.
func (s *Store) SetSlice(sl *Slice, problems []Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setProblems("EndpointSlice", sl.Name, problems)
	if old := s.slices[sl.Name]; old != nil && old.Service != sl.Service {
		s.removeSlice(sl.Name)
	}
	s.slices[sl.Name] = sl
	s.members[sl.Service] = withSlice(s.members[sl.Service], sl)
	s.touchMembers(sl.Service)
}

// apiServer is the Service whose endpoints are the API servers.
var apiServer = Name{Namespace: "default", Name: "kubernetes"}

// touchMembers marks a Service as changed whose slices changed. The caller holds mu.
func (s *Store) touchMembers(service Name) {
	s.touch(service, endpointsChanged)
	if service != apiServer {
		return
	}
	if list := endpointsOf(s.members[service]); !slices.Equal(list, s.apiServers) {
		s.apiServers = list
		s.touchEnv()
	}
}

// endpointsOf lists the endpoints in a list of slices with each of their ports, each once and sorted.
func endpointsOf(list []*Slice) (out []netip.AddrPort) {
	for _, sl := range list {
		for i := range sl.Endpoints {
			for _, p := range sl.Ports {
				out = append(out, netip.AddrPortFrom(sl.Endpoints[i].Addr, p.Port))
			}
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}

// withSlice returns a copy of a sorted list with sl inserted, or with sl in place of the slice of the same name.
func withSlice(list []*Slice, sl *Slice) []*Slice {
	at, found := slices.BinarySearchFunc(list, sl.Name.Name, compareSliceName)
	grown := make([]*Slice, 0, len(list)+1)
	grown = append(append(grown, list[:at]...), sl)
	if found {
		at++
	}
	return append(grown, list[at:]...)
}

func compareSliceName(sl *Slice, name string) int { return strings.Compare(sl.Name.Name, name) }

// DeleteSlice removes an EndpointSlice. An unknown name is no change.
func (s *Store) DeleteSlice(n Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setProblems("EndpointSlice", n, nil)
	s.removeSlice(n)
}

func (s *Store) removeSlice(n Name) {
	old := s.slices[n]
	if old == nil {
		return
	}
	delete(s.slices, n)
	remaining := slices.DeleteFunc(slices.Clone(s.members[old.Service]), func(sl *Slice) bool { return sl.Name == n })
	if len(remaining) == 0 {
		delete(s.members, old.Service)
	} else {
		s.members[old.Service] = remaining
	}
	s.touchMembers(old.Service)
}

// SetProblems records the problems of an object that is not served at all, for example one that did not parse.
func (s *Store) SetProblems(kind string, n Name, problems []Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setProblems(kind, n, problems)
	s.signal()
}

func (s *Store) setProblems(kind string, n Name, problems []Problem) {
	key := Object{Kind: kind, Name: n}
	if slices.Equal(s.problems[key], problems) {
		return
	}
	s.problemsOf[key] = struct{}{}
	if len(problems) == 0 {
		delete(s.problems, key)
		return
	}
	s.problems[key] = problems
}

// ChangedProblems returns the objects whose problems changed since the last call, in no particular order.
func (s *Store) ChangedProblems() []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.problemsOf) == 0 {
		return nil
	}
	changed := slices.Collect(maps.Keys(s.problemsOf))
	s.problemsOf = map[Object]struct{}{} // a new map, because the old one keeps its size
	return changed
}

// ProblemsOf returns the problems of one object.
func (s *Store) ProblemsOf(o Object) []Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problems[o]
}

// SetNode replaces this node's Node object. Nil means that there is none.
func (s *Store) SetNode(n *Node, problems []Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil {
		// The problems of the previous Node go with it.
		s.setProblems("Node", Name{Name: s.node.Name}, nil)
	}
	if n != nil {
		s.setProblems("Node", Name{Name: n.Name}, problems)
	}
	s.node = n
	s.touchEnv()
}

// SetServiceCIDRs replaces the ranges from which the API server allocates cluster IPs.
func (s *Store) SetServiceCIDRs(ranges []netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.serviceCIDRs, ranges) {
		return
	}
	s.serviceCIDRs = slices.Clone(ranges)
	s.touchEnv()
}

// SetHostAddresses replaces the addresses that are local to this host. The caller sorts them.
func (s *Store) SetHostAddresses(addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.hostAddrs, addrs) {
		return
	}
	s.hostAddrs = slices.Clone(addrs)
	s.touchEnv()
}

// NotePrimary records that the host has these main addresses from now on. Who plans without a Node object reads them again.
func (s *Store) NotePrimary(addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.primary, addrs) {
		return
	}
	s.primary = slices.Clone(addrs)
	s.touchEnv()
}

// maxConnected is how many addresses AddServer keeps. A load balancer of API servers has a few.
const maxConnected = 64

// AddServer records an address and port at which this process has reached the API server, or may reach it. It stays when
// the connection ends: the process comes back to it. The oldest makes room.
func (s *Store) AddServer(at netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.connected, at) {
		return
	}
	keep := s.connected[max(0, len(s.connected)+1-maxConnected):]
	s.connected = append(slices.Clone(keep), at)
	s.touchEnv()
}

// Environment is everything that planning needs besides Services and slices.
type Environment struct {
	Node          *Node // nil: no Node object (yet)
	ServiceCIDRs  []netip.Prefix
	HostAddresses []netip.Addr
	APIServers    []netip.AddrPort // the endpoints of the Service default/kubernetes, sorted
	Connected     []netip.AddrPort // where AddServer says that API servers are
}

// Changes are changes up to Revision that Applied has not confirmed.
type Changes struct {
	Revision    uint64
	Services    []Name
	Environment bool
}

// Pending returns all changes that no successful pass has covered yet, in no particular order. It takes none, and
// returns false before MarkSynced.
func (s *Store) Pending() (c Changes, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced {
		return Changes{}, false
	}
	return Changes{
		Revision:    s.revision,
		Services:    slices.Collect(maps.Keys(s.dirty)),
		Environment: s.envDirty != 0,
	}, true
}

// Take returns at most n Services that have changed and that no pass has taken since. Namespaces have turns, so that a
// tenant with many changes does not keep the others waiting. In a namespace, the change that waits longest comes first.
// What was taken stays pending until Applied. Take returns false before MarkSynced.
func (s *Store) Take(n int) (c Changes, ok bool) {
	s.whole.RLock()
	defer s.whole.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced {
		return Changes{}, false
	}
	c = Changes{Revision: s.revision, Environment: s.envDirty != 0}
	for len(c.Services) < n {
		namespace, own, some := s.queue.Pop()
		if !some {
			break
		}
		name := Name{Namespace: namespace, Name: own}
		if p := s.dirty[name]; p.queued {
			s.dirty[name] = pending{latest: p.latest, kinds: p.kinds}
			c.Services = append(c.Services, name)
		}
	}
	return c, true
}

// Hold keeps Take from returning Services of a namespace for some time. Their changes stay pending.
func (s *Store) Hold(namespace string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.Hold(namespace)
	time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queue.Release(namespace)
		s.signal()
	})
}

// Rest reports whether Services wait to be taken.
func (s *Store) Rest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced && !s.queue.Empty()
}

// Fresh reports whether the Service that Take returns next belongs to a namespace that had no turn yet.
func (s *Store) Fresh() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced && len(s.queue.fresh) > 0
}

// Applied forgets some changes up to their revision, because the kernel has them. Later changes stay pending.
func (s *Store) Applied(c Changes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range c.Services {
		if p := s.dirty[n]; p.latest <= c.Revision {
			s.counts.applied(p.kinds)
			delete(s.dirty, n)
		}
	}
	if len(s.dirty) == 0 {
		// A map keeps the size that it once had, and walking it costs that size.
		s.dirty = map[Name]pending{}
	}
	if c.Environment && s.envDirty <= c.Revision {
		s.envDirty = 0
	}
}

// Service returns a Service and its slices, sorted by name. It returns nil when there is no such Service.
func (s *Store) Service(n Name) (*Service, []*Slice) {
	s.whole.RLock()
	defer s.whole.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	svc := s.services[n]
	if svc == nil {
		return nil, nil
	}
	return svc, s.members[n]
}

// Slices lists all slices, in no particular order.
func (s *Store) Slices() []*Slice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.slices))
}

// ServiceNames lists all Services, in no particular order.
func (s *Store) ServiceNames() []Name {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.services))
}

// Environment returns the current environment.
func (s *Store) Environment() Environment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Environment{
		Node: s.node, ServiceCIDRs: s.serviceCIDRs, HostAddresses: s.hostAddrs, APIServers: s.apiServers,
		Connected: s.connected,
	}
}

// Problems lists the problems of all objects, sorted by kind, object, field and reason.
func (s *Store) Problems() []Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Problem
	for _, p := range s.problems {
		all = append(all, p...)
	}
	slices.SortFunc(all, Problem.Compare)
	return all
}

// Compare orders Problems. It looks at every field, so that the order of a list never depends on chance.
func (p Problem) Compare(other Problem) int {
	return cmp.Or(
		strings.Compare(p.Kind, other.Kind),
		p.Object.Compare(other.Object),
		strings.Compare(p.Field, other.Field),
		strings.Compare(p.Reason, other.Reason),
		cmp.Compare(p.More, other.More),
	)
}
