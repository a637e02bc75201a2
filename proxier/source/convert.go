package source

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Annotations and labels that are read.
const (
	annotationScheduler       = "verdict-proxy.github.io/scheduler"
	annotationSchedulerRouter = "kube-router.io/service.scheduler"
	annotationSchedulerFlags  = "verdict-proxy.github.io/scheduler-flags"
	annotationWeight          = "verdict-proxy.github.io/weight"

	labelProxyName = "service.kubernetes.io/service-proxy-name"
	labelHeadless  = corev1.IsHeadlessService
)

// The kinds of objects, as Problems and logs name them.
const (
	kindService     = "Service"
	kindSlice       = "EndpointSlice"
	kindNode        = "Node"
	kindServiceCIDR = "ServiceCIDR"
	kindFile        = "File"
)

// converter turns API objects into domain values. It is pure but for the strings it shares between values.
type converter struct {
	strings *interner
}

func newConverter() *converter { return &converter{strings: newInterner()} }

// findings collects what is wrong with one object.
type findings struct {
	kind     string
	object   state.Name
	problems []state.Problem
}

func (f *findings) add(field, reason string, args ...any) {
	f.problems = append(f.problems, state.Problem{
		Kind: f.kind, Object: f.object, Field: field, Reason: fmt.Sprintf(reason, args...),
	})
}

// named reports an object without a name, which cannot be filed anywhere.
func (f *findings) named(meta *metav1.ObjectMeta) bool {
	if meta.Name == "" {
		f.add("metadata.name", "missing: the object is ignored")
	}
	return meta.Name != ""
}

// annotation is the field path of an annotation.
func annotation(key string) string { return "metadata.annotations[" + key + "]" }

func indexed(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// parseAddr reads an address as upstream does: leading zeros are decimal, IPv4 in IPv6 is IPv4. The reason is "" when
// the address can be used.
func parseAddr(s string) (addr netip.Addr, reason string) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		// Objects older than Go 1.17 may hold leading zeros; upstream still accepts them (TestBadIPs).
		addr, _ = netip.AddrFromSlice(netutils.ParseIPSloppy(s))
	}
	addr = addr.Unmap()
	switch {
	case !addr.IsValid():
		return netip.Addr{}, fmt.Sprintf("%q is not an IP address", s)
	case addr.Zone() != "":
		return netip.Addr{}, fmt.Sprintf("%q has a zone", s)
	case addr.IsUnspecified():
		return netip.Addr{}, fmt.Sprintf("%q is the unspecified address", s)
	case addr.IsMulticast():
		return netip.Addr{}, fmt.Sprintf("%q is a multicast address", s)
	}
	return addr, ""
}

// parsePrefix reads a CIDR as upstream does; bits beyond the length are cleared.
func parsePrefix(s string) (prefix netip.Prefix, reason string) {
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
		return netip.Prefix{}, fmt.Sprintf("%q is not a CIDR", s)
	}
	return prefix.Masked(), ""
}

// addresses keeps the usable addresses of a list, each once.
func (f *findings) addresses(field string, list []string) []netip.Addr {
	if len(list) == 0 {
		return nil
	}
	good := make([]netip.Addr, 0, len(list))
	for i, s := range list {
		addr, reason := parseAddr(s)
		if reason != "" {
			f.add(indexed(field, i), "%s", reason)
			continue
		}
		if !slices.Contains(good, addr) {
			good = append(good, addr)
		}
	}
	return good
}

// prefixes keeps the usable CIDRs of a list, each once. Padding with white space is dropped, because the validation of
// loadBalancerSourceRanges accepts it by mistake.
func (f *findings) prefixes(field string, list []string) []netip.Prefix {
	if len(list) == 0 {
		return nil
	}
	good := make([]netip.Prefix, 0, len(list))
	for i, s := range list {
		prefix, reason := parsePrefix(strings.TrimSpace(s))
		if reason != "" {
			f.add(indexed(field, i), "%s", reason)
			continue
		}
		if !slices.Contains(good, prefix) {
			good = append(good, prefix)
		}
	}
	return good
}

// protocol reads a protocol; the empty one is TCP, the API server's default, so that manifests may leave it out.
func (f *findings) protocol(field string, p corev1.Protocol) (state.Protocol, bool) {
	switch p {
	case "", corev1.ProtocolTCP:
		return state.TCP, true
	case corev1.ProtocolUDP:
		return state.UDP, true
	case corev1.ProtocolSCTP:
		return state.SCTP, true
	}
	f.add(field, "%q is not one of TCP, UDP and SCTP", string(p))
	return 0, false
}

// port reads a port number that must not be 0.
func (f *findings) port(field string, number int32) (uint16, bool) {
	if number < 1 || number > 65535 {
		f.add(field, "%d is not a port number (1 to 65535)", number)
		return 0, false
	}
	return uint16(number), true
}

// optionalPort reads a port number for which 0 means none; a bad one counts as none.
func (f *findings) optionalPort(field string, number int32) uint16 {
	if number == 0 {
		return 0
	}
	port, _ := f.port(field, number)
	return port
}

func nameOf(meta *metav1.ObjectMeta) state.Name {
	return state.Name{Namespace: meta.Namespace, Name: meta.Name}
}

// created is in UTC so that it carries no pointer to a time zone of its own and equal times compare equal.
func created(meta *metav1.ObjectMeta) time.Time {
	if meta.CreationTimestamp.IsZero() {
		return time.Time{}
	}
	return meta.CreationTimestamp.UTC()
}
