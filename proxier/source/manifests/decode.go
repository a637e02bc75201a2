package manifests

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	strictjson "sigs.k8s.io/json"

	"github.com/verdict-proxy/verdict/proxier/source/convert"
	"github.com/verdict-proxy/verdict/proxier/source/shortform"
	"github.com/verdict-proxy/verdict/proxier/source/sink"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// object is one object of a manifest file, converted.
type object struct {
	id       objectID
	line     int
	short    bool          // it is in the short form
	add      func(*wanted) // adds what it stands for
	problems []state.Problem
}

// wanted holds the objects of all files.
type wanted struct {
	services     []sink.Found[state.Service]
	slices       []sink.Found[state.Slice]
	nodes        []sink.Found[state.Node]
	serviceCIDRs []sink.Found[convert.ServiceCIDR]
}

type objectID struct {
	kind string
	name state.Name
}

func (id objectID) object() state.Object { return state.Object{Kind: id.kind, Name: id.name} }

func (id objectID) String() string {
	return id.kind + " " + strings.TrimPrefix(id.name.String(), "/")
}

// content is the content of a manifest file.
type content struct {
	objects []object
	broken  map[objectID]struct{} // objects whose name is known, but that cannot be decoded
	faults  []fault
	damaged bool // parts of the file are neither YAML nor JSON
}

// decoder reads the documents of one file.
type decoder struct {
	convert *convert.Converter
	content
}

// decodeFile reads a whole file.
func decodeFile(c *convert.Converter, name string, data []byte) content {
	d := decoder{convert: c, content: content{broken: map[objectID]struct{}{}}}
	docs, faults := documents(name, data)
	d.damaged = len(faults) > 0
	for _, f := range faults {
		d.faults = addFault(d.faults, f)
	}
	if len(data) == 0 {
		// Many programs empty a file before they fill it again.
		d.faults, d.damaged = []fault{{line: 1, text: "the file is empty"}}, true
	}
	for _, doc := range docs {
		d.document(doc)
	}
	return d.content
}

// header holds the fields that every object has, and the items of a list.
type header struct {
	metav1.TypeMeta `json:",inline"`
	Items           []json.RawMessage `json:"items"`
}

func (d *decoder) document(doc document) {
	if string(doc.json) == "null" {
		return
	}
	var h header
	if err := json.Unmarshal(doc.json, &h); err != nil {
		d.fault(doc, "not a Kubernetes object: %v", err)
		return
	}
	if strings.HasSuffix(h.Kind, "List") {
		d.list(doc, h)
		return
	}
	d.object(doc, h.TypeMeta)
}

// list reads the items of a List, or of a typed list such as ServiceList, whose items may omit their kind.
func (d *decoder) list(doc document, h header) {
	inherited := metav1.TypeMeta{APIVersion: h.APIVersion, Kind: strings.TrimSuffix(h.Kind, "List")}
	for _, raw := range h.Items {
		item := document{line: doc.line, json: raw}
		var own metav1.TypeMeta
		if err := json.Unmarshal(raw, &own); err != nil {
			d.fault(item, "an item of a list is not a Kubernetes object: %v", err)
			continue
		}
		if own.Kind == "" {
			own = inherited
		}
		d.object(item, own)
	}
}

func (d *decoder) object(doc document, is metav1.TypeMeta) {
	switch is.APIVersion + " " + is.Kind {
	case "v1 Service":
		read(d, doc, convert.KindService, d.service, func(w *wanted) *[]sink.Found[state.Service] { return &w.services })
	case "discovery.k8s.io/v1 EndpointSlice":
		read(d, doc, convert.KindSlice, d.slice, func(w *wanted) *[]sink.Found[state.Slice] { return &w.slices })
	case "v1 Node":
		read(d, doc, convert.KindNode, d.convert.Node, func(w *wanted) *[]sink.Found[state.Node] { return &w.nodes })
	case "networking.k8s.io/v1 ServiceCIDR":
		read(d, doc, convert.KindServiceCIDR, d.convert.ServiceCIDR,
			func(w *wanted) *[]sink.Found[convert.ServiceCIDR] { return &w.serviceCIDRs })
	case shortform.APIVersion + " " + shortform.Kind:
		d.balancer(doc)
	default:
		// An object of Verdict whose kind or version has a typing error: what the file had before must not go.
		d.damaged = d.damaged || strings.HasPrefix(is.APIVersion, state.AnnotationPrefix) || strings.EqualFold(is.Kind, shortform.Kind)
		for _, kind := range []string{convert.KindService, convert.KindSlice, convert.KindNode, convert.KindServiceCIDR, shortform.Kind} {
			if strings.EqualFold(is.Kind, kind) && is.Kind != kind {
				d.fault(doc, "kind %q: did you mean %s?", is.Kind, kind)
				return
			}
		}
		d.fault(doc, "apiVersion %q, kind %q is not supported: only v1 Service, discovery.k8s.io/v1 EndpointSlice, v1 Node, "+
			"networking.k8s.io/v1 ServiceCIDR, %s %s and lists of them are", is.APIVersion, is.Kind, shortform.APIVersion, shortform.Kind)
	}
}

// service also checks what an API server and its controllers refuse or fill in.
func (d *decoder) service(o *corev1.Service) (*state.Service, []state.Problem) {
	svc, problems := d.convert.Service(o)
	f := convert.NewFindings(convert.KindService, convert.NameOf(&o.ObjectMeta))
	_, other := o.Labels[convert.LabelProxyName]
	if !other && o.Spec.Type != corev1.ServiceTypeExternalName && convert.PrimaryIP(o) == "" {
		f.Add("spec.clusterIP", "missing: a manifest must set it, because no API server allocates one; the Service is not served")
	}
	if svc != nil && len(o.Spec.Ports) == 0 {
		f.Add("spec.ports", "missing: the Service has no port, so nobody can connect to it")
	}
	if svc != nil && o.Spec.Type == corev1.ServiceTypeLoadBalancer && len(o.Status.LoadBalancer.Ingress)+len(o.Spec.ExternalIPs) == 0 {
		f.Add("status.loadBalancer.ingress", "missing: a manifest must set it, because no controller assigns an address; the Service has "+
			"no load balancer IP")
	}
	for i := range o.Spec.Ports {
		if svc != nil && o.Spec.Ports[i].NodePort != 0 && (o.Spec.Type == "" || o.Spec.Type == corev1.ServiceTypeClusterIP) {
			f.Add(convert.Indexed("spec.ports", i)+".nodePort", "an API server accepts it only on type NodePort or LoadBalancer; it is served")
		}
	}
	return svc, state.Bound(f.Object, problems, f.Problems())
}

// slice also checks the names of nodes: no API server has.
func (d *decoder) slice(o *discoveryv1.EndpointSlice) (*state.Slice, []state.Problem) {
	f := convert.NewFindings(convert.KindSlice, convert.NameOf(&o.ObjectMeta))
	for i := range o.Endpoints {
		if node := ptr.Deref(o.Endpoints[i].NodeName, ""); node != "" && len(validation.IsDNS1123Subdomain(node)) > 0 {
			f.Add(convert.Indexed("endpoints", i)+".nodeName", "%s is not a DNS name: the endpoint is on no node", state.Quote(node))
			o.Endpoints[i].NodeName = nil
		}
	}
	slice, problems := d.convert.Slice(o)
	return slice, state.Bound(f.Object, problems, f.Problems())
}

// read decodes and converts one object, for one of the lists of what is wanted. It reports unknown fields, which are usually
// typing errors, and ignores them.
func read[O any, P interface {
	*O
	metav1.Object
}, T any](d *decoder, doc document, kind string, toValue func(P) (*T, []state.Problem), list func(*wanted) *[]sink.Found[T]) {
	o := P(new(O))
	unknown, err := strictjson.UnmarshalStrict(doc.json, o, strictjson.DisallowUnknownFields)
	if err != nil {
		d.undecodable(doc, kind, err)
		return
	}
	setNamespace(kind, o)
	if o.GetName() == "" {
		d.fault(doc, "%s without metadata.name: it is ignored", kind)
		return
	}
	if reason := convert.Misnamed(kind, o); reason != "" {
		d.fault(doc, "%s: %s: it is ignored", kind, reason)
		return
	}
	id := objectID{kind: kind, name: state.Name{Namespace: o.GetNamespace(), Name: o.GetName()}}
	value, problems := toValue(o)
	found := sink.Found[T]{Name: id.name, Value: value, Problems: state.Bound(id.object(), unknownFields(id, unknown), problems)}
	add := func(w *wanted) { *list(w) = append(*list(w), found) }
	d.objects = append(d.objects, object{id: id, line: doc.line, add: add, problems: found.Problems})
}

// balancer decodes an object in the short form. It is a Service with its slices in one object: it has the name of that
// Service, whose previous form stays in force if there is a fault.
func (d *decoder) balancer(doc document) {
	lb, faults := shortform.Decode(doc.source())
	if len(faults) == 0 {
		made, problems := lb.Objects()
		id := objectID{kind: convert.KindService, name: lb.Name()}
		add := func(w *wanted) {
			w.services = append(w.services, sink.Found[state.Service]{Name: id.name, Value: made.Service, Problems: problems})
			for _, sl := range made.Slices {
				w.slices = append(w.slices, sink.Found[state.Slice]{Name: sl.Name, Value: sl})
			}
		}
		d.objects = append(d.objects, object{id: id, line: doc.line, short: true, add: add, problems: problems})
		return
	}
	id, unnamed := breaks(doc, convert.KindService)
	name, then := shortform.Kind, "it is ignored"
	if unnamed != "" {
		d.damaged = true
	} else {
		d.broken[id] = struct{}{}
		name += " " + id.name.String()
		then = "its previous form, if any, stays in force"
	}
	for i, f := range faults {
		at := document{line: doc.line + f.Line - 1}
		if i == state.MaxProblems {
			d.fault(at, "%s: and %d more faults", name, len(faults)-i)
			return
		}
		d.fault(at, "%s: %s: %s", name, f, then)
	}
}

// setNamespace sets the namespace as the API server and its clients do.
func setNamespace(kind string, o metav1.Object) {
	switch {
	case kind == convert.KindNode || kind == convert.KindServiceCIDR:
		o.SetNamespace("")
	case o.GetNamespace() == "":
		o.SetNamespace(metav1.NamespaceDefault)
	}
}

func unknownFields(id objectID, errs []error) []state.Problem {
	f := convert.NewFindings(id.kind, id.name)
	for _, err := range errs {
		if field, ok := errors.AsType[strictjson.FieldError](err); ok {
			f.Add(field.FieldPath(), "unknown field: it is ignored")
			continue
		}
		f.Add("", "%v", err)
	}
	return f.Problems()
}

// undecodable reports an object with a value of a wrong type. If its name can be decoded, the previous form of the
// object stays in force.
func (d *decoder) undecodable(doc document, kind string, err error) {
	reason := strings.TrimPrefix(err.Error(), "json: ")
	id, unnamed := breaks(doc, kind)
	if unnamed != "" {
		d.fault(doc, "%s: %s: it is ignored", unnamed, reason)
		return
	}
	d.broken[id] = struct{}{}
	d.fault(doc, "%s: %s: its previous form, if any, stays in force", id, reason)
}

// breaks returns which object a document that cannot be decoded has, or why nobody knows that.
func breaks(doc document, kind string) (id objectID, unnamed string) {
	var named struct {
		Metadata struct{ Namespace, Name string }
	}
	if json.Unmarshal(doc.json, &named) != nil || named.Metadata.Name == "" {
		return objectID{}, kind
	}
	meta := metav1.ObjectMeta{Namespace: named.Metadata.Namespace, Name: named.Metadata.Name}
	setNamespace(kind, &meta)
	if wrong := convert.Misnamed(kind, &meta); wrong != "" {
		return objectID{}, kind + ": " + wrong
	}
	return objectID{kind: kind, name: convert.NameOf(&meta)}, ""
}

// maxFault is the longest text of a fault in bytes. Errors of decoders quote values of the file.
const maxFault = 500

// maxFaults is how many faults of a file are kept. Each is a line of the log, and a file may have millions.
const maxFaults = 100

func (d *decoder) fault(doc document, text string, args ...any) {
	f := fault{line: doc.line}
	if len(d.faults) < maxFaults {
		f.text = state.Clip(fmt.Sprintf(text, args...), maxFault)
	}
	d.faults = addFault(d.faults, f)
}

// addFault adds a fault of a file to others.
func addFault(list []fault, f fault) []fault {
	switch {
	case len(list) == maxFaults:
		f.text = "more faults, from here on, are not listed"
	case len(list) > maxFaults:
		return list
	}
	return append(list, f)
}
