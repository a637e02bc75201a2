package convert

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// taintDeletion is the taint that the cluster autoscaler puts on a Node before it deletes it.
const taintDeletion = "ToBeDeletedByClusterAutoscaler"

// Node converts a Node.
func (c *Converter) Node(o *corev1.Node) (*state.Node, []state.Problem) {
	f := NewFindings(KindNode, state.Name{Name: o.Name})
	if !f.named(&o.ObjectMeta) {
		return nil, f.Problems()
	}
	return &state.Node{
		Name:      o.Name,
		Addresses: f.nodeAddresses(o.Status.Addresses),
		PodCIDRs:  f.podCIDRs(&o.Spec),
		Zone:      o.Labels[corev1.LabelTopologyZone],
		Eligible:  eligible(o),
	}, f.Problems()
}

// nodeAddresses returns internal addresses before external ones, in the order of upstream's node IP detection. It skips
// host names and DNS names.
func (f *findings) nodeAddresses(list []corev1.NodeAddress) []netip.Addr {
	var good distinct[netip.Addr]
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for i, a := range list {
			if a.Type != kind {
				continue
			}
			addr, reason := ParseAddr(a.Address)
			if reason != "" {
				f.Add(Indexed("status.addresses", i)+".address", "%s", reason)
				continue
			}
			good.add(addr)
		}
	}
	return good.list
}

func (f *findings) podCIDRs(spec *corev1.NodeSpec) []netip.Prefix {
	if len(spec.PodCIDRs) > 0 || spec.PodCIDR == "" {
		return parsed(f, "spec.podCIDRs", spec.PodCIDRs, parsePrefix)
	}
	prefix, reason := parsePrefix(spec.PodCIDR)
	if reason != "" {
		f.Add("spec.podCIDR", "%s", reason)
		return nil
	}
	return []netip.Prefix{prefix}
}

func eligible(o *corev1.Node) bool {
	return o.DeletionTimestamp == nil && !slices.ContainsFunc(o.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == taintDeletion
	})
}

// ServiceCIDR is one ServiceCIDR object.
type ServiceCIDR struct {
	Name     string
	Prefixes []netip.Prefix
}

// ServiceCIDR converts a ServiceCIDR. One that is being deleted still counts, because its finalizer keeps it while
// Services use addresses of it.
func (c *Converter) ServiceCIDR(o *networkingv1.ServiceCIDR) (*ServiceCIDR, []state.Problem) {
	f := NewFindings(KindServiceCIDR, state.Name{Name: o.Name})
	if !f.named(&o.ObjectMeta) {
		return nil, f.Problems()
	}
	return &ServiceCIDR{Name: o.Name, Prefixes: parsed(&f, "spec.cidrs", o.Spec.CIDRs, parsePrefix)}, f.Problems()
}

// OnlyNode returns a function that converts the Node with the given name and ignores all others.
func (c *Converter) OnlyNode(name string) func(*corev1.Node) (*state.Node, []state.Problem) {
	return func(o *corev1.Node) (*state.Node, []state.Problem) {
		if o.Name != name {
			return nil, nil
		}
		return c.Node(o)
	}
}
