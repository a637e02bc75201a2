package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

const (
	churnNamespace = "churn"
	churnServices  = 40
	churnPause     = 40 * time.Millisecond
	writePatience  = 2 * time.Second // the API server may be stopped
)

// writer writes objects as controllers do.
type writer struct{ client kubernetes.Interface }

func (w *writer) node(ctx context.Context, n *corev1.Node) error {
	status := n.Status
	got, err := w.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
	if err == nil {
		got.Status = status
		_, err = w.client.CoreV1().Nodes().UpdateStatus(ctx, got, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write node %s: %w", n.Name, err)
	}
	return nil
}

// service creates a Service, or changes the one that exists. One that cannot be changed in this way is deleted.
func (w *writer) service(ctx context.Context, svc *corev1.Service) error {
	api, status := w.client.CoreV1().Services(svc.Namespace), svc.Status
	got, err := api.Create(ctx, svc, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		old, getErr := api.Get(ctx, svc.Name, metav1.GetOptions{})
		if getErr != nil {
			return getErr
		}
		svc.ResourceVersion = old.ResourceVersion
		if got, err = api.Update(ctx, svc, metav1.UpdateOptions{}); apierrors.IsInvalid(err) {
			return api.Delete(ctx, svc.Name, metav1.DeleteOptions{})
		}
	}
	if err == nil && len(status.LoadBalancer.Ingress) > 0 {
		got.Status = status
		_, err = api.UpdateStatus(ctx, got, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write Service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	return nil
}

func (w *writer) slice(ctx context.Context, sl *discoveryv1.EndpointSlice) error {
	api := w.client.DiscoveryV1().EndpointSlices(sl.Namespace)
	_, err := api.Create(ctx, sl, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = api.Update(ctx, sl, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write EndpointSlice %s/%s: %w", sl.Namespace, sl.Name, err)
	}
	return nil
}

func (w *writer) remove(ctx context.Context, namespace, service string) error {
	return w.client.CoreV1().Services(namespace).Delete(ctx, service, metav1.DeleteOptions{})
}

func (w *writer) removeSlice(ctx context.Context, namespace, name string) error {
	return w.client.DiscoveryV1().EndpointSlices(namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

// churn changes Services and slices all the time. What the API server refuses is left out: objects are random, and the
// API server may be down.
type churn struct {
	writer
	stop  context.CancelFunc
	ended chan struct{}
	gate  sync.Mutex // held while paused

	mu              sync.Mutex
	written, failed int
	reasons         map[string]int
}

func startChurn(client kubernetes.Interface, seed uint64) *churn {
	ctx, stop := context.WithCancel(context.Background())
	c := &churn{writer: writer{client}, stop: stop, ended: make(chan struct{}), reasons: map[string]int{}}
	go c.run(ctx, rand.New(rand.NewPCG(seed, 0)))
	return c
}

func (c *churn) close() {
	c.stop()
	<-c.ended
}

// pause returns when no change is under way.
func (c *churn) pause()  { c.gate.Lock() }
func (c *churn) resume() { c.gate.Unlock() }

func (c *churn) run(ctx context.Context, r *rand.Rand) {
	defer close(c.ended)
	for ctx.Err() == nil {
		c.gate.Lock()
		c.change(ctx, r)
		c.gate.Unlock()
		time.Sleep(churnPause)
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
	name := fmt.Sprintf("svc-%02d", r.IntN(churnServices))
	if name[len(name)-1]%4 == 0 {
		name = full(name)
	}
	family := lab.Families()[r.IntN(2)]
	number := r.IntN(2)
	var err error
	switch n := r.IntN(100); {
	case n < 10:
		err = c.remove(ctx, churnNamespace, name)
	case n < 18:
		err = c.removeSlice(ctx, churnNamespace, emptySlice(churnNamespace, name, family, number).Name)
	case n < 45:
		err = c.service(ctx, randomService(r, name))
	default:
		err = c.slice(ctx, randomSlice(r, name, family, number))
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

// oneOf picks one of several values.
func oneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// randomService is a Service with random features.
func randomService(r *rand.Rand, name string) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: churnNamespace, Name: name, Annotations: randomAnnotations(r)}}
	spec := &svc.Spec
	spec.Type = oneOf(r, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer)
	spec.IPFamilyPolicy = new(oneOf(r, corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack))
	spec.PublishNotReadyAddresses = r.IntN(8) == 0
	if r.IntN(4) == 0 {
		spec.SessionAffinity = corev1.ServiceAffinityClientIP
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(oneOf(r, int32(1), 600, 10800))}}
	}
	spec.InternalTrafficPolicy = new(oneOf(r, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal))
	if spec.Type != corev1.ServiceTypeClusterIP {
		spec.ExternalTrafficPolicy = oneOf(r, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	}
	for i := range 1 + r.IntN(3) {
		spec.Ports = append(spec.Ports, corev1.ServicePort{
			Name: fmt.Sprintf("p%d", i), Port: int32(80 + 10*i + r.IntN(3)), Protocol: oneOf(r, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
		})
	}
	if r.IntN(4) == 0 {
		spec.ExternalIPs = []string{fmt.Sprintf("198.51.100.%d", 100+r.IntN(20)), fmt.Sprintf("2001:db8:198::%x", 0x100+r.IntN(20))}
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		loadBalancer(r, svc)
	}
	return svc
}

func loadBalancer(r *rand.Rand, svc *corev1.Service) {
	for _, ip := range []string{fmt.Sprintf("203.0.113.%d", 100+r.IntN(30)), fmt.Sprintf("2001:db8:203::%x", 0x100+r.IntN(30))} {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	if r.IntN(2) == 0 {
		svc.Spec.LoadBalancerSourceRanges = oneOf(r,
			[]string{"192.168.7.0/24"}, []string{"192.168.7.11/32", "fd00:7::/64", "192.168.0.0/16"}, []string{"0.0.0.0/0"},
			[]string{"10.0.0.0/9", "10.128.0.0/9", "10.64.0.0/10"})
	}
}

func randomAnnotations(r *rand.Rand) map[string]string {
	if r.IntN(3) > 0 {
		return nil
	}
	scheduler := oneOf(r, "random", "rr", "wrr", "lc", "sh", "mh", "dh", "fo", "nq", "nonsense", "")
	return map[string]string{"verdict-proxy.github.io/scheduler": scheduler, "verdict-proxy.github.io/scheduler-flags": oneOf(r, "", "sh-port", "mh-port", ",,,")}
}

// randomSlice is a slice with random endpoints.
func randomSlice(r *rand.Rand, service string, f lab.Family, number int) *discoveryv1.EndpointSlice {
	sl := emptySlice(churnNamespace, service, f, number)
	if r.IntN(3) == 0 {
		sl.Annotations = map[string]string{"verdict-proxy.github.io/weight": oneOf(r, "0", "1", "3", "100", "65535", "-1", "many")}
	}
	for i := range 3 {
		p := oneOf(r, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		sl.Ports = append(sl.Ports, slicePort(fmt.Sprintf("p%d", i), p, churnTarget()))
	}
	many, _ := lab.Text(f, "MANY") // the name stands here
	used := map[string]bool{}
	for range r.IntN(oneOf(r, 4, 12, 40)) {
		addr, node := lab.PodAddress(f, "b"), lab.NodeName
		if r.IntN(3) > 0 {
			addr, _ = lab.Nth(many, 1+r.IntN(60))
			node = lab.RemoteNodeName
		}
		if text := addr.String(); !used[text] {
			used[text] = true
			sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{text}, NodeName: new(node), Zone: new("z-" + node), Conditions: randomConditions(r),
			})
		}
	}
	return sl
}

func randomConditions(r *rand.Rand) discoveryv1.EndpointConditions {
	switch r.IntN(8) {
	case 0:
		return discoveryv1.EndpointConditions{}
	case 1:
		return discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	case 2:
		return discoveryv1.EndpointConditions{Ready: new(false)}
	}
	return discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)}
}
