//go:build e2e

package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
)

const (
	churnNamespace = "churn"
	churnServices  = 40
	churnPause     = 40 * time.Millisecond
)

// churn changes Services and slices all the time. What the API server refuses is left out: objects are random, and the
// API server may be down.
type churn struct {
	writer
	gate sync.Mutex // see hold

	mu              sync.Mutex
	written, failed int
	reasons         map[string]int
}

// startChurn starts changes that end with the test.
func startChurn(t *testing.T, w writer) *churn {
	t.Helper()
	c := &churn{writer: w, reasons: map[string]int{}}
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { c.run(ctx, rand.New(rand.NewPCG(*seed, 0))) })
	t.Cleanup(func() {
		stop()
		ended.Wait()
	})
	return c
}

// hold returns when no change is under way, and keeps changes back until release.
func (c *churn) hold()    { c.gate.Lock() }
func (c *churn) release() { c.gate.Unlock() }

func (c *churn) run(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		c.gate.Lock()
		c.change(ctx, r)
		c.gate.Unlock()
		time.Sleep(slower(churnPause))
	}
}

// burst makes many changes at once.
func (c *churn) burst(r *rand.Rand, n int) {
	for range n {
		c.change(context.Background(), r)
	}
}

// change makes one change.
func (c *churn) change(ctx context.Context, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	name := fmt.Sprintf("svc-%02d", r.IntN(churnServices / *slow))
	if name[len(name)-1]%4 == 0 {
		name = objects.Full(name)
	}
	family := lab.Families()[r.IntN(2)]
	number := r.IntN(2)
	var err error
	switch n := r.IntN(100); {
	case n < 10:
		err = c.remove(ctx, objects.Service(churnNamespace, name))
	case n < 18:
		err = c.remove(ctx, objects.Slice(churnNamespace, name, family, number))
	case n < 45:
		err = c.put(ctx, randomService(r, name))
	default:
		err = c.put(ctx, objects.RandomSlice(r, churnNamespace, name, family, number))
	}
	c.note(err)
}

func (c *churn) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.written++
		return
	}
	c.failed++
	c.reasons[string(apierrors.ReasonForError(err))]++
}

// randomService is a Service as the API server takes it, which chooses its addresses and node ports.
func randomService(r *rand.Rand, name string) *corev1.Service {
	svc := objects.RandomService(r, churnNamespace, name)
	svc.Spec.Type = objects.OneOf(r, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer)
	svc.Spec.IPFamilyPolicy = new(objects.OneOf(r, corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack))
	if svc.Spec.Type == corev1.ServiceTypeClusterIP {
		svc.Spec.ExternalTrafficPolicy = ""
	}
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		svc.Spec.LoadBalancerSourceRanges, svc.Status.LoadBalancer = nil, corev1.LoadBalancerStatus{}
	}
	return svc
}

const hostileNamespace = "hostile"

// hostile makes Services that want the frontends of others, or want to be a burden.
func hostile() map[string]func(*rand.Rand, *corev1.Service) {
	return map[string]func(*rand.Rand, *corev1.Service){
		"external-ips": func(_ *rand.Rand, s *corev1.Service) { // those of the untouched Services, in all their roles
			for _, name := range []string{"VIP1", "VIP2", "LB1", "LB2", "EXT1", "NODE"} {
				s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, lab.Both(name)...)
			}
			addPorts(s, 30080, 30090)
		},
		"load-balancer-ips": func(_ *rand.Rand, s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			addPorts(s, 30080)
			objects.AddIngress(s, slices.Concat(lab.Both("LB1"), lab.Both("VIP1"), lab.Both("NODE"))...)
		},
		"node-ports": func(_ *rand.Rand, s *corev1.Service) { // the API server takes it: the protocol differs
			s.Spec.Type = corev1.ServiceTypeNodePort
			s.Spec.Ports[0].NodePort, s.Spec.Ports[0].Protocol = 30080, corev1.ProtocolSCTP
		},
		"annotations": func(r *rand.Rand, s *corev1.Service) {
			objects.Schedule(s, objects.OneOf(r, "\x00", strings.Repeat("rr,", 80_000), "{\"scheduler\":", "мх", "-1", "1e309", "rr\nlc"))
		},
		"ports": func(r *rand.Rand, s *corev1.Service) {
			for i := range objects.OneOf[int32](r, 300, 300, 300, 2500) {
				addPorts(s, 1000+i)
			}
		},
		"source-ranges": func(r *rand.Rand, s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			objects.AddIngress(s, "203.0.113.200", "2001:db8:203::200")
			for range 300 {
				s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges,
					fmt.Sprintf("10.%d.%d.0/%d", r.IntN(256), r.IntN(256), 8+r.IntN(25)))
			}
		},
	}
}

func addPorts(s *corev1.Service, numbers ...int32) {
	for _, n := range numbers {
		s.Spec.Ports = append(s.Spec.Ports, objects.Port(fmt.Sprintf("p%d", n), corev1.ProtocolTCP, n))
	}
}

// attack writes or removes hostile objects. The API server refuses some of them.
func (c *churn) attack(r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*writePatience)
	defer cancel()
	kinds := hostile()
	for range 1 + r.IntN(3) {
		kind := objects.OneOf(r, slices.Sorted(maps.Keys(kinds))...) // in order, so that a seed repeats a choice
		name := fmt.Sprintf("%s-%d", kind, r.IntN(2))
		if r.IntN(2) == 0 {
			c.note(c.remove(ctx, objects.Service(hostileNamespace, name)))
			continue
		}
		svc := objects.Service(hostileNamespace, name)
		svc.Spec.Type = corev1.ServiceTypeClusterIP // those of 2,500 ports would take all node ports
		svc.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
		addPorts(svc, 80)
		kinds[kind](r, svc)
		c.note(c.put(ctx, svc))
		sl := objects.Slice(hostileNamespace, name, lab.IPv4, 0)
		for _, p := range svc.Spec.Ports[:min(100, len(svc.Spec.Ports))] { // as many as the API server takes
			sl.Ports = append(sl.Ports, objects.SlicePort(p.Name, p.Protocol, lab.Ports()[3]))
		}
		objects.AddPods(sl, lab.IPv4, "b")
		c.note(c.put(ctx, sl))
	}
}
