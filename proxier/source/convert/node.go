package convert

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/verdict-proxy/verdict/proxier/state"
)

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
		Taints:    taints(&o.Spec),
		Leaving:   leaving(o),
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

// taints lists the keys. The taint for spec.unschedulable comes from a controller, a moment later.
func taints(spec *corev1.NodeSpec) (keys []string) {
	for i := range spec.Taints {
		keys = append(keys, spec.Taints[i].Key)
	}
	if spec.Unschedulable && !slices.Contains(keys, corev1.TaintNodeUnschedulable) {
		keys = append(keys, corev1.TaintNodeUnschedulable)
	}
	return keys
}

// leaving says why a Node is about to go. A kubelet that ends its pods because the system stops says so in no other way
// (ShutdownStatus in pkg/kubelet/nodeshutdown, which is a part of the condition Ready).
func leaving(o *corev1.Node) string {
	stops := func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "node is shutting down")
	}
	switch {
	case o.DeletionTimestamp != nil:
		return "the Node is being deleted"
	case slices.ContainsFunc(o.Status.Conditions, stops):
		return "the kubelet shuts the node down"
	}
	return ""
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
