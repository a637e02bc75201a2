package benchupstream

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
	shape
	slices typed.EndpointSliceInterface
	used   int    // changes so far; each is at another Service
	fresh  uint32 // the last pod address in use; the addresses of the cluster are lower
}

func newChanger(p *plane) *changer {
	return &changer{shape: p.shape, slices: p.client().DiscoveryV1().EndpointSlices(metav1.NamespaceDefault), fresh: 1 << 22}
}

// next chooses a Service anywhere in the cluster, but never the first one, and a new endpoint for it.
func (c *changer) next() (slice *discoveryv1.EndpointSlice, addr netip.Addr) {
	const stride = 7919 // a prime, so that successive changes are not at neighboring Services
	c.used++
	i := 1 + c.used*stride%(c.services-1)
	c.fresh++
	slice, addr = c.slice(i), podIP(c.fresh)
	slice.Endpoints = append(slice.Endpoints, newEndpoint(int(c.fresh), addr))
	return slice, addr
}

// put writes a slice as the endpoint slice controller does: with the time of the change that caused the write.
func (c *changer) put(s *discoveryv1.EndpointSlice) (sent time.Time, took time.Duration, err error) {
	sent = time.Now()
	s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: sent.UTC().Format(time.RFC3339Nano)}
	if _, err := c.slices.Update(context.Background(), s, metav1.UpdateOptions{}); err != nil {
		return sent, 0, fmt.Errorf("update EndpointSlice %s: %w", s.Name, err)
	}
	return sent, time.Since(sent), nil
}

// isolated adds one endpoint to an idle cluster and removes it again, several times. It measures only the addition,
// because kube-proxy cleans up some of its rules only some time after a removal.
func (c *changer) isolated(w watcher, rounds int, quiet time.Duration) (change, puts measure.Sample, err error) {
	if err := w.settle(quiet, *patience); err != nil {
		return nil, nil, err
	}
	for range rounds {
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
		found, err := w.arrived(*patience)
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
		if err := w.settle(quiet, *patience); err != nil {
			return nil, nil, err
		}
	}
	return change, puts, nil
}

// The rates of the streams: one that is low enough to measure each change, and one of a busy cluster.
const (
	streamPerSecond = 10
	busyPerSecond   = 100
)

// stream adds endpoints to different Services at a steady rate and returns how long each took, and how long it took from the
// first change until the kernel had all. With a nil watcher it only makes the changes.
func (c *changer) stream(w watcher, perSecond, seconds int) (sample measure.Sample, all time.Duration, err error) {
	n := seconds * perSecond
	slices, addrs := make([]*discoveryv1.EndpointSlice, n), make([]netip.Addr, n)
	for i := range n {
		slices[i], addrs[i] = c.next()
		if w == nil {
			continue
		}
		if err := w.expect(addrs[i]); err != nil {
			return nil, 0, err
		}
	}
	sent := make([]time.Time, n)
	written := make(chan error, 1)
	go func() { written <- c.write(slices, sent, perSecond) }()
	if w == nil {
		return nil, 0, <-written
	}
	found, err := w.arrived(time.Duration(seconds)*time.Second + *patience)
	if err := errors.Join(<-written, err); err != nil {
		return nil, 0, err
	}
	for i, addr := range addrs {
		sample, all = append(sample, found[addr].Sub(sent[i])), max(all, found[addr].Sub(sent[0]))
	}
	return sample, all, nil
}

// writers is how many requests may be in flight at a time. An API server needs several milliseconds for each.
const writers = 4

// write writes slices at a steady rate.
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
