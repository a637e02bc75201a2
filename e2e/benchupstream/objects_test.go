package benchupstream

import (
	"bytes"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

const (
	perService   = 10 // endpoints, if nothing else is said
	serviceRange = "10.96.0.0/12"
	podRange     = "10.128.0.0/9"
	ownNode      = "node-0"
	nodes        = 1000 // over which endpoints are spread
)

// shape is the size of a cluster: endpoints are spread evenly over Services.
type shape struct{ services, endpoints int }

func tenEach(services int) shape { return shape{services, perService * services} }

// parseShape reads SERVICES:ENDPOINTS.
func parseShape(text string) (s shape, err error) {
	_, err = fmt.Sscanf(text, "%d:%d", &s.services, &s.endpoints)
	if err != nil || s.services < 3 || s.endpoints < s.services || s.endpoints/s.services >= 1000 { // as many fit into a slice
		return s, fmt.Errorf("%q is no size of a cluster: SERVICES:ENDPOINTS, with fewer than 1,000 endpoints of a Service", text)
	}
	return s, nil
}

// first is the number of the first endpoint of a Service.
func (s shape) first(i int) int { return i * s.endpoints / s.services }

func serviceName(i int) string { return fmt.Sprintf("service-%06d", i) }
func sliceName(i int) string   { return serviceName(i) + "-abcde" }

// serviceIP is the cluster IP of a Service. 10.96.0.1 is the cluster IP of the API server.
func serviceIP(i int) netip.Addr {
	n := i + 2
	return netip.AddrFrom4([4]byte{10, byte(96 + n>>16), byte(n >> 8), byte(n)})
}

// podIP returns a different pod address for each number.
func podIP(n uint32) netip.Addr {
	n++
	return netip.AddrFrom4([4]byte{10, 128 | byte(n>>16&0x7f), byte(n >> 8), byte(n)})
}

// newService is a Service as a user writes it.
func newService(i int) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: serviceName(i), Labels: map[string]string{"app": serviceName(i)}},
		Spec: corev1.ServiceSpec{
			ClusterIP: serviceIP(i).String(), Selector: map[string]string{"app": serviceName(i)},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
}

// slice is a slice of all endpoints of a Service as the endpoint slice controller writes it. The endpoints of the first Service are the server of
// a measure.Path.
func (s shape) slice(i int) *discoveryv1.EndpointSlice {
	sl := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: sliceName(i), GenerateName: serviceName(i) + "-",
			Labels: map[string]string{
				discoveryv1.LabelServiceName: serviceName(i), discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", "app": serviceName(i),
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: serviceName(i), UID: uuid.NewUUID(), Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(measure.ServerPort))}},
	}
	for n := s.first(i); n < s.first(i+1); n++ {
		addr := podIP(uint32(n))
		if i == 0 {
			addr = measure.Server(n)
		}
		sl.Endpoints = append(sl.Endpoints, newEndpoint(n, addr))
	}
	return sl
}

func newEndpoint(n int, addr netip.Addr) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses:  []string{addr.String()},
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		NodeName:   new(fmt.Sprintf("node-%d", n%nodes)),
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("pod-%07d", n), UID: uuid.NewUUID()},
	}
}

// templates are objects as an API server stores them, with everything that it adds: defaults, managed fields,
// addresses.
type templates struct {
	shape
	service *corev1.Service
	slice   *discoveryv1.EndpointSlice
	address *networkingv1.IPAddress
}

// stored is a key of etcd and its value.
type stored struct {
	key   string
	value []byte
}

// objects makes all objects of Service i in the form in which etcd stores them.
func (t *templates) objects(i int) ([]stored, error) {
	svc, sl, ip := t.service.DeepCopy(), t.shape.slice(i), t.address.DeepCopy()
	svc.Name, svc.UID = serviceName(i), uuid.NewUUID()
	svc.Labels, svc.Spec.Selector = newService(i).Labels, newService(i).Spec.Selector
	svc.Spec.ClusterIP, svc.Spec.ClusterIPs = serviceIP(i).String(), []string{serviceIP(i).String()}
	sl.UID, sl.CreationTimestamp, sl.Generation, sl.ManagedFields = uuid.NewUUID(), t.slice.CreationTimestamp, t.slice.Generation, t.slice.ManagedFields
	ip.Name, ip.UID, ip.Spec.ParentRef.Name = serviceIP(i).String(), uuid.NewUUID(), svc.Name
	var out []stored
	for _, o := range []struct {
		key        string
		apiVersion string
		kind       string
		object     runtime.Object
	}{
		{"services/specs/default/" + svc.Name, "v1", "Service", svc},
		{"endpointslices/default/" + sl.Name, "discovery.k8s.io/v1", "EndpointSlice", sl},
		{"ipaddresses/" + ip.Name, "networking.k8s.io/v1", "IPAddress", ip},
	} {
		o.object.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(o.apiVersion, o.kind))
		var value bytes.Buffer
		if err := storage().Encode(o.object, &value); err != nil {
			return nil, fmt.Errorf("encode %s: %w", o.key, err)
		}
		out = append(out, stored{"/registry/" + o.key, value.Bytes()})
	}
	return out, nil
}

// storage encodes and decodes objects in the form in which an API server stores them in etcd.
func storage() *protobuf.Serializer { return protobuf.NewSerializer(scheme.Scheme, scheme.Scheme) }

// readTemplate decodes an object that an API server has stored.
func readTemplate(value []byte, into runtime.Object) error {
	_, _, err := storage().Decode(value, nil, into)
	if err != nil {
		return fmt.Errorf("decode an object of etcd: %w", err)
	}
	return nil
}
