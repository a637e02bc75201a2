package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// changer adds and removes endpoints through the API server.
type changer struct {
	slices   typed.EndpointSliceInterface
	services int
	used     int    // changes so far: each is at another Service
	fresh    uint32 // pod addresses so far, counted from behind all that the cluster has
}

func newChanger(p *plane, services int) *changer {
	return &changer{slices: p.client().DiscoveryV1().EndpointSlices(metav1.NamespaceDefault), services: services, fresh: 1 << 22}
}

// next chooses a Service, spread over the cluster but never the first, and an endpoint to add to it.
func (c *changer) next() (slice *discoveryv1.EndpointSlice, addr netip.Addr) {
	const stride = 7919 // a prime, so that neighbors in time are not neighbors in the cluster
	c.used++
	i := 1 + c.used*stride%(c.services-1)
	c.fresh++
	slice, addr = newSlice(i), podIP(c.fresh)
	slice.Endpoints = append(slice.Endpoints, newEndpoint(int(c.fresh), addr))
	return slice, addr
}

// put writes a slice, as the controller does: with the time of the change that made it do so.
func (c *changer) put(s *discoveryv1.EndpointSlice) (sent time.Time, took time.Duration, err error) {
	sent = time.Now()
	s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: sent.UTC().Format(time.RFC3339Nano)}
	if _, err := c.slices.Update(context.Background(), s, metav1.UpdateOptions{}); err != nil {
		return sent, 0, fmt.Errorf("update EndpointSlice %s: %w", s.Name, err)
	}
	return sent, time.Since(sent), nil
}

// changePatience is how long a change may take.
const changePatience = 30 * time.Second

// isolated adds one endpoint to an idle cluster, and removes it again, several times. Only the addition is timed: a
// removal leaves traces in kube-proxy's rules that go later.
func (c *changer) isolated(w watcher, rounds int, quiet time.Duration, step func(done int)) (change, puts measure.Sample, err error) {
	if err := w.settle(quiet, changePatience); err != nil {
		return nil, nil, err
	}
	for i := range rounds {
		slice, addr := c.next()
		if err := w.expect(addr); err != nil {
			return nil, nil, err
		}
		type answer struct {
			sent time.Time
			took time.Duration
			err  error
		}
		answered := make(chan answer, 1)
		go func() {
			var a answer
			a.sent, a.took, a.err = c.put(slice)
			answered <- a
		}()
		found, err := w.arrived(changePatience)
		a := <-answered
		if err == nil {
			err = a.err
		}
		if err != nil {
			return nil, nil, err
		}
		change, puts = append(change, found[addr].Sub(a.sent)), append(puts, a.took)
		slice.Endpoints = slice.Endpoints[:len(slice.Endpoints)-1]
		if _, _, err := c.put(slice); err != nil {
			return nil, nil, err
		}
		if err := w.settle(quiet, changePatience); err != nil {
			return nil, nil, err
		}
		step(i)
	}
	return change, puts, nil
}

// The rates of streams of changes: one at which what each change takes can be told, one of a busy cluster.
const (
	streamPerSecond = 10
	busyPerSecond   = 100
)

// stream adds endpoints to different Services at a steady rate and returns what each took. A nil watcher: only the work is
// wanted.
func (c *changer) stream(w watcher, perSecond, seconds int) (measure.Sample, error) {
	n := seconds * perSecond
	slices, addrs := make([]*discoveryv1.EndpointSlice, n), make([]netip.Addr, n)
	for i := range n {
		slices[i], addrs[i] = c.next()
		if w == nil {
			continue
		}
		if err := w.expect(addrs[i]); err != nil {
			return nil, err
		}
	}
	sent := make([]time.Time, n)
	written := make(chan error, 1)
	go func() { written <- c.write(slices, sent, perSecond) }()
	if w == nil {
		return nil, <-written
	}
	found, err := w.arrived(time.Duration(seconds)*time.Second + changePatience)
	if err := errors.Join(<-written, err); err != nil {
		return nil, err
	}
	var sample measure.Sample
	for i, addr := range addrs {
		sample = append(sample, found[addr].Sub(sent[i]))
	}
	return sample, nil
}

// writers is how many changes may be under way at a time: an API server takes several milliseconds for each.
const writers = 4

// write puts slices at a steady rate.
func (c *changer) write(slices []*discoveryv1.EndpointSlice, sent []time.Time, perSecond int) error {
	var group errgroup.Group
	group.SetLimit(writers)
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for i := range slices {
		<-tick.C
		group.Go(func() (err error) {
			sent[i], _, err = c.put(slices[i])
			return err
		})
	}
	return group.Wait()
}
