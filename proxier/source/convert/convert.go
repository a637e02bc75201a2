package convert

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// LabelProxyName names the proxy that serves a Service.
const LabelProxyName = "service.kubernetes.io/service-proxy-name"

// The kinds of objects, as in Problems and logs.
const (
	KindService     = "Service"
	KindSlice       = "EndpointSlice"
	KindNode        = "Node"
	KindServiceCIDR = "ServiceCIDR"
	KindFile        = "File"
)

// Converter turns API objects into values of package state. Apart from the strings that it shares, it keeps no state.
type Converter struct {
	strings     *interner
	values      *interner // of annotations
	annotations []state.Annotation
}

func New() *Converter {
	return &Converter{strings: newInterner(internLimit), values: newInterner(valueLimit), annotations: state.Annotations()}
}

// findings collects the problems of one object.
type findings struct{ state.ProblemList }

func NewFindings(kind string, object state.Name) findings {
	return findings{state.ProblemList{Object: state.Object{Kind: kind, Name: object}}}
}

// distinct is a list of values, each once.
type distinct[T comparable] struct {
	list []T
	seen map[T]struct{} // used for long lists only
}

// fewValues is the length up to which a list is searched without a map. Most lists have one or two values.
const fewValues = 16

func (d *distinct[T]) add(v T) {
	if d.has(v) {
		return
	}
	d.list = append(d.list, v)
	switch {
	case d.seen != nil:
		d.seen[v] = struct{}{}
	case len(d.list) > fewValues:
		d.seen = make(map[T]struct{}, max(2*len(d.list), cap(d.list))) // no copies while it grows to what is expected
		for _, old := range d.list {
			d.seen[old] = struct{}{}
		}
	}
}

func (d *distinct[T]) has(v T) bool {
	if d.seen == nil {
		return slices.Contains(d.list, v)
	}
	_, found := d.seen[v]
	return found
}

// named reports whether an object has a name. Without a name, the store could not hold the object.
func (f *findings) named(meta *metav1.ObjectMeta) bool {
	if meta.Name == "" {
		f.Add("metadata.name", "missing: the object is ignored")
	}
	return meta.Name != ""
}

// annotate reads the annotations of an object. setter returns the part of an annotation that sets the field of such an
// object, or nil.
func annotate[T any](
	c *Converter, f *findings, values map[string]string, object *T, setter func(*state.Annotation) func(*T, string) error,
) {
	if len(values) == 0 {
		return
	}
	for i := range c.annotations {
		a := &c.annotations[i]
		set := setter(a)
		if set == nil {
			continue
		}
		key, value := f.annotated(a, values)
		if value == "" {
			continue
		}
		if err := set(object, c.values.share(value)); err != nil {
			f.Add(state.AnnotationField(key), "%s: %s", err, a.Otherwise)
		}
	}
}

// annotated returns the value of an annotation and the key that has it. The key of Verdict comes before those of other
// proxies, whose users need not change their objects. An empty value is as good as none.
func (f *findings) annotated(a *state.Annotation, values map[string]string) (key, value string) {
	for _, alias := range append([]state.Alias{{Key: a.Key}}, a.Aliases...) {
		value := f.bounded(values, alias.Key, a)
		own, known := alias.Values[strings.ToLower(value)]
		switch {
		case value == "":
		case alias.Values == nil:
			return alias.Key, value
		case known:
			return alias.Key, own
		default:
			f.Add(state.AnnotationField(alias.Key), "%s is not %s: the annotation is ignored", state.Quote(value),
				strings.Join(slices.Sorted(maps.Keys(alias.Values)), " or "))
		}
	}
	return "", ""
}

// bounded returns the value of a key without white space around it. It does not return a value that is too long, because
// such a value would be held as long as the object exists.
func (f *findings) bounded(values map[string]string, key string, a *state.Annotation) string {
	value := values[key]
	if len(value) > a.Longest {
		f.Add(state.AnnotationField(key), "%s has %d bytes, and at most %d are allowed: the annotation is ignored",
			state.Quote(value), len(value), a.Longest)
		return ""
	}
	value = strings.TrimSpace(value)
	notInWord := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_,. ", r)
	}
	if !a.Text && strings.ContainsFunc(value, notInWord) {
		f.Add(state.AnnotationField(key), "%s has characters that no value has: the annotation is ignored", state.Quote(value))
		return ""
	}
	return value
}

func Indexed(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// fieldPath is the path of a field. Its text is made only for a Problem: lists of an object of 1 MB have 20,000 values.
type fieldPath struct {
	list  string
	index int    // in the list; -1: it is no list
	field string // of the value
}

func (p fieldPath) dot(field string) fieldPath { return fieldPath{p.list, p.index, field} }

func (p fieldPath) String() string {
	if p.index < 0 {
		return p.list
	}
	if p.field == "" {
		return Indexed(p.list, p.index)
	}
	return Indexed(p.list, p.index) + "." + p.field
}

// ParseAddr parses an address as upstream does: leading zeros are decimal, and an IPv4 address mapped into IPv6 becomes
// IPv4. An empty reason means that the address is usable.
func ParseAddr(s string) (addr netip.Addr, reason string) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		// Objects from the time before Go 1.17 may have leading zeros, which upstream still accepts (TestBadIPs).
		addr, _ = netip.AddrFromSlice(netutils.ParseIPSloppy(s))
	}
	addr = addr.Unmap()
	switch {
	case !addr.IsValid():
		return netip.Addr{}, state.Quote(s) + " is not an IP address"
	case addr.Zone() != "":
		return netip.Addr{}, state.Quote(s) + " has a zone"
	case addr.IsUnspecified():
		return netip.Addr{}, state.Quote(s) + " is the unspecified address"
	case addr.IsMulticast():
		return netip.Addr{}, state.Quote(s) + " is a multicast address"
	}
	return addr, ""
}

// parsePrefix parses a CIDR as upstream does. It clears the bits beyond the length. It trims white space, because the API
// server accepts it in loadBalancerSourceRanges.
func parsePrefix(s string) (prefix netip.Prefix, reason string) {
	s = strings.TrimSpace(s)
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		if _, sloppy, err := netutils.ParseCIDRSloppy(s); err == nil {
			addr, _ := netip.AddrFromSlice(sloppy.IP)
			ones, _ := sloppy.Mask.Size()
			prefix = netip.PrefixFrom(addr, ones)
		}
	}
	if prefix.Addr().Is4In6() {
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	if !prefix.IsValid() {
		return netip.Prefix{}, state.Quote(s) + " is not a CIDR such as 10.0.0.0/8; one address is 192.0.2.1/32"
	}
	return prefix.Masked(), ""
}

// maxList is how many values of one list of an object are read. An object of 1 MB can have 110,000 addresses, and their
// values would take more memory than the object.
const maxList = 16_384

// readable returns the values of a list that are read.
func readable[T any](f *findings, field string, list []T) []T {
	if len(list) > maxList {
		f.Add(field, "%d values: the first %d are used", len(list), maxList)
		return list[:maxList]
	}
	return list
}

// parsed returns the values of a list for which parse gives no reason against them, each once.
func parsed[T comparable](f *findings, field string, list []string, parse func(string) (T, string)) []T {
	if len(list) == 0 {
		return nil
	}
	list = readable(f, field, list)
	good := distinct[T]{list: make([]T, 0, len(list))}
	for i, s := range list {
		value, reason := parse(s)
		if reason != "" {
			f.Add(Indexed(field, i), "%s", reason)
			continue
		}
		good.add(value)
	}
	return good.list
}

// protocol parses a protocol. An empty protocol is TCP, the default of the API server, so that manifests may omit it.
func (f *findings) protocol(field fieldPath, p corev1.Protocol) (state.Protocol, bool) {
	if parsed := serviceport.ParseProtocol(cmp.Or(string(p), "TCP")); parsed != 0 {
		return parsed, true
	}
	f.Add(field.String(), "%s is not one of TCP, UDP and SCTP", state.Quote(string(p)))
	return 0, false
}

// port checks a port number that must not be 0.
func (f *findings) port(field fieldPath, number int32) (uint16, bool) {
	if number < 1 || number > 65535 {
		f.Add(field.String(), "%d is not a port number (1 to 65535)", number)
		return 0, false
	}
	return uint16(number), true
}

// optionalPort checks a port number for which 0 means none. It returns 0 for an invalid number.
func (f *findings) optionalPort(field fieldPath, number int32) uint16 {
	if number == 0 {
		return 0
	}
	port, _ := f.port(field, number)
	return port
}

func NameOf(meta metav1.Object) state.Name {
	return state.Name{Namespace: meta.GetNamespace(), Name: meta.GetName()}
}

// NameOf is the name of an object. Names of one namespace share its text.
func (c *Converter) NameOf(o metav1.Object) state.Name {
	return state.Name{Namespace: c.strings.share(o.GetNamespace()), Name: o.GetName()}
}

// internLimit limits how many strings an interner remembers. The node names, namespaces, zones and port names of the
// largest clusters stay far below it. An interner that reaches the limit starts again, so a cluster with ever new names
// does not fill the memory.
const internLimit = 1 << 16

// valueLimit limits how many values of annotations are remembered. A cluster uses a handful. A tenant who writes new ones
// all the time must not make the proxy hold them.
const valueLimit = 256

// longestShared is the length in bytes of the longest names of the API. Longer strings are not remembered.
const longestShared = 253

// interner makes equal strings share one backing array. Package unique does not fit: it forgets a string at the next
// garbage collection unless somebody keeps a Handle, and values of package state keep plain strings.
type interner struct {
	limit int
	mu    sync.Mutex
	known map[string]string
}

func newInterner(limit int) *interner { return &interner{limit: limit, known: map[string]string{}} }

func (in *interner) share(s string) string {
	if s == "" || len(s) > longestShared {
		return s
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if k, ok := in.known[s]; ok {
		return k
	}
	if len(in.known) >= in.limit {
		clear(in.known) // and keep its room: a tenant who uses ever new names has it filled again within milliseconds
	}
	in.known[s] = s
	return s
}

// sharedPorts is how many names of ports of an object are shared. One object can have so many that those of all others would be
// forgotten for them.
const sharedPorts = 256

// portName is the name of the i-th port of an object.
func (c *Converter) portName(i int, name string) string {
	if i < sharedPorts {
		return c.strings.share(name)
	}
	return name
}

// Misnamed says what is wrong with the name and the namespace of an object; "": nothing. An API server accepts no other
// names, and nobody has looked at those of a manifest: they reach terminals, logs and the comments of elements.
func Misnamed(kind string, meta metav1.Object) string {
	name, namespace := meta.GetName(), meta.GetNamespace()
	switch {
	case kind == KindService && !isLabel(name):
		return fmt.Sprintf("metadata.name %s is not a DNS label", state.Quote(name))
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return fmt.Sprintf("metadata.name %s is not a DNS name", state.Quote(name))
	case namespace != "" && !isLabel(namespace):
		return fmt.Sprintf("metadata.namespace %s is not a DNS label", state.Quote(namespace))
	}
	return ""
}

// portNamed reports whether a port may have a name. A port of a Service with one port may have none.
func (f *findings) portNamed(field fieldPath, name string) bool {
	if name == "" || isLabel(name) {
		return true
	}
	f.Add(field.String(), "%s is not a DNS label: the port is not used", state.Quote(name))
	return false
}

// isLabel reports whether a name is a DNS label, as validation.IsDNS1123Label does with a regular expression, which takes longer
// than all else that is done with a port.
func isLabel(name string) bool {
	other := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	return name != "" && len(name) <= validation.DNS1123LabelMaxLength &&
		name[0] != '-' && name[len(name)-1] != '-' && !strings.ContainsFunc(name, other)
}
