//go:build e2e

package flood

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// server is an API server that has its objects in memory, encoded. A real one and its etcd would need more of the
// machine than the daemon, they write a few hundred objects a second, and etcd does not take a gigabyte by default.
type server struct {
	mu       sync.Mutex
	changed  *sync.Cond
	version  atomic.Int64
	closed   bool
	objects  map[string]map[string][]byte // by resource and name: an event that adds the object
	events   map[string][][]byte          // by resource, after the lists
	encoders map[string]runtime.Encoder   // by resource
}

const protobuf = runtime.ContentTypeProtobuf

// resources are those that the daemon watches, by the last part of their path.
func resources() map[string]runtime.Object {
	return map[string]runtime.Object{
		"services": &corev1.Service{}, "endpointslices": &discoveryv1.EndpointSlice{}, "nodes": &corev1.Node{},
		"servicecidrs": &networkingv1.ServiceCIDR{},
	}
}

// object is what a client writes.
type object interface {
	metav1.Object
	runtime.Object
}

func newServer() *server {
	s := &server{objects: map[string]map[string][]byte{}, events: map[string][][]byte{}, encoders: map[string]runtime.Encoder{}}
	s.changed = sync.NewCond(&s.mu)
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), protobuf)
	for resource, example := range resources() {
		kinds, _, err := scheme.Scheme.ObjectKinds(example)
		if err != nil {
			panic(err) // the types are in this file
		}
		s.objects[resource] = map[string][]byte{}
		s.encoders[resource] = scheme.Codecs.EncoderForVersion(info.Serializer, kinds[0].GroupVersion())
	}
	s.encoders[""] = scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
	return s
}

// listen serves in the namespace of the calling thread.
func (s *server) listen(t testing.TB, at string) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	lab.Must(t, err)
	web := &http.Server{Handler: s}
	go func() { _ = web.Serve(l) }() // it ends with Close
	t.Cleanup(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.changed.Broadcast()
		if err := web.Close(); err != nil {
			t.Error(err)
		}
	})
}

// resourceOf names the resource of an object.
func resourceOf(o object) string {
	for resource, example := range resources() {
		if fmt.Sprintf("%T", example) == fmt.Sprintf("%T", o) {
			return resource
		}
	}
	panic(fmt.Sprintf("the server has no %T", o))
}

// written is an object as the server sends it.
type written struct {
	resource, name string
	event          []byte
	gone           bool // the event deletes the object
}

// encode makes an object ready to be written. Encoding takes longer than the rest, and so may come before.
func (s *server) encode(objects ...object) []written { return s.encodeAs(watch.Added, objects) }

// encodeDeletion makes the end of objects ready to be written.
func (s *server) encodeDeletion(objects ...object) []written {
	return s.encodeAs(watch.Deleted, objects)
}

func (s *server) encodeAs(kind watch.EventType, objects []object) (list []written) {
	for _, o := range objects {
		resource := resourceOf(o)
		o.SetResourceVersion(strconv.FormatInt(s.version.Add(1), 10))
		list = append(list, written{
			resource: resource, name: o.GetNamespace() + "/" + o.GetName(), event: s.event(resource, kind, o), gone: kind == watch.Deleted,
		})
	}
	return list
}

// put writes objects at once, and returns how many bytes they have on the wire.
func (s *server) put(objects ...object) (size int) { return s.write(s.encode(objects...)) }

func (s *server) write(list []written) (size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range list {
		if s.objects[w.resource][w.name] = w.event; w.gone {
			delete(s.objects[w.resource], w.name)
		}
		s.events[w.resource] = append(s.events[w.resource], w.event)
		size += len(w.event)
	}
	s.changed.Broadcast()
	return size
}

// forget drops the events that all watches have. Later watches begin with a list.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range s.events {
		clear(list)
	}
}

// event encodes an event of a watch: its length, and what the API calls a WatchEvent.
func (s *server) event(resource string, kind watch.EventType, o runtime.Object) []byte {
	raw, err := runtime.Encode(s.encoders[resource], o)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", o, err))
	}
	e := metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}}
	frame, err := e.Marshal()
	if err != nil {
		panic(fmt.Sprintf("encode the event of %T: %v", o, err))
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, len(frame)+4), uint32(len(frame))), frame...)
}

// ServeHTTP implements http.Handler. The daemon asks for streamed lists; once, it reads the Service of the API server.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource, query := path.Base(r.URL.Path), r.URL.Query()
	switch {
	case resources()[resource] == nil || r.Method != http.MethodGet:
		http.NotFound(w, r)
	case query.Get("sendInitialEvents") == "true":
		s.stream(w, resource)
	case query.Get("watch") == "true":
		http.Error(w, "too old", http.StatusGone) // then the client lists again
	default:
		s.list(w, strings.TrimPrefix(query.Get("fieldSelector"), "metadata.name="))
	}
}

// list answers with one Service. The daemon lists nothing else in this way.
func (s *server) list(w http.ResponseWriter, name string) {
	list := &corev1.ServiceList{Items: []corev1.Service{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}}}
	raw, err := runtime.Encode(s.encoders[""], list)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", protobuf)
	_, _ = w.Write(raw) // the client asks again
}

// stream sends all objects, and then each event.
func (s *server) stream(w http.ResponseWriter, resource string) {
	w.Header().Set("Content-Type", protobuf+";stream=watch")
	s.mu.Lock()
	at := len(s.events[resource])
	var first [][]byte
	for _, event := range s.objects[resource] {
		first = append(first, event)
	}
	end := resources()[resource].(object)
	end.SetResourceVersion(strconv.FormatInt(s.version.Load(), 10))
	end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	first = append(first, s.event(resource, watch.Bookmark, end))
	s.mu.Unlock()
	out := bufio.NewWriterSize(w, 1<<16)
	for list := first; list != nil; list = s.next(resource, &at) {
		for _, event := range list {
			if _, err := out.Write(event); err != nil {
				return // the client has gone
			}
		}
		if out.Flush() != nil {
			return
		}
		w.(http.Flusher).Flush()
	}
}

// next waits for events, and returns nil at the end.
func (s *server) next(resource string, at *int) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && *at == len(s.events[resource]) {
		s.changed.Wait()
	}
	if s.closed {
		return nil
	}
	list := s.events[resource][*at:]
	*at = len(s.events[resource])
	return list
}
