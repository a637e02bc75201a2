package bench

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/proxier/state"
)

const (
	nodes    = 1000 // over which endpoints are spread; the proxy runs on node-0
	ownNode  = "node-0"
	podRange = "10.128.0.0/9"

	perService = 10 // endpoints of each Service

	bigEndpoints  = 5000
	sliceSize     = 100 // endpoints, as the endpoint slice controller puts into one slice
	nodePortCount = 1000
	firstNodePort = 30_000
	manyServices  = 5000
	manyEach      = 50 // endpoints of each Service
)

// cluster is a set of Services and slices as they are in the store.
type cluster struct {
	services []*state.Service
	slices   []*state.Slice // of the Service with the same index, unless all belong to one Service
	fresh    uint32         // the number of pod addresses in use so far
	random   *rand.Rand
	names    []string // of nodes; endpoints share these strings, as they do when a source makes them
}

// newCluster makes n Services with the same number of endpoints each. The endpoints of the first one are the server of
// a measure.Path.
func newCluster(n, endpoints int) *cluster {
	c := &cluster{random: rand.New(rand.NewPCG(1, 2))}
	for i := range nodes {
		c.names = append(c.names, fmt.Sprintf("node-%d", i))
	}
	for i := range n {
		c.services = append(c.services, c.service(i))
		c.slices = append(c.slices, c.slice(i, endpoints))
	}
	for i := range c.slices[0].Endpoints {
		c.slices[0].Endpoints[i].Addr = measure.Server(i)
	}
	return c
}

// serviceIP is the cluster IP of a Service.
func serviceIP(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(96 + (i+1)>>16), byte((i + 1) >> 8), byte(i + 1)})
}

func (c *cluster) service(i int) *state.Service {
	return &state.Service{
		Name:       state.Name{Namespace: "default", Name: fmt.Sprintf("service-%06d", i)},
		Created:    time.Unix(1_700_000_000+int64(i), 0),
		ClusterIPs: []netip.Addr{serviceIP(i)},
		Ports:      []state.ServicePort{{Name: "http", Protocol: state.TCP, Port: 80}},
	}
}

func (c *cluster) slice(i, endpoints int) *state.Slice {
	name := fmt.Sprintf("service-%06d-abcde", i)
	sl := &state.Slice{
		Name:    state.Name{Namespace: "default", Name: name},
		Service: state.Name{Namespace: "default", Name: name[:len(name)-len("-abcde")]},
		Family:  state.IPv4, Weight: state.DefaultWeight,
		Ports:     []state.SlicePort{{Name: "http", Protocol: state.TCP, Port: measure.ServerPort}},
		Endpoints: make([]state.Endpoint, 0, endpoints),
	}
	for range endpoints {
		sl.Endpoints = append(sl.Endpoints, c.endpoint())
	}
	return sl
}

// endpoint is an endpoint with an address that no earlier endpoint had.
func (c *cluster) endpoint() state.Endpoint {
	c.fresh++
	return state.Endpoint{
		Addr:  netip.AddrFrom4([4]byte{10, 128 | byte(c.fresh>>16&0x7f), byte(c.fresh >> 8), byte(c.fresh)}),
		Ready: true, Serving: true, Node: c.names[c.fresh%nodes],
	}
}

// endpoints returns the number of endpoints.
func (c *cluster) endpoints() (n int) {
	for _, sl := range c.slices {
		n += len(sl.Endpoints)
	}
	return n
}

// fill writes all objects into a store.
func (c *cluster) fill(store *state.Store) {
	for _, svc := range c.services {
		store.SetService(svc, nil)
	}
	for _, sl := range c.slices {
		store.SetSlice(sl, nil)
	}
}

// pick chooses a Service at random, but never the first one, whose endpoints answer connections.
func (c *cluster) pick() int { return 1 + c.random.IntN(len(c.slices)-1) }

// changed replaces the slice of a Service with a copy that has other endpoints. It does not write the copy into the
// store.
func (c *cluster) changed(i int, change func([]state.Endpoint) []state.Endpoint) *state.Slice {
	sl := *c.slices[i]
	sl.Endpoints = change(append(make([]state.Endpoint, 0, len(sl.Endpoints)+1), sl.Endpoints...))
	c.slices[i] = &sl
	return &sl
}

func (c *cluster) replaceOne(i int) *state.Slice {
	return c.changed(i, func(list []state.Endpoint) []state.Endpoint {
		list[c.random.IntN(len(list))] = c.endpoint()
		return list
	})
}

func (c *cluster) removeOne(i int) *state.Slice {
	return c.changed(i, func(list []state.Endpoint) []state.Endpoint {
		at := c.random.IntN(len(list))
		return append(list[:at], list[at+1:]...)
	})
}

func (c *cluster) addOne(i int) *state.Slice {
	return c.changed(i, func(list []state.Endpoint) []state.Endpoint { return append(list, c.endpoint()) })
}

// newBigCluster is a single Service with thousands of endpoints in many slices.
func newBigCluster() *cluster {
	c := newCluster(1, 0)
	c.slices = nil
	for i := range bigEndpoints / sliceSize {
		sl := c.slice(0, sliceSize)
		sl.Name.Name = fmt.Sprintf("%s-%03d", sl.Name.Name, i)
		c.slices = append(c.slices, sl)
	}
	return c
}

// newNodePortCluster gives every Service a node port of its own.
func newNodePortCluster() *cluster {
	c := newCluster(nodePortCount, perService)
	for i, svc := range c.services {
		port := state.ServicePort{Name: "http", Protocol: state.TCP, Port: 80, NodePort: uint16(firstNodePort + i)}
		svc.Ports = []state.ServicePort{port}
	}
	return c
}

func TestClusterHasNoAddressTwice(t *testing.T) {
	c := newCluster(70_000, 3) // more than 16 bits of cluster IPs
	seen := map[netip.Addr]bool{}
	note := func(a netip.Addr) {
		if seen[a] {
			t.Fatalf("%s occurs twice", a)
		}
		seen[a] = true
	}
	pods, services := netip.MustParsePrefix(podRange), netip.MustParsePrefix("10.96.0.0/12")
	for i, svc := range c.services {
		note(svc.ClusterIPs[0])
		if !services.Contains(svc.ClusterIPs[0]) {
			t.Fatalf("cluster IP %s is not in %s", svc.ClusterIPs[0], services)
		}
		for _, e := range c.slices[i].Endpoints {
			note(e.Addr)
			if i > 0 && !pods.Contains(e.Addr) {
				t.Fatalf("pod %s is not in %s", e.Addr, pods)
			}
		}
	}
}

func TestChangesLeaveOldSlicesAlone(t *testing.T) {
	c := newCluster(3, 4)
	before := slices.Clone(c.slices[1].Endpoints)
	old := c.slices[1]
	for name, change := range map[string]struct {
		next func(int) *state.Slice
		want int
	}{"replaced": {c.replaceOne, 4}, "removed": {c.removeOne, 3}, "added": {c.addOne, 5}} {
		c.slices[1] = old
		if got := change.next(1); len(got.Endpoints) != change.want || got == old {
			t.Errorf("%s: %d endpoints, want %d in a new slice", name, len(got.Endpoints), change.want)
		}
		if !slices.Equal(old.Endpoints, before) {
			t.Fatalf("%s: the slice in the store was changed", name)
		}
	}
}
