//go:build e2e && !ipvs

package takeover

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
)

// loadBalancerRanges are those of $LB1 and $LB3, which --load-balancer-cidrs names.
const loadBalancerRanges = "203.0.113.0/24,2001:db8:203::/64"

// edges are questions of a pod, and how they end with kube-proxy in mode nftables, in mode iptables, and with Verdict.
var edges = []struct {
	what, at                    string
	port                        uint16
	nftables, iptables, verdict lab.Outcome
}{
	{"another table translates to a cluster IP", "EXT1", servicePort, lab.Refused, lab.Unreachable, lab.Refused},
	{"another table translates to an address of no Service", "EXT2", servicePort, lab.Dropped, lab.Unreachable, lab.Dropped},
	{"an endpoint is a cluster IP", "VIP3", servicePort, lab.Refused, lab.Unreachable, lab.Refused},
	{"an endpoint is an address of no Service", "VIP4", servicePort, lab.Dropped, lab.Unreachable, lab.Refused},
	{"another port of a load balancer IP in --load-balancer-cidrs", "LB1", servicePort + 1, lab.Unreachable, lab.Unreachable, lab.Refused},
	{"an address in --load-balancer-cidrs of no Service", "LB3", servicePort, lab.Unreachable, lab.Unreachable, lab.Dropped},
}

// TestEdgePackets shows what a user sees of kube-proxy, and of Verdict after it has taken over, of packets to addresses that no port
// takes, and of connections that began before the last change. The rows of e2e/UPSTREAM.md say the same.
func TestEdgePackets(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			lab.Must(t, b.At(t, "c").Load("table inet silent { chain in { type filter hook input priority 0; tcp dport 9400 drop; }; }"))
			for _, f := range lab.Families() {
				b.misplace(t, f)
			}
			stop(t, b.kubeProxy(t, &m, "--conntrack-tcp-be-liberal"))
			upstream := b.kubeProxy(t, &m)
			if got := strings.TrimSpace(b.Node.Must(t, "", "cat", "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal")); got != "1" {
				t.Errorf("kube-proxy, without --conntrack-tcp-be-liberal again: the sysctl is %s", got)
			}
			b.expectPackets(t, m.proxyMode)
			stop(t, upstream)
			m.flags = [][]string{{"--proxy-mode=" + m.proxyMode, "--load-balancer-cidrs=" + loadBalancerRanges}}
			b.verdict(t, &m, 0)
			b.expectPackets(t, "Verdict")
		})
	}
}

// misplace makes Services whose endpoints are addresses of Services, and another table that translates to such addresses.
func (b *bed) misplace(t *testing.T, f lab.Family) {
	t.Helper()
	b.put(t, f, "cluster-ip", "VIP3", "", "VIP1", servicePort)
	b.put(t, f, "of-nobody", "VIP4", "", "UNALLOCATED", servicePort)
	family := map[lab.Family]string{lab.IPv4: "ip", lab.IPv6: "ip6"}[f]
	lab.Must(t, b.Node.Load(fmt.Sprintf(`table %[1]s other {
		chain in {
			type nat hook prerouting priority -101
			%[1]s daddr %[2]s dnat to %[3]s
			%[1]s daddr %[4]s dnat to %[5]s
		}
	}`, family, lab.Address(f, "EXT1"), lab.Address(f, "VIP1"), lab.Address(f, "EXT2"), lab.Address(f, "UNALLOCATED"))))
}

// put writes a Service of one family with one endpoint, for each protocol.
func (b *bed) put(t *testing.T, f lab.Family, name, vip, external, endpoint string, port uint16) []runtime.Object {
	t.Helper()
	s := objects.Service("default", name+"-"+map[lab.Family]string{lab.IPv4: "four", lab.IPv6: "six"}[f], lab.MustText(f, vip))
	s.Spec.Type, s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = corev1.ServiceTypeClusterIP, []corev1.IPFamily{corev1.IPFamily(f.String())}, ptr.To(corev1.IPFamilyPolicySingleStack)
	if external != "" {
		s.Spec.ExternalIPs = []string{lab.MustText(f, external)}
	}
	slice := objects.Slice("default", s.Name, f, 0)
	for name, p := range map[string]corev1.Protocol{"tcp": corev1.ProtocolTCP, "udp": corev1.ProtocolUDP, "sctp": corev1.ProtocolSCTP} {
		s.Spec.Ports = append(s.Spec.Ports, objects.Port(name, p, servicePort))
		slice.Ports = append(slice.Ports, objects.SlicePort(name, p, port))
	}
	slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{lab.MustText(f, endpoint)}, NodeName: ptr.To(lab.NodeName)}}
	lab.Must(t, b.plane.Put(t.Context(), s, slice))
	return []runtime.Object{s, slice}
}

// twoSYNs is enough for a second SYN, and sixSYNs for more. A client may not hear of an ICMP error about the first one.
const twoSYNs, sixSYNs = 2500 * time.Millisecond, 6 * time.Second

// expectPackets compares what a proxy does with packets and flows.
func (b *bed) expectPackets(t *testing.T, proxy string) {
	t.Helper()
	for _, e := range edges {
		want := map[string]lab.Outcome{"nftables": e.nftables, "iptables": e.iptables, "Verdict": e.verdict}[proxy]
		for _, f := range lab.Families() {
			for _, protocol := range []lab.Protocol{lab.TCP, lab.UDP, lab.SCTP} {
				q := lab.Question{Protocol: protocol, To: lab.AddressPort(f, e.at, e.port), Patience: patience}
				if protocol == lab.TCP {
					q.Patience = twoSYNs
				}
				if got := b.At(t, "a").Ask(q); got.Outcome != want {
					t.Errorf("%s, %s, %s: %s, want %s", proxy, e.what, q, got, want)
				}
			}
		}
	}
	var both sync.WaitGroup
	for _, f := range lab.Families() {
		both.Go(func() { b.expectFlows(t, proxy, f) })
	}
	both.Wait()
	lab.Must(t, b.Node.Load("table inet closed { chain forward { type filter hook forward priority 0; policy drop; }; }"))
	for _, f := range lab.Families() {
		q := lab.Question{Protocol: lab.TCP, To: lab.AddressPort(f, "VIP1", servicePort), Patience: patience}
		if got := b.At(t, "a").Ask(q); got.Outcome != lab.Dropped {
			t.Errorf("%s, a chain drops all that is forwarded, %s: %s", proxy, q, got)
		}
	}
	lab.Must(t, b.Node.Load("delete table inet closed"))
}

// expectFlows has clients with a fixed port come before their Service, and one begin a connection to an endpoint that drops it, which
// another one replaces. They go on with Verdict, and not with kube-proxy.
func (b *bed) expectFlows(t *testing.T, proxy string, f lab.Family) {
	const silent = 9400
	ask := func(place string, q lab.Question, want lab.Outcome) error {
		if got := b.At(t, place).Ask(q); got.Outcome != want {
			return fmt.Errorf("%s, %s: %s, want %s", proxy, q, got, want)
		}
		return nil
	}
	early := func(protocol lab.Protocol, low, high uint16) lab.Question {
		return lab.Question{Protocol: protocol, To: lab.AddressPort(f, "NOWHERE", servicePort), Patience: twoSYNs, Ports: lab.PortRange{Low: low, High: high}}
	}
	early1, early2 := early(lab.TCP, 20101, 20101), early(lab.SCTP, 20101, 20101)
	lab.Must(t, ask("a", early1, lab.Unreachable), ask("a", early2, lab.Unreachable))
	late := b.put(t, f, "late", "VIP2", "NOWHERE", "B", targetPort)
	vanishing := b.put(t, f, "vanishing", "VIP5", "", "C", silent)
	lab.Eventually(t, proxy+" serves both", func() error {
		return errors.Join(ask("a", early(lab.TCP, 20200, 22000), lab.Answered), ask("b", lab.Question{
			Protocol: lab.UDP, To: lab.AddressPort(f, "VIP5", servicePort), Patience: patience}, lab.Refused))
	})
	q := lab.Question{Protocol: lab.TCP, To: lab.AddressPort(f, "VIP5", servicePort), Patience: sixSYNs}
	want := lab.Dropped
	if proxy == "Verdict" {
		lab.Eventually(t, "the clients that came before the Service", func() error {
			return errors.Join(ask("a", early1, lab.Answered), ask("a", early2, lab.Answered))
		})
		q.Patience, want = time.Minute, lab.Answered
	} else if err := errors.Join(ask("a", early1, lab.Unreachable), ask("a", early2, lab.Unreachable)); err != nil {
		t.Error(err)
	}
	end := make(chan error)
	go func() { end <- ask("b", q, want) }()
	lab.Eventually(t, "the node tracks the connection", func() error {
		flows, err := b.Node.Flows(f)
		if err == nil && !slices.ContainsFunc(flows, func(x lab.TrackedFlow) bool { return x.To == q.To && x.Protocol == lab.TCP }) {
			err = errors.New("none")
		}
		return err
	})
	b.put(t, f, "vanishing", "VIP5", "", "A", targetPort)
	if err := <-end; err != nil {
		t.Errorf("an endpoint that drops the first packets is replaced: %v", err)
	}
	lab.Must(t, b.plane.Delete(t.Context(), append(late, vanishing...)...))
}
