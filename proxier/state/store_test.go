package state

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/verdict-proxy/verdict/e2e/fields"
)

var (
	web   = named("web")
	mail  = named("mail")
	slice = named("web-abc")
)

func named(name string) Name { return Name{Namespace: "default", Name: name} }

func service(n Name) *Service { return &Service{Name: n} }

func sliceOf(n, service Name, addrs ...string) *Slice {
	s := &Slice{Name: n, Service: service, Family: IPv4, Weight: DefaultWeight}
	for _, a := range addrs {
		s.Endpoints = append(s.Endpoints, Endpoint{Addr: netip.MustParseAddr(a), Ready: true})
	}
	return s
}

// syncedStore returns a store without pending changes.
func syncedStore(t *testing.T, fill ...func(*Store)) *Store {
	t.Helper()
	s := NewStore()
	for _, f := range fill {
		f(s)
	}
	s.MarkSynced()
	c, ok := s.Pending()
	if !ok {
		t.Fatal("Pending returned false for a synced store")
	}
	s.Applied(c)
	expectPending(t, s, false)
	drainWake(s)
	return s
}

func drainWake(s *Store) {
	select {
	case <-s.Wake():
	default:
	}
}

func woken(s *Store) bool {
	select {
	case <-s.Wake():
		return true
	default:
		return false
	}
}

func expectPending(t *testing.T, s *Store, environment bool, services ...Name) {
	t.Helper()
	c, ok := s.Pending()
	if !ok {
		t.Fatal("Pending returned false for a synced store")
	}
	byName := cmpopts.SortSlices(func(a, b Name) bool { return a.String() < b.String() })
	if diff := cmp.Diff(services, c.Services, byName, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("pending Services (-want +got):\n%s", diff)
	}
	if c.Environment != environment {
		t.Errorf("pending environment is %v, want %v", c.Environment, environment)
	}
}

func TestNothingIsPendingBeforeSync(t *testing.T) {
	s := NewStore()
	s.SetService(service(web), nil)
	if c, ok := s.Pending(); ok {
		t.Fatalf("Pending before MarkSynced: %+v", c)
	}
	s.MarkSynced()
	expectPending(t, s, false, web)
}

// TestChanges has one row for each way to change a store that holds the Service web with one slice.
func TestChanges(t *testing.T) {
	other := named("web-def")
	prefix := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	for _, tt := range []struct {
		name        string
		change      func(*Store)
		services    []Name
		environment bool
		quiet       bool // the store does not wake the loop
	}{
		{name: "Service added", change: func(s *Store) { s.SetService(service(mail), nil) }, services: []Name{mail}},
		{name: "Service replaced", change: func(s *Store) { s.SetService(service(web), nil) }, services: []Name{web}},
		{name: "Service deleted", change: func(s *Store) { s.DeleteService(web) }, services: []Name{web}},
		{name: "unknown Service deleted", change: func(s *Store) { s.DeleteService(mail) }, quiet: true},
		{name: "slice added", change: func(s *Store) { s.SetSlice(sliceOf(other, web), nil) }, services: []Name{web}},
		{name: "slice replaced", change: func(s *Store) { s.SetSlice(sliceOf(slice, web), nil) }, services: []Name{web}},
		{name: "slice deleted", change: func(s *Store) { s.DeleteSlice(slice) }, services: []Name{web}},
		{name: "unknown slice deleted", change: func(s *Store) { s.DeleteSlice(other) }, quiet: true},
		{name: "slice moved", change: func(s *Store) { s.SetSlice(sliceOf(slice, mail), nil) }, services: []Name{web, mail}},
		{name: "slice of an unknown Service", change: func(s *Store) { s.SetSlice(sliceOf(other, mail), nil) }, services: []Name{mail}},
		{name: "Node set", change: func(s *Store) { s.SetNode(&Node{Name: "n"}, nil) }, environment: true},
		{name: "Node gone", change: func(s *Store) { s.SetNode(nil, nil) }, environment: true},
		{name: "ranges changed", change: func(s *Store) { s.SetServiceCIDRs(prefix) }, environment: true},
		{name: "ranges equal", change: func(s *Store) { s.SetServiceCIDRs(nil) }, quiet: true},
		{name: "addresses changed", change: func(s *Store) { s.SetHostAddresses(addrs) }, environment: true},
		{name: "an API server", change: func(s *Store) { s.AddServer(netip.MustParseAddrPort("192.0.2.9:6443")) }, environment: true},
		{name: "addresses equal", change: func(s *Store) { s.SetHostAddresses([]netip.Addr{}) }, quiet: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := syncedStore(t,
				func(s *Store) { s.SetService(service(web), nil) },
				func(s *Store) { s.SetSlice(sliceOf(slice, web, "10.0.0.1"), nil) })
			tt.change(s)
			expectPending(t, s, tt.environment, tt.services...)
			if got := woken(s); got == tt.quiet {
				t.Errorf("woken: %v", got)
			}
		})
	}
}

// TestAppliedForgetsOnlyWhatItCovers: what changes while a pass runs stays pending, even if it also changed before the
// pass.
func TestAppliedForgetsOnlyWhatItCovers(t *testing.T) {
	s := syncedStore(t)
	s.SetService(service(web), nil)
	s.SetService(service(mail), nil)
	s.SetNode(&Node{Name: "n"}, nil)
	pass, _ := s.Pending()

	s.SetService(service(web), nil)
	s.Applied(pass)
	expectPending(t, s, false, web)

	late, _ := s.Pending()
	if late.Revision <= pass.Revision {
		t.Errorf("revision went from %d to %d", pass.Revision, late.Revision)
	}
	s.SetHostAddresses([]netip.Addr{netip.MustParseAddr("192.0.2.1")})
	s.Applied(late)
	expectPending(t, s, true)
}

// TestFailedPassKeepsChanges is why Applied exists. Upstream forgets changes before the write succeeds (k/k #112604).
func TestFailedPassKeepsChanges(t *testing.T) {
	s := syncedStore(t)
	s.SetService(service(web), nil)
	for range 2 {
		expectPending(t, s, false, web)
	}
	s.SetService(service(mail), nil)
	expectPending(t, s, false, web, mail)
}

// TestAppliedEarlierRevision: the late report of an earlier pass changes nothing.
func TestAppliedEarlierRevision(t *testing.T) {
	s := syncedStore(t)
	s.SetService(service(web), nil)
	first, _ := s.Pending()
	s.SetService(service(mail), nil)
	second, _ := s.Pending()
	s.Applied(second)
	s.Applied(first)
	expectPending(t, s, false)
}

func TestSlicesOfService(t *testing.T) {
	a, b, c := named("a"), named("b"), named("c")
	foreign := Name{Namespace: "other", Name: "a"}
	for _, tt := range []struct {
		name   string
		change func(*Store)
		web    []Name
		mail   []Name
	}{
		{"sorted by name", func(*Store) {}, []Name{a, c}, nil},
		{"inserted", func(s *Store) { s.SetSlice(sliceOf(b, web), nil) }, []Name{a, b, c}, nil},
		{"replaced", func(s *Store) { s.SetSlice(sliceOf(c, web), nil) }, []Name{a, c}, nil},
		{"deleted", func(s *Store) { s.DeleteSlice(a) }, []Name{c}, nil},
		{"moved", func(s *Store) { s.SetSlice(sliceOf(a, mail), nil) }, []Name{c}, []Name{a}},
		{"moved and back", func(s *Store) {
			s.SetSlice(sliceOf(a, mail), nil)
			s.SetSlice(sliceOf(a, web), nil)
		}, []Name{a, c}, nil},
		{"moved, then deleted", func(s *Store) {
			s.SetSlice(sliceOf(a, mail), nil)
			s.DeleteSlice(a)
		}, []Name{c}, nil},
		{"same name in another namespace", func(s *Store) {
			s.SetSlice(sliceOf(foreign, Name{Namespace: "other", Name: "web"}), nil)
			s.DeleteSlice(foreign)
		}, []Name{a, c}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := syncedStore(t,
				func(s *Store) { s.SetService(service(web), nil) },
				func(s *Store) { s.SetService(service(mail), nil) },
				func(s *Store) { s.SetSlice(sliceOf(c, web), nil) },
				func(s *Store) { s.SetSlice(sliceOf(a, web), nil) })
			tt.change(s)
			for n, want := range map[Name][]Name{web: tt.web, mail: tt.mail} {
				_, got := s.Service(n)
				if diff := cmp.Diff(want, names(got), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("slices of %s (-want +got):\n%s", n, diff)
				}
			}
		})
	}
}

func names(list []*Slice) []Name {
	var n []Name
	for _, s := range list {
		n = append(n, s.Name)
	}
	return n
}

// TestSlicesOutliveTheirService: a Service that is deleted and created again has its endpoints, because the watches of
// the two resources deliver in any order.
func TestSlicesOutliveTheirService(t *testing.T) {
	s := syncedStore(t)
	s.SetSlice(sliceOf(slice, web, "10.0.0.1"), nil)
	if svc, sl := s.Service(web); svc != nil || sl != nil {
		t.Fatalf("got Service %v with slices %v before the Service exists", svc, sl)
	}
	for range 2 {
		s.SetService(service(web), nil)
		if _, sl := s.Service(web); len(sl) != 1 {
			t.Fatalf("got slices %v, want one", sl)
		}
		s.DeleteService(web)
	}
}

// TestServiceHandsOutSnapshots: a list that a pass reads never changes.
func TestServiceHandsOutSnapshots(t *testing.T) {
	a, b := named("a"), named("b")
	s := syncedStore(t,
		func(s *Store) { s.SetService(service(web), nil) },
		func(s *Store) { s.SetSlice(sliceOf(a, web, "10.0.0.1"), nil) },
		func(s *Store) { s.SetSlice(sliceOf(b, web, "10.0.0.2"), nil) })
	_, before := s.Service(web)
	held := slices.Clone(before)
	s.SetSlice(sliceOf(a, web, "10.0.0.9"), nil)
	s.DeleteSlice(b)
	s.SetSlice(sliceOf(named("0"), web), nil)
	if diff := cmp.Diff(held, before, cmp.Comparer(func(x, y *Slice) bool { return x == y })); diff != "" {
		t.Errorf("the list changed (-want +got):\n%s", diff)
	}
}

func TestServiceNames(t *testing.T) {
	s := NewStore()
	s.SetService(service(web), nil)
	s.SetService(service(mail), nil)
	s.DeleteService(web)
	if got := s.ServiceNames(); !slices.Equal(got, []Name{mail}) {
		t.Errorf("got %v, want only %s", got, mail)
	}
}

func TestEnvironment(t *testing.T) {
	s := NewStore()
	node := &Node{Name: "n"}
	ranges := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	s.SetNode(node, nil)
	s.SetServiceCIDRs(ranges)
	s.SetHostAddresses(addrs)
	// The store keeps its own copies of the lists.
	ranges[0], addrs[0] = netip.Prefix{}, netip.Addr{}
	got := s.Environment()
	if got.Node != node || got.ServiceCIDRs[0].String() != "10.96.0.0/12" || got.HostAddresses[0].String() != "192.0.2.1" {
		t.Errorf("got %+v", got)
	}
	s.SetNode(nil, nil)
	if s.Environment().Node != nil {
		t.Error("SetNode(nil) left a Node")
	}
}

// TestProblemsFollowTheirObject has one row for each way in which a problem ends or stays.
// TestAPIServersAreInTheEnvironment: they are the endpoints of the Service default/kubernetes, and of no other.
func TestAPIServersAreInTheEnvironment(t *testing.T) {
	s := syncedStore(t)
	kubernetes := named("kubernetes")
	servers := func(addrs ...string) *Slice {
		sl := sliceOf(named("k"), kubernetes, addrs...)
		sl.Ports = []SlicePort{{Name: "https", Protocol: TCP, Port: 6443}}
		return sl
	}
	const both = "[192.0.2.8:6443 192.0.2.9:6443]"
	steps := []struct {
		what        string
		change      func()
		service     Name
		environment bool
		want        string
	}{
		{"one", func() { s.SetSlice(servers("192.0.2.9", "192.0.2.8"), nil) }, kubernetes, true, both},
		{"the same", func() { s.SetSlice(servers("192.0.2.8", "192.0.2.9"), nil) }, kubernetes, false, both},
		{"another Service", func() { s.SetSlice(sliceOf(slice, web, "192.0.2.7"), nil) }, web, false, both},
		{"gone", func() { s.DeleteSlice(named("k")) }, kubernetes, true, "[]"},
	}
	for _, step := range steps {
		step.change()
		expectPending(t, s, step.environment, step.service)
		if got := fmt.Sprint(s.Environment().APIServers); got != step.want {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
		c, _ := s.Pending()
		s.Applied(c)
	}
}

func TestProblemsFollowTheirObject(t *testing.T) {
	bad := func(kind string, n Name) []Problem {
		return []Problem{{Kind: kind, Object: n, Field: "f", Reason: "r"}}
	}
	node := Name{Name: "n"}
	for _, tt := range []struct {
		name string
		do   func(*Store)
		want []Problem
	}{
		{"Service with problems", func(s *Store) { s.SetService(service(web), bad("Service", web)) }, bad("Service", web)},
		{"Service repaired", func(s *Store) {
			s.SetService(service(web), bad("Service", web))
			s.SetService(service(web), nil)
		}, nil},
		{"Service deleted", func(s *Store) {
			s.SetService(service(web), bad("Service", web))
			s.DeleteService(web)
		}, nil},
		{"object that is not served", func(s *Store) { s.SetProblems("Service", web, bad("Service", web)) }, bad("Service", web)},
		{"object that was not served deleted", func(s *Store) {
			s.SetProblems("Service", web, bad("Service", web))
			s.DeleteService(web)
		}, nil},
		{"slice deleted", func(s *Store) {
			s.SetSlice(sliceOf(slice, web), bad("EndpointSlice", slice))
			s.DeleteSlice(slice)
		}, nil},
		{"slice that was not served deleted", func(s *Store) {
			s.SetProblems("EndpointSlice", slice, bad("EndpointSlice", slice))
			s.DeleteSlice(slice)
		}, nil},
		{"equal names of different kinds", func(s *Store) {
			s.SetService(service(web), bad("Service", web))
			s.SetSlice(sliceOf(web, web), bad("EndpointSlice", web))
			s.DeleteSlice(web)
		}, bad("Service", web)},
		{"Node with problems", func(s *Store) { s.SetNode(&Node{Name: "n"}, bad("Node", node)) }, bad("Node", node)},
		{"Node gone", func(s *Store) {
			s.SetNode(&Node{Name: "n"}, bad("Node", node))
			s.SetNode(nil, nil)
		}, nil},
		{"another Node", func(s *Store) {
			s.SetNode(&Node{Name: "n"}, bad("Node", node))
			s.SetNode(&Node{Name: "m"}, nil)
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := NewStore()
			tt.do(s)
			if diff := cmp.Diff(tt.want, s.Problems(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProblemsAreSorted(t *testing.T) {
	s := NewStore()
	want := []Problem{
		{Kind: "EndpointSlice", Object: web, Field: "a", Reason: "x"},
		{Kind: "Service", Object: mail, Field: "z", Reason: "x"},
		{Kind: "Service", Object: web, Field: "a", Reason: "x"},
		{Kind: "Service", Object: web, Field: "a", Reason: "y"},
		{Kind: "Service", Object: web, Field: "b", Reason: "x"},
	}
	s.SetProblems("Service", web, []Problem{want[4], want[3], want[2]})
	s.SetProblems("EndpointSlice", web, want[:1])
	s.SetProblems("Service", mail, want[1:2])
	for range 10 {
		if diff := cmp.Diff(want, s.Problems()); diff != "" {
			t.Fatalf("problems (-want +got):\n%s", diff)
		}
	}
}

// TestProblemOrderLooksAtEveryField: otherwise Problems would return some of them in random order.
func TestProblemOrderLooksAtEveryField(t *testing.T) {
	base := Problem{Kind: "Service", Object: web, Field: "spec.ports", Reason: "missing"}
	for path, changed := range fields.Each(base) {
		if base.Compare(changed) == 0 || changed.Compare(base) == 0 {
			t.Errorf("Compare ignores %s", path)
		}
	}
}

// TestConcurrentUse is for the race detector. It also checks that no change gets lost.
func TestConcurrentUse(t *testing.T) {
	s := syncedStore(t)
	var writers sync.WaitGroup
	const each = 200
	for w := range 4 {
		writers.Go(func() {
			for i := range each {
				n := named(fmt.Sprintf("s%d-%d", w, i))
				s.SetService(service(n), nil)
				s.SetSlice(sliceOf(n, n, "10.0.0.1"), nil)
			}
		})
	}
	seen := map[Name]bool{}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		for len(seen) < 4*each {
			<-s.Wake()
			c, _ := s.Pending()
			for _, n := range c.Services {
				if svc, _ := s.Service(n); svc != nil {
					seen[n] = true
				}
			}
			s.Applied(c)
		}
	}()
	writers.Wait()
	<-reading
	if got := len(s.ServiceNames()); got != 4*each {
		t.Errorf("%d Services, want %d", got, 4*each)
	}
}

// BenchmarkOneChange shows that the cost of a change depends neither on what the store holds nor on what it once held.
func BenchmarkOneChange(b *testing.B) {
	for _, size := range []int{100, 50_000} {
		b.Run(fmt.Sprintf("services=%d", size), func(b *testing.B) {
			s := NewStore()
			for i := range size {
				n := named(fmt.Sprintf("s%d", i))
				s.SetService(service(n), nil)
				s.SetSlice(sliceOf(n, n, "10.0.0.1"), nil)
			}
			s.MarkSynced()
			all, _ := s.Pending()
			s.Applied(all)
			changed := sliceOf(named("s7"), named("s7"), "10.0.0.2")
			for b.Loop() {
				s.SetSlice(changed, nil)
				c, _ := s.Pending()
				for _, n := range c.Services {
					s.Service(n)
				}
				s.Applied(c)
			}
		})
	}
}
