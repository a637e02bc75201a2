package state

import (
	"maps"
	"net/netip"
	"slices"
)

// Store holds the wanted state of the whole cluster. All methods may be called from any goroutine. Values that go in
// and out are shared, so nobody may change them afterwards.
type Store struct {
	backlog
	devices
	services map[Name]*Service
	slices   map[Name]*Slice   // by the slice's own name
	members  map[Name][]*Slice // by Service, sorted by slice name; never changed in place, because readers hold the lists
	health   map[Name]Health
	problems problems
	env      Environment // its lists are never changed in place
	primary  []netip.Addr
}

// NewStore returns an empty store that is not synced yet.
func NewStore() *Store {
	return &Store{
		backlog:  backlog{dirty: map[Name]pending{}, queue: NewTurns[string](), first: NewTurns[string](), wake: make(chan struct{}, 1)},
		services: map[Name]*Service{},
		slices:   map[Name]*Slice{},
		members:  map[Name][]*Slice{},
		health:   map[Name]Health{},
		problems: problems{of: map[Object][]Problem{}, changed: map[Object]struct{}{}},
	}
}

// MarkSynced records that every source has delivered its first complete list. The loop programs nothing before that.
func (s *Store) MarkSynced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
	maps.DeleteFunc(s.health, func(n Name, _ Health) bool { return s.services[n] == nil })
	s.signal()
}

// SetService adds or replaces a Service and the problems of its object.
func (s *Store) SetService(svc *Service, problems []Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services[svc.Name] = svc
	s.problems.set("Service", svc.Name, problems)
	s.touch(svc.Name, serviceChanged)
}

// DeleteService removes a Service. An unknown name is no change.
func (s *Store) DeleteService(n Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems.set("Service", n, nil)
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
	s.problems.set("EndpointSlice", sl.Name, problems)
	old := s.slices[sl.Name]
	if old != nil && old.Service != sl.Service {
		s.removeSlice(sl.Name)
		old = nil
	}
	s.slices[sl.Name] = sl
	s.members[sl.Service] = withSlice(s.members[sl.Service], sl)
	s.touchMembers(sl.Service, changeOf(old.ready(), sl.ready()))
}

// ready returns how many endpoints of a slice are ready; nil: none.
func (sl *Slice) ready() (n int) {
	if sl != nil {
		for i := range sl.Endpoints {
			if sl.Endpoints[i].Ready {
				n++
			}
		}
	}
	return n
}

// changeOf says what became of the endpoints of a slice. Where as many are ready as before, one was replaced.
func changeOf(before, now int) changeKinds {
	switch {
	case now > before:
		return endpointAdded
	case now < before:
		return endpointRemoved
	}
	return endpointsChanged
}

// touchMembers marks a Service as changed whose slices changed. The caller holds mu.
func (s *Store) touchMembers(service Name, kind changeKinds) {
	s.touch(service, kind)
	if service != APIServer() {
		return
	}
	if list := endpointsOf(s.members[service]); !slices.Equal(list, s.env.APIServers) {
		s.env.APIServers = list
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
	at, found := slices.BinarySearchFunc(list, sl.Name, func(a *Slice, name Name) int { return a.Compare(name) })
	grown := make([]*Slice, 0, len(list)+1)
	grown = append(append(grown, list[:at]...), sl)
	if found {
		at++
	}
	return append(grown, list[at:]...)
}

// DeleteSlice removes an EndpointSlice. An unknown name is no change.
func (s *Store) DeleteSlice(n Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems.set("EndpointSlice", n, nil)
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
	s.touchMembers(old.Service, endpointRemoved)
}

// SetHealth replaces what is known about the endpoints of a Service; nil: all of them are good. It is a change of the
// Service like any other. Health may come before the Service, until MarkSynced: what has no Service by then is forgotten.
func (s *Store) SetHealth(n Name, h Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.synced && s.services[n] == nil || slices.Equal(s.health[n], h) {
		return
	}
	if s.health[n] = h; len(h) == 0 {
		delete(s.health, n)
	}
	s.touch(n, healthChanged)
}

// Health returns what is known about the endpoints of a Service.
func (s *Store) Health(n Name) Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.health[n]
}

// SetProblems records the problems of an object that is not served at all, for example one that did not parse.
func (s *Store) SetProblems(kind string, n Name, problems []Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems.set(kind, n, problems)
	s.signal()
}

// ChangedProblems returns the objects whose problems changed since the last call, in no particular order.
func (s *Store) ChangedProblems() []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := slices.Collect(maps.Keys(s.problems.changed))
	if len(changed) > 0 {
		s.problems.changed = map[Object]struct{}{} // a new map, because the old one keeps its size
	}
	return changed
}

// ProblemsOf returns the problems of one object.
func (s *Store) ProblemsOf(o Object) []Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problems.of[o]
}

// SetNode replaces this node's Node object. Nil means that there is none.
func (s *Store) SetNode(n *Node, problems []Problem) {
	s.changeEnv(func() {
		if s.env.Node != nil {
			// The problems of the previous Node go with it.
			s.problems.set("Node", Name{Name: s.env.Node.Name}, nil)
		}
		if n != nil {
			s.problems.set("Node", Name{Name: n.Name}, problems)
		}
		s.env.Node = n
	})
}

// SetServiceCIDRs replaces the ranges from which the API server allocates cluster IPs.
func (s *Store) SetServiceCIDRs(ranges []netip.Prefix) { setList(s, &s.env.ServiceCIDRs, ranges) }

// SetHostAddresses replaces the addresses that are local to this host. The caller sorts them.
func (s *Store) SetHostAddresses(addrs []netip.Addr) { setList(s, &s.env.HostAddresses, addrs) }

// NotePrimary records that the host has these main addresses from now on. Who plans without a Node object reads them again.
func (s *Store) NotePrimary(addrs []netip.Addr) { setList(s, &s.primary, addrs) }

// setList replaces a list, and marks the Environment as changed if the list differs.
func setList[T comparable](s *Store, at *[]T, list []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(*at, list) {
		return
	}
	*at = slices.Clone(list)
	s.touchEnv()
}

// maxConnected is how many addresses AddServer keeps. A load balancer of API servers has a few.
const maxConnected = 64

// AddServer records an address and port at which this process has reached the API server, or may reach it. It stays when
// the connection ends: the process comes back to it. The oldest makes room.
func (s *Store) AddServer(at netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.env.Connected, at) {
		return
	}
	keep := s.env.Connected[max(0, len(s.env.Connected)+1-maxConnected):]
	s.env.Connected = append(slices.Clone(keep), at)
	s.touchEnv()
}

// Drain is how far this node has stopped serving, because somebody asked for it.
type Drain uint8

// The values of Drain.
const (
	NotDraining Drain = iota
	Withdrawn         // the addresses of frontends leave the host; new connections that still arrive are served
	Refusing          // no Service takes new connections; those that are open go on
)

// SetDrain records how far this node has stopped serving.
func (s *Store) SetDrain(d Drain) { s.changeEnv(func() { s.env.Drain = d }) }

// SetLeaving records why this node is about to go, although its Node object does not say so.
func (s *Store) SetLeaving(because string) { s.changeEnv(func() { s.env.Leaving = because }) }

// SettingsChanged records that settings have changed, of which planning makes its environment.
func (s *Store) SettingsChanged() { s.changeEnv(func() {}) }

// Environment is everything that planning needs besides Services and slices.
type Environment struct {
	Node          *Node // nil: no Node object (yet)
	ServiceCIDRs  []netip.Prefix
	HostAddresses []netip.Addr
	APIServers    []netip.AddrPort // the endpoints of the Service default/kubernetes, sorted
	Connected     []netip.AddrPort // where AddServer says that API servers are
	Drain         Drain
	Leaving       string // why this node is about to go, besides what the Node says; "": it is not
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
	return s.env
}

// Problems lists the problems of all objects, sorted by kind, object, field and reason.
func (s *Store) Problems() []Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Problem
	for _, p := range s.problems.of {
		all = append(all, p...)
	}
	slices.SortFunc(all, Problem.Compare)
	return all
}
