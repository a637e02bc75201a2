package state

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
)

// Store holds the wanted state of the whole cluster. All methods may be called from any goroutine; values handed
// in and out are shared and must not be changed afterwards.
type Store struct {
	mu       sync.Mutex
	services map[Name]*Service
	slices   map[Name]map[string]*Slice // by Service, then slice name
	owners   map[Name]Name              // slice -> Service it was filed under
	problems map[objectKey][]Problem

	node         *Node
	serviceCIDRs []netip.Prefix
	hostAddrs    []netip.Addr

	revision uint64
	dirty    map[Name]uint64 // Service -> revision of its latest change
	envDirty uint64          // revision of the latest change of node, ranges or host addresses
	synced   bool
	wake     chan struct{}
}

type objectKey struct {
	kind string
	name Name
}

// NewStore returns an empty store that is not yet synced.
func NewStore() *Store {
	return &Store{
		services: map[Name]*Service{},
		slices:   map[Name]map[string]*Slice{},
		owners:   map[Name]Name{},
		problems: map[objectKey][]Problem{},
		dirty:    map[Name]uint64{},
		wake:     make(chan struct{}, 1),
	}
}

// Wake delivers a value after a change; several changes may share one value.
func (s *Store) Wake() <-chan struct{} { return s.wake }

func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// touch marks a Service as changed. The caller holds mu.
func (s *Store) touch(n Name) {
	s.revision++
	s.dirty[n] = s.revision
	s.signal()
}

func (s *Store) touchEnv() {
	s.revision++
	s.envDirty = s.revision
	s.signal()
}

// MarkSynced says that every source has delivered its first complete list. Nothing may be programmed before.
func (s *Store) MarkSynced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
	s.signal()
}

// SetService adds or replaces a Service together with what was wrong with the object.
func (s *Store) SetService(svc *Service, problems []Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services[svc.Name] = svc
	s.setProblems("Service", svc.Name, problems)
	s.touch(svc.Name)
}

// DeleteService removes a Service; an unknown name is no change.
func (s *Store) DeleteService(n Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setProblems("Service", n, nil)
	if _, ok := s.services[n]; !ok {
		return
	}
	delete(s.services, n)
	s.touch(n)
}

// SetSlice adds or replaces an EndpointSlice. A slice that moved to another Service changes both.
func (s *Store) SetSlice(sl *Slice, problems []Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setProblems("EndpointSlice", sl.Name, problems)
	if owner, ok := s.owners[sl.Name]; ok && owner != sl.Service {
		s.removeSlice(sl.Name)
	}
	if s.slices[sl.Service] == nil {
		s.slices[sl.Service] = map[string]*Slice{}
	}
	s.slices[sl.Service][sl.Name.Name] = sl
	s.owners[sl.Name] = sl.Service
	s.touch(sl.Service)
}

// DeleteSlice removes an EndpointSlice; an unknown name is no change.
func (s *Store) DeleteSlice(n Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setProblems("EndpointSlice", n, nil)
	s.removeSlice(n)
}

func (s *Store) removeSlice(n Name) {
	owner, ok := s.owners[n]
	if !ok {
		return
	}
	delete(s.owners, n)
	delete(s.slices[owner], n.Name)
	if len(s.slices[owner]) == 0 {
		delete(s.slices, owner)
	}
	s.touch(owner)
}

// SetProblems records what is wrong with an object that is not served at all (for example one that did not parse).
func (s *Store) SetProblems(kind string, n Name, problems []Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setProblems(kind, n, problems)
	s.signal()
}

func (s *Store) setProblems(kind string, n Name, problems []Problem) {
	if len(problems) == 0 {
		delete(s.problems, objectKey{kind, n})
		return
	}
	s.problems[objectKey{kind, n}] = problems
}

// SetNode replaces the own Node; nil says that there is none.
func (s *Store) SetNode(n *Node, problems []Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n != nil {
		s.setProblems("Node", Name{Name: n.Name}, problems)
	}
	s.node = n
	s.touchEnv()
}

// SetServiceCIDRs replaces the ranges from which cluster IPs are allocated.
func (s *Store) SetServiceCIDRs(ranges []netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.serviceCIDRs, ranges) {
		return
	}
	s.serviceCIDRs = slices.Clone(ranges)
	s.touchEnv()
}

// SetHostAddresses replaces the addresses that are local to this host, sorted by the caller.
func (s *Store) SetHostAddresses(addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.hostAddrs, addrs) {
		return
	}
	s.hostAddrs = slices.Clone(addrs)
	s.touchEnv()
}

// Environment is everything outside Services that planning needs.
type Environment struct {
	Node          *Node // nil: no Node object (yet)
	ServiceCIDRs  []netip.Prefix
	HostAddresses []netip.Addr
}

// Changes is what changed up to Revision and has not been reported as applied.
type Changes struct {
	Revision    uint64
	Services    []Name // in no particular order
	Environment bool
}

// Pending returns the changes that no successful pass has covered yet; ok is false before MarkSynced.
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

// Applied forgets the changes up to a revision: the kernel has them. Later changes stay pending.
func (s *Store) Applied(revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.dirty, func(_ Name, r uint64) bool { return r <= revision })
	if s.envDirty <= revision {
		s.envDirty = 0
	}
}

// Touch marks a Service as changed although its object did not: something it depends on outside the store did.
func (s *Store) Touch(n Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch(n)
}

// Service returns one Service (nil when there is none) and its slices, sorted by name.
func (s *Store) Service(n Name) (*Service, []*Slice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	svc := s.services[n]
	if svc == nil {
		return nil, nil
	}
	sl := slices.Collect(maps.Values(s.slices[n]))
	slices.SortFunc(sl, func(a, b *Slice) int {
		switch {
		case a.Name.Name < b.Name.Name:
			return -1
		case a.Name.Name > b.Name.Name:
			return 1
		}
		return 0
	})
	return svc, sl
}

// ServiceNames lists all Services, in no particular order.
func (s *Store) ServiceNames() []Name {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.services))
}

// Environment returns the present environment.
func (s *Store) Environment() Environment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Environment{Node: s.node, ServiceCIDRs: s.serviceCIDRs, HostAddresses: s.hostAddrs}
}

// Problems lists every object that could not be understood in full.
func (s *Store) Problems() []Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Problem
	for _, p := range s.problems {
		all = append(all, p...)
	}
	return all
}
