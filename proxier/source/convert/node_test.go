package convert

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verdict-proxy/verdict/e2e/sourcetest"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func TestNode(t *testing.T) {
	for _, tt := range []struct {
		name     string
		api      func(*corev1.Node)
		want     state.Node
		problems []problem
	}{
		{"bare", func(*corev1.Node) {}, state.Node{}, nil},
		{"addresses, internal ones first", func(o *corev1.Node) {
			o.Status.Addresses = []corev1.NodeAddress{
				{Type: corev1.NodeExternalIP, Address: "198.51.100.7"},
				{Type: corev1.NodeHostName, Address: "n"},
				{Type: corev1.NodeInternalIP, Address: "192.0.2.7"},
				{Type: corev1.NodeInternalIP, Address: "2001:db8::7"},
				{Type: corev1.NodeExternalIP, Address: "192.0.2.7"},
			}
		}, state.Node{Addresses: sourcetest.Addrs("192.0.2.7", "2001:db8::7", "198.51.100.7")}, nil},
		{"malformed addresses", func(o *corev1.Node) {
			o.Status.Addresses = []corev1.NodeAddress{
				{Type: corev1.NodeExternalIP, Address: "outside"},
				{Type: corev1.NodeInternalIP, Address: "192.0.2.7"},
				{Type: corev1.NodeInternalIP, Address: "0.0.0.0"},
			}
		}, state.Node{Addresses: sourcetest.Addrs("192.0.2.7")}, []problem{
			{"status.addresses[2].address", `"0.0.0.0" is the unspecified address`},
			{"status.addresses[0].address", `"outside" is not an IP address`},
		}},
		{"pod CIDRs", func(o *corev1.Node) {
			o.Spec.PodCIDR, o.Spec.PodCIDRs = "10.1.0.0/24", []string{"10.1.0.0/24", "fd00:1::/64"}
		},
			state.Node{PodCIDRs: sourcetest.Prefixes("10.1.0.0/24", "fd00:1::/64")}, nil},
		{"pod CIDR only", func(o *corev1.Node) { o.Spec.PodCIDR = "10.1.0.0/24" },
			state.Node{PodCIDRs: sourcetest.Prefixes("10.1.0.0/24")}, nil},
		{"malformed pod CIDRs", func(o *corev1.Node) { o.Spec.PodCIDRs = []string{"10.1.0.0", "fd00:1::/64"} },
			state.Node{PodCIDRs: sourcetest.Prefixes("fd00:1::/64")},
			[]problem{{"spec.podCIDRs[0]", `"10.1.0.0" is not a CIDR such as 10.0.0.0/8; one address is 192.0.2.1/32`}}},
		{"malformed pod CIDR", func(o *corev1.Node) { o.Spec.PodCIDR = "10.1" }, state.Node{},
			[]problem{{"spec.podCIDR", `"10.1" is not a CIDR such as 10.0.0.0/8; one address is 192.0.2.1/32`}}},
		{"zone", func(o *corev1.Node) { o.Labels = map[string]string{corev1.LabelTopologyZone: "a"} },
			state.Node{Zone: "a"}, nil},
		{"being deleted", func(o *corev1.Node) { o.DeletionTimestamp = new(metav1.Now()) }, state.Node{Leaving: "the Node is being deleted"}, nil},
		{"taints", func(o *corev1.Node) {
			o.Spec.Taints = []corev1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "b", Value: "c"}}
		},
			state.Node{Taints: []string{"a", "b"}}, nil},
		{"cordoned", func(o *corev1.Node) { o.Spec.Unschedulable = true },
			state.Node{Taints: []string{"node.kubernetes.io/unschedulable"}}, nil},
		{"cordoned, and tainted so", func(o *corev1.Node) {
			o.Spec.Unschedulable, o.Spec.Taints = true, []corev1.Taint{{Key: "node.kubernetes.io/unschedulable"}}
		}, state.Node{Taints: []string{"node.kubernetes.io/unschedulable"}}, nil},
		{"its kubelet shuts it down", ready(corev1.ConditionFalse, "[container runtime is down, node is shutting down]"),
			state.Node{Leaving: "the kubelet shuts the node down"}, nil},
		{"it is not ready", ready(corev1.ConditionFalse, "container runtime is down"), state.Node{}, nil},
		{"its kubelet is silent", ready(corev1.ConditionUnknown, "node is shutting down"), state.Node{}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Name = "n"
			got, problems := New().Node(sourcetest.Node("n", tt.api))
			if diff := cmp.Diff(&tt.want, got, sourcetest.CompareValues); diff != "" {
				t.Errorf("node (-want +got):\n%s", diff)
			}
			checkProblems(t, KindNode, state.Name{Name: "n"}, tt.problems, problems)
		})
	}
	got, problems := New().Node(sourcetest.Node(""))
	if got != nil || len(problems) != 1 {
		t.Errorf("a Node without name: got %v with problems %v", got, problems)
	}
}

func ready(is corev1.ConditionStatus, message string) func(*corev1.Node) {
	return func(o *corev1.Node) {
		o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is, Reason: "KubeletNotReady", Message: message}}
	}
}

func TestServiceCIDR(t *testing.T) {
	got, problems := New().ServiceCIDR(sourcetest.Ranges("kubernetes", "10.96.0.1/12", "fd00::/112", "10.0.0.0/40"))
	want := sourcetest.Prefixes("10.96.0.0/12", "fd00::/112")
	if diff := cmp.Diff(want, got.Prefixes, sourcetest.CompareValues); diff != "" {
		t.Errorf("ranges (-want +got):\n%s", diff)
	}
	checkProblems(t, KindServiceCIDR, state.Name{Name: "kubernetes"}, []problem{{"spec.cidrs[2]", `"10.0.0.0/40" is not a CIDR such as 10.0.0.0/8; one address is 192.0.2.1/32`}}, problems)

	if got, problems := New().ServiceCIDR(sourcetest.Ranges("", "10.96.0.0/12")); got != nil || len(problems) != 1 {
		t.Errorf("a ServiceCIDR without name: got %v with problems %v", got, problems)
	}
}
