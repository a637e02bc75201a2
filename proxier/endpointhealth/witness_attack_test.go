package endpointhealth

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestServerIsAWitness: one witness is an endpoint of the API server, however many namespaces there are.
func TestServerIsAWitness(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	for i := range 200 {
		name := state.Name{Namespace: fmt.Sprintf("tenant-%d", i), Name: "web"}
		w.Store.SetSlice(&state.Slice{
			Name: name, Service: name, Family: state.IPv4, Weight: 1, Ports: []state.SlicePort{{Protocol: state.TCP, Port: 80}},
			Endpoints: []state.Endpoint{{Addr: numbered(i, 80).Addr(), Ready: true, Node: "other"}},
		}, nil)
	}
	server := at(1)
	w.Store.SetService(&state.Service{Name: kubernetesService()}, nil)
	w.Store.SetSlice(&state.Slice{
		Name: kubernetesService(), Service: kubernetesService(), Family: state.IPv4, Weight: 1,
		Ports:     []state.SlicePort{{Protocol: state.TCP, Port: server.Port()}},
		Endpoints: []state.Endpoint{{Addr: server.Addr(), Ready: true, Node: "control-plane"}},
	}, nil)
	everything := map[string]checks.Doubts{"evil": {
		Nodes: map[string]bool{"other": true, "control-plane": true, "": true}, Addrs: map[netip.Addr]bool{server.Addr(): true},
	}}
	for range 20 {
		list := w.walker.witnesses(everything)
		if len(list) != 1+maxWitnesses || !slices.Contains(list, witness{at: server, alone: true}) {
			t.Fatalf("witnesses %v, want %s and %d more", list, server, maxWitnesses)
		}
	}
	w.Store.SetHostAddresses([]netip.Addr{server.Addr()})
	if list := w.walker.witnesses(everything); len(list) != maxWitnesses || slices.ContainsFunc(list, func(of witness) bool { return of.at == server }) {
		t.Errorf("witnesses %v: the API server is on this node", list)
	}
}

// TestManyDoubtedNodes: a tenant names a thousand nodes for endpoints that fail, and has ten thousand more on the last of them. The
// walk for witnesses, which all tenants wait for, takes about as long as with one node.
func TestManyDoubtedNodes(t *testing.T) {
	const many = 1000
	w := newWorld(t, func(*Options) {})
	sl := &state.Slice{Name: web, Service: web, Family: state.IPv4, Weight: 1, Ports: []state.SlicePort{{Protocol: state.TCP, Port: 8080}}}
	var nodes []string
	for i := range many {
		nodes = append(nodes, fmt.Sprintf("a-node-of-the-tenant-%04d", i))
	}
	for i := range 10 * many {
		sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: numbered(i, 80).Addr(), Ready: true, Node: nodes[many-1]})
	}
	w.Store.SetSlice(sl, nil)
	took := func(failing []string) (least time.Duration) {
		doubts := map[string]checks.Doubts{web.Namespace: {Nodes: map[string]bool{}}}
		for _, node := range failing {
			doubts[web.Namespace].Nodes[node] = true
		}
		for range 10 {
			began := time.Now()
			if found := w.walker.witnesses(doubts); len(found) > 0 {
				t.Fatalf("%v are witnesses, and their nodes are in doubt", found)
			}
			if d := time.Since(began); least == 0 || d < least {
				least = d
			}
		}
		return least
	}
	if one, all := took(nodes[many-1:]), took(nodes); all > 50*one {
		t.Errorf("%s with one node in doubt, %s with %d", one, all, many)
	}
}

// TestSilentTenant: a tenant writes silent endpoints under the name of every node, the addresses of the API server and of other
// tenants' endpoints at silent ports, and a slice without a Service. The dead endpoint of another Service is ejected all the same:
// with an API server, while that is silent, and where there is none.
func TestSilentTenant(t *testing.T) {
	for _, tt := range []struct {
		name           string
		folder, server bool // as in a cluster, or as on a balancer
		silentServer   bool
		others         int // namespaces with witnesses
	}{
		{"the API server answers", false, true, false, 0},
		{"the API server answers a balancer", true, true, false, 0},
		{"the API server is silent, and others answer", false, true, true, 2},
		{"no API server, and another answers", false, false, false, 1},
		{"no API server on a balancer, and another answers", true, false, false, 1},
		{"no witness but the tenant's", false, false, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSilentTenant(t, tt.folder, tt.server, tt.others)
				s.dead.Store(true)
				s.serverDead.Store(tt.silentServer)
				<-time.After(10 * time.Second)
				if h := s.Store.Health(web); len(h) != 1 || h[0].At != at(1) {
					t.Errorf("%v have failed, want %s", h, at(1))
				}
			})
		})
	}
}

// TestLyingTenant: a tenant writes endpoints of this node under the names of other nodes. When this node loses its network, they
// answer, and nothing is ejected all the same.
func TestLyingTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilentTenant(t, false, true, 2)
		s.lost.Store(true)
		<-time.After(10 * time.Second)
		if h := s.Store.Health(web); len(h) > 0 {
			t.Errorf("%v have failed, want none", h)
		}
	})
}

// silentTenant is a running Monitor beside what a tenant wrote. Clients get no answer from one endpoint of the Service web, nor from
// the tenant's.
type silentTenant struct {
	*world
	dead, serverDead, lost atomic.Bool
}

func newSilentTenant(t *testing.T, folder, server bool, others int) *silentTenant {
	s, evil := &silentTenant{}, state.Name{Namespace: "evil", Name: "web"}
	api, begin := at(200), time.Now()
	var silent []netip.AddrPort
	s.world = newWorld(t, func(o *Options) {
		if folder {
			o.Settings.Manifests = "/etc/verdict"
		}
		o.Suspicions = func(bool) (list []Suspicion, err error) {
			for _, of := range append(silent, at(1)) {
				list = append(list, Suspicion{Endpoint: of, Packets: uint64(time.Since(begin) / time.Second)})
			}
			return list, nil
		}
		o.Ask = func(ctx context.Context, q *probe.Question) probe.Answer {
			lies := s.lost.Load() && q.At.Addr().As4()[1] == 66 // the pod is on this node
			if !lies && (s.lost.Load() || s.dead.Load() && q.At == at(1) || slices.Contains(silent, q.At) || s.serverDead.Load() && q.At == api) {
				select {
				case <-time.After(650 * time.Millisecond):
				case <-ctx.Done():
				}
				return probe.Answer{Fault: probe.NoAnswer}
			}
			return probe.Answer{Connected: true}
		}
	})
	s.serve(&state.Service{Name: web}, []netip.AddrPort{at(1), near(1)}, nil)
	nodes := []string{"node-" + at(1).Addr().String(), "control-plane", "made-up", ""}
	for i := range others {
		name := state.Name{Namespace: fmt.Sprint("other-", i), Name: "web"}
		s.serve(&state.Service{Name: name}, []netip.AddrPort{at(byte(100 + i))}, nil)
		nodes = append(nodes, "node-"+at(byte(100+i)).Addr().String())
		silent = append(silent, netip.AddrPortFrom(at(byte(100+i)).Addr(), 9))
	}
	if server {
		s.Store.SetService(&state.Service{Name: kubernetesService()}, nil)
		s.Store.SetSlice(&state.Slice{
			Name: kubernetesService(), Service: kubernetesService(), Family: state.IPv4, Weight: 1,
			Ports:     []state.SlicePort{{Protocol: state.TCP, Port: api.Port()}},
			Endpoints: []state.Endpoint{{Addr: api.Addr(), Ready: true, Node: "control-plane"}},
		}, nil)
	}
	silent = append(silent, netip.AddrPortFrom(api.Addr(), 9))
	for i, service := range []string{"web", "web", "no-service"} {
		sl := &state.Slice{
			Name: state.Name{Namespace: evil.Namespace, Name: fmt.Sprint("slice-", i)}, Service: state.Name{Namespace: evil.Namespace, Name: service},
			Family: state.IPv4, Weight: 1, Ports: []state.SlicePort{{Protocol: state.TCP, Port: 9}},
		}
		for j, of := range silent[:others+1] {
			sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: of.Addr(), Ready: true, Node: nodes[j]})
		}
		for j := range 50 {
			own := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 66, byte(i), byte(j)}), 9)
			sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: own.Addr(), Ready: true, Node: nodes[j%len(nodes)]})
			silent = append(silent, own)
		}
		s.Store.SetSlice(sl, nil)
	}
	s.Store.SetService(&state.Service{Name: evil}, nil)
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		if end(); <-done != nil {
			t.Error("it does not end")
		}
	})
	<-time.After(2 * time.Second)
	if h := s.Store.Health(web); len(h) > 0 {
		t.Fatalf("%v have failed, and all answer", h)
	}
	return s
}
