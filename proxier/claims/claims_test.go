package claims

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// nodeAddrs are the node port addresses in tests.
var nodeAddrs = []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("fd00::100")}

// newAtNode returns an empty register that knows nodeAddrs.
func newAtNode() *Claims {
	c := New()
	c.SetNodePortAddresses(nodeAddrs)
	return c
}

// planOf makes a plan from words: "192.0.2.1:80/tcp" (a cluster IP), "+192.0.2.1:80/tcp" (an external IP),
// "%192.0.2.1:80/tcp" (a load balancer IP), "192.0.2.1:80-90/tcp" (a range), "[fd00::1]:53/udp", "*4:30080/tcp" (an IPv4 node port), "hc:32000".
func planOf(name, words string) *plan.Service {
	p := &plan.Service{Name: state.Name{Namespace: "ns", Name: name}}
	for _, w := range strings.Fields(words) {
		if port, ok := strings.CutPrefix(w, "hc:"); ok {
			p.HealthCheck = &plan.HealthCheck{}
			fmt.Sscan(port, &p.HealthCheck.NodePort)
			continue
		}
		p.Ports = append(p.Ports, portOf(w))
	}
	return p
}

func portOf(w string) plan.Port {
	where, protocol, _ := strings.Cut(w, "/")
	where, end, _ := strings.Cut(where, "-")
	port := plan.Port{Family: state.IPv4, Protocol: map[string]state.Protocol{"tcp": state.TCP, "udp": state.UDP}[protocol]}
	var fe plan.Frontend
	where, external := strings.CutPrefix(where, "+")
	if external {
		fe.Kind = plan.ExternalIP
	}
	where, balanced := strings.CutPrefix(where, "%")
	if balanced {
		fe.Kind = plan.LoadBalancer
	}
	if strings.HasPrefix(where, "*") {
		fe.Kind = plan.NodePort
		if where[1] == '6' {
			port.Family = state.IPv6
		}
		fmt.Sscan(where[3:], &fe.Port)
	} else {
		a := netip.MustParseAddrPort(where)
		fe.Addr, fe.Port, port.Family = a.Addr(), a.Port(), state.FamilyOf(a.Addr())
	}
	fmt.Sscan(end, &fe.EndPort)
	port.Frontends = []plan.Frontend{fe}
	return port
}

// remaining returns the words of the frontends that a plan still has.
func remaining(p *plan.Service) string {
	var words []string
	for _, port := range p.Ports {
		for _, fe := range port.Frontends {
			where := fmt.Sprintf("*%s:%d", port.Family.Version()[3:], fe.Port)
			if fe.Addr.IsValid() {
				where = netip.AddrPortFrom(fe.Addr, fe.Port).String()
			}
			if fe.EndPort != 0 {
				where += fmt.Sprint("-", fe.EndPort)
			}
			where = map[plan.FrontendKind]string{plan.ExternalIP: "+", plan.LoadBalancer: "%"}[fe.Kind] + where
			words = append(words, where+"/"+port.Protocol.String())
		}
	}
	if p.HealthCheck != nil {
		words = append(words, fmt.Sprint("hc:", p.HealthCheck.NodePort))
	}
	return strings.Join(words, " ")
}

func at(second int) time.Time { return time.Unix(int64(second), 0) }

func names(list []state.Name) string {
	var words []string
	for _, n := range list {
		words = append(words, n.Name)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// TestResolve has rows of steps. The steps of a row run one after the other on the same register.
func TestResolve(t *testing.T) {
	type step struct {
		name    string // of the Service
		created int
		words   string
		left    string
		replan  string
		lost    []string // reasons
	}
	const vip = "192.0.2.1:80/tcp"
	tests := []struct {
		name  string
		steps []step
	}{
		{"apart", []step{
			{"a", 1, "192.0.2.1:80/tcp *4:30080/tcp", "192.0.2.1:80/tcp *4:30080/tcp", "", nil},
			{"b", 2, "192.0.2.1:80/udp 192.0.2.1:81/tcp 192.0.2.2:80/tcp *4:30080/udp *6:30080/tcp",
				"192.0.2.1:80/udp 192.0.2.1:81/tcp 192.0.2.2:80/tcp *4:30080/udp *6:30080/tcp", "", nil},
		}},
		{"the older keeps it", []step{
			{"a", 1, vip, vip, "", nil},
			{"b", 2, vip + " 192.0.2.2:80/tcp", "192.0.2.2:80/tcp", "", []string{"frontend 192.0.2.1:80/tcp is taken by ns/a"}},
		}},
		{"the older takes it", []step{
			{"b", 2, vip, vip, "", nil},
			{"a", 1, vip, vip, "b", nil},
			{"b", 2, vip, "", "", []string{"frontend 192.0.2.1:80/tcp is taken by ns/a"}},
		}},
		{"same age: by name", []step{
			{"b", 1, vip, vip, "", nil},
			{"a", 1, vip, vip, "b", nil},
			{"c", 1, vip, "", "", []string{"frontend 192.0.2.1:80/tcp is taken by ns/a"}},
		}},
		{"the winner lets go", []step{
			{"a", 1, vip, vip, "", nil},
			{"c", 3, vip, "", "", []string{"frontend 192.0.2.1:80/tcp is taken by ns/a"}},
			{"b", 2, vip, "", "", []string{"frontend 192.0.2.1:80/tcp is taken by ns/a"}},
			{"a", 1, "192.0.2.9:80/tcp", "192.0.2.9:80/tcp", "b", nil},
			{"b", 2, vip, vip, "", nil},
			{"c", 3, vip, "", "", []string{"frontend 192.0.2.1:80/tcp is taken by ns/b"}},
		}},
		{"the winner is deleted and made again: it is the youngest now", []step{
			{"a", 1, vip, vip, "", nil},
			{"b", 2, vip, "", "", []string{"frontend 192.0.2.1:80/tcp is taken by ns/a"}},
			{"a", 3, vip, "", "b", []string{"frontend 192.0.2.1:80/tcp is taken by ns/b"}},
			{"b", 2, vip, vip, "", nil},
		}},
		{"a cluster IP beats an older external IP", []step{
			{"old", 1, "+" + vip + " +192.0.2.2:80/tcp", "+" + vip + " +192.0.2.2:80/tcp", "", nil},
			{"new", 2, vip, vip, "old", nil},
			{"old", 1, "+" + vip + " +192.0.2.2:80/tcp", "+192.0.2.2:80/tcp", "", []string{"frontend 192.0.2.1:80/tcp is taken by ns/new"}},
			{"older", 0, "+" + vip, "", "", []string{"frontend 192.0.2.1:80/tcp is taken by ns/new"}},
			{"new", 2, "192.0.2.9:80/tcp", "192.0.2.9:80/tcp", "old older", nil},
			{"older", 0, "+" + vip, "+" + vip, "", nil},
		}},
		{"a cluster IP keeps the ports that it does not have", []step{
			{"old", 1, "+192.0.2.1:22/tcp +192.0.2.2:22/tcp", "+192.0.2.1:22/tcp +192.0.2.2:22/tcp", "", nil},
			{"new", 2, vip, vip, "old", nil},
			{"old", 1, "+192.0.2.1:22/tcp +192.0.2.2:22/tcp", "+192.0.2.2:22/tcp", "",
				[]string{"frontend 192.0.2.1:22/tcp is at the cluster IP of another Service, which keeps all ports of its address"}},
			{"shared", 1, "%192.0.2.1:22/tcp", "%192.0.2.1:22/tcp", "old", nil},
			{"new", 2, "192.0.2.9:80/tcp", "192.0.2.9:80/tcp", "old shared", nil},
		}},
		{"of external IPs the older keeps it", []step{
			{"a", 1, "+" + vip, "+" + vip, "", nil},
			{"b", 2, "+" + vip, "", "", []string{"frontend 192.0.2.1:80/tcp is taken by ns/a"}},
		}},
		{"an external IP becomes the cluster IP and back", []step{
			{"a", 1, "+" + vip, "+" + vip, "", nil},
			{"b", 2, "+" + vip, "", "", []string{"frontend 192.0.2.1:80/tcp is taken by ns/a"}},
			{"b", 2, vip, vip, "a", nil},
			{"a", 1, "+" + vip, "", "", []string{"frontend 192.0.2.1:80/tcp is taken by ns/b"}},
			{"b", 2, "+" + vip, "", "a", []string{"frontend 192.0.2.1:80/tcp is taken by ns/a"}},
			{"a", 1, "+" + vip, "+" + vip, "", nil},
		}},
		{"a load balancer IP beats an older external IP", []step{
			{"old", 1, "+" + vip, "+" + vip, "", nil},
			{"new", 2, "%" + vip, "%" + vip, "old", nil},
			{"old", 1, "+" + vip, "", "", []string{"frontend 192.0.2.1:80/tcp is taken by ns/new"}},
			{"newest", 3, vip, vip, "new old", nil},
			{"new", 2, "%" + vip, "", "", []string{"frontend 192.0.2.1:80/tcp is taken by ns/newest"}},
		}},
		{"an external IP does not take a node port of any node, whichever is older", []step{
			{"old", 1, "+198.51.100.1:30080/tcp +198.51.100.9:30080/tcp +198.51.100.9:80/tcp",
				"+198.51.100.1:30080/tcp +198.51.100.9:30080/tcp +198.51.100.9:80/tcp", "", nil},
			{"new", 2, "*4:30080/tcp", "*4:30080/tcp", "old", nil},
			{"old", 1, "+198.51.100.1:30080/tcp +198.51.100.9:30080/tcp +198.51.100.9:80/tcp", "+198.51.100.9:80/tcp", "", []string{
				"frontend 198.51.100.1:30080/tcp would hide node port 30080/tcp of ns/new, which answers at addresses of nodes, and this may be one",
				"frontend 198.51.100.9:30080/tcp would hide node port 30080/tcp of ns/new, which answers at addresses of nodes, and this may be one",
			}},
			{"own", 3, "+198.51.100.9:30082/tcp *4:30082/tcp", "+198.51.100.9:30082/tcp *4:30082/tcp", "", []string(nil)},
			{"balanced", 3, "%198.51.100.9:30080/tcp", "%198.51.100.9:30080/tcp", "old", nil},
			{"other", 3, "+198.51.100.1:30080/udp", "+198.51.100.1:30080/udp", "", nil},
			{"new", 2, "*4:30081/tcp", "*4:30081/tcp", "old", nil},
			{"old", 1, "+198.51.100.1:30080/tcp", "+198.51.100.1:30080/tcp", "", nil},
		}},
		{"an external IP does not take a node port or a health check port of another node: IPv6", []step{
			{"new", 2, "*6:30080/tcp hc:32000", "*6:30080/tcp hc:32000", "", nil},
			{"old", 1, "+[fd00::9]:30080/tcp +[fd00::9]:32000/tcp +198.51.100.9:30080/tcp", "+198.51.100.9:30080/tcp", "", []string{
				"frontend [fd00::9]:30080/tcp would hide node port 30080/tcp of ns/new, which answers at addresses of nodes, and this may be one",
				"frontend [fd00::9]:32000/tcp would hide node port 32000/tcp of ns/new, which answers at addresses of nodes, and this may be one",
			}},
		}},
		{"a load balancer IP does not take a node port or a health check port", []step{
			{"a", 1, "*6:30080/tcp hc:32000", "*6:30080/tcp hc:32000", "", nil},
			{"b", 0, "%[fd00::100]:30080/tcp %198.51.100.2:32000/tcp %198.51.100.2:30080/tcp", "%198.51.100.2:30080/tcp", "", []string{
				"frontend [fd00::100]:30080/tcp would hide node port 30080/tcp of ns/a, which answers at this address",
				"frontend 198.51.100.2:32000/tcp would hide node port 32000/tcp of ns/a, which answers at this address",
			}},
		}},
		{"load balancers at node addresses stand beside each other and their own node port", []step{
			{"a", 1, "%198.51.100.1:80/tcp %198.51.100.2:80/tcp *4:30080/tcp", "%198.51.100.1:80/tcp %198.51.100.2:80/tcp *4:30080/tcp", "", nil},
			{"b", 2, "%198.51.100.1:443/tcp *4:30081/tcp", "%198.51.100.1:443/tcp *4:30081/tcp", "", nil},
			{"c", 3, "%[fd00::100]:80/tcp +198.51.100.2:443/tcp", "%[fd00::100]:80/tcp +198.51.100.2:443/tcp", "", nil},
			{"d", 4, "%198.51.100.1:30082/tcp *4:30082/tcp", "%198.51.100.1:30082/tcp *4:30082/tcp", "", []string(nil)},
		}},
		{"IPv6", []step{
			{"a", 1, "[fd00::1]:53/udp", "[fd00::1]:53/udp", "", nil},
			{"b", 2, "[fd00::1]:53/udp", "", "", []string{"frontend [fd00::1]:53/udp is taken by ns/a"}},
		}},
		{"a node port lost in both families is one Problem", []step{
			{"a", 1, "*4:30080/tcp *6:30080/tcp", "*4:30080/tcp *6:30080/tcp", "", nil},
			{"b", 2, "*4:30080/tcp *6:30080/tcp", "", "", []string{"node port 30080/tcp is taken by ns/a"}},
		}},
		{"node port against health check port", []step{
			{"a", 1, "*6:32000/tcp", "*6:32000/tcp", "", nil},
			{"b", 2, "hc:32000", "", "", []string{"node port 32000/tcp is taken by ns/a"}},
			{"c", 0, "hc:32000", "hc:32000", "a b", nil},
			{"a", 1, "*6:32000/tcp", "", "", []string{"node port 32000/tcp is taken by ns/c"}},
			{"d", 3, "*4:32000/udp", "*4:32000/udp", "", nil},
		}},
		{"a range and what overlaps with it: the older keeps it", []step{
			{"a", 1, "+192.0.2.1:5000-6000/tcp", "+192.0.2.1:5000-6000/tcp", "", nil},
			{"b", 2, "+192.0.2.1:6000/tcp +192.0.2.1:6001/tcp", "+192.0.2.1:6001/tcp", "",
				[]string{"frontend 192.0.2.1:6000/tcp overlaps with 5000-6000/tcp of ns/a"}},
			{"c", 3, "+192.0.2.1:5999-7000/tcp +192.0.2.1:5000-6000/udp", "+192.0.2.1:5000-6000/udp", "",
				[]string{"frontend 192.0.2.1:5999-7000/tcp overlaps with 5000-6000/tcp of ns/a"}},
			{"a", 1, "+192.0.2.1:5000/tcp", "+192.0.2.1:5000/tcp", "b c", nil},
			{"b", 2, "+192.0.2.1:6000/tcp +192.0.2.1:6001/tcp", "+192.0.2.1:6000/tcp +192.0.2.1:6001/tcp", "", nil},
			{"c", 3, "+192.0.2.1:5999-7000/tcp", "", "", []string{"frontend 192.0.2.1:5999-7000/tcp overlaps with 6000/tcp of ns/b"}},
		}},
		{"a range of an external IP gives way to a cluster IP and a load balancer IP", []step{
			{"a", 1, "+[fd00::1]:1-65535/udp", "+[fd00::1]:1-65535/udp", "", nil},
			{"b", 2, "%[fd00::1]:53/udp", "%[fd00::1]:53/udp", "a", nil},
			{"a", 1, "+[fd00::1]:1-65535/udp", "", "", []string{"frontend [fd00::1]:1-65535/udp overlaps with 53/udp of ns/b"}},
			{"c", 3, "[fd00::1]:1-65535/udp", "[fd00::1]:1-65535/udp", "a b", nil},
			{"b", 2, "%[fd00::1]:53/udp", "", "", []string{"frontend [fd00::1]:53/udp overlaps with 1-65535/udp of ns/c"}},
			{"c", 3, "[fd00::1]:1-52/udp", "[fd00::1]:1-52/udp", "a b", nil},
			{"b", 2, "%[fd00::1]:53/udp", "%[fd00::1]:53/udp", "", nil},
		}},
		{"a range comes where a cluster IP is", []step{
			{"a", 2, "192.0.2.1:53/udp", "192.0.2.1:53/udp", "", nil},
			{"b", 1, "%192.0.2.1:1-100/udp", "", "", []string{"frontend 192.0.2.1:1-100/udp overlaps with 53/udp of ns/a"}},
		}},
		{"a range hides no node port", []step{
			{"c", 3, "%203.0.113.5:7000-7100/tcp", "%203.0.113.5:7000-7100/tcp", "", nil},
			{"d", 4, "%203.0.113.5:7050/tcp", "%203.0.113.5:7050/tcp", "c", nil},
			{"a", 1, "%198.51.100.1:30000-30100/tcp *4:30050/tcp", "%198.51.100.1:30000-30100/tcp *4:30050/tcp", "", nil},
			{"b", 2, "*4:30060/tcp *4:29999/tcp", "*4:30060/tcp *4:29999/tcp", "a", nil},
			{"a", 1, "%198.51.100.1:30000-30100/tcp", "", "",
				[]string{"frontend 198.51.100.1:30000-30100/tcp would hide node port 30060/tcp of ns/b, which answers at addresses of nodes, and this may be one"}},
			{"b", 2, "*4:30101/tcp", "*4:30101/tcp", "a", nil},
			{"a", 1, "%198.51.100.1:30000-30100/tcp", "%198.51.100.1:30000-30100/tcp", "", nil},
		}},
		{"overlapping in one Service", []step{
			{"a", 1, "192.0.2.1:80/tcp 192.0.2.1:1-100/tcp 192.0.2.1:90/tcp", "192.0.2.1:80/tcp 192.0.2.1:90/tcp", "",
				[]string{"frontend 192.0.2.1:1-100/tcp overlaps with 80/tcp in this Service: the first one counts"}},
		}},
		{"twice in one Service", []step{
			{"a", 1, vip + " " + vip, vip, "", []string{"frontend 192.0.2.1:80/tcp occurs twice in this Service: the first one counts"}},
			{"a", 1, vip, vip, "", nil},
			{"a", 1, "*4:32000/tcp hc:32000", "*4:32000/tcp", "",
				[]string{"node port 32000/tcp occurs twice in this Service: the first one counts"}},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newAtNode()
			for i, s := range tt.steps {
				p := planOf(s.name, s.words)
				problems, replan := c.Resolve(p, at(s.created))
				var reasons []string
				for _, problem := range problems {
					reasons = append(reasons, problem.Reason)
				}
				got := step{
					name: s.name, created: s.created, words: s.words,
					left: remaining(p), replan: names(replan), lost: reasons,
				}
				if !reflect.DeepEqual(got, s) {
					t.Errorf("step %d:\n got %+v\nwant %+v", i, got, s)
				}
			}
		})
	}
}

// TestSetNodePortAddresses: only the Services with an external address that changed are planned again.
func TestSetNodePortAddresses(t *testing.T) {
	c := New()
	c.Resolve(planOf("a", "%198.51.100.1:30080/tcp"), at(1))
	c.Resolve(planOf("b", "+198.51.100.2:80/tcp %198.51.100.1:80/tcp"), at(1))
	c.Resolve(planOf("c", "192.0.2.1:80/tcp *4:30080/tcp"), at(2))
	for i, tt := range []struct{ addrs, replan, left string }{
		{"198.51.100.1", "a b", ""},
		{"198.51.100.1 198.51.100.2", "b", ""},
		{"198.51.100.2 203.0.113.1", "a b", "%198.51.100.1:30080/tcp"},
		{"", "b", "%198.51.100.1:30080/tcp"},
	} {
		var addrs []netip.Addr
		for _, a := range strings.Fields(tt.addrs) {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		replan := names(c.SetNodePortAddresses(addrs))
		p := planOf("a", "%198.51.100.1:30080/tcp")
		c.Resolve(p, at(1))
		if replan != tt.replan || remaining(p) != tt.left {
			t.Errorf("step %d: replan %q, a has %q; want %q, %q", i, replan, remaining(p), tt.replan, tt.left)
		}
	}
}

func TestRelease(t *testing.T) {
	c := New()
	c.Resolve(planOf("a", "192.0.2.1:80/tcp"), at(1))
	c.Resolve(planOf("b", "192.0.2.1:80/tcp"), at(2))
	if got := c.Release(state.Name{Namespace: "ns", Name: "unknown"}); got != nil {
		t.Errorf("releasing an unknown Service: replan %v", got)
	}
	if got := names(c.Release(state.Name{Namespace: "ns", Name: "a"})); got != "b" {
		t.Errorf("replan %q, want b", got)
	}
	p := planOf("b", "192.0.2.1:80/tcp")
	c.Resolve(p, at(2))
	if remaining(p) != "192.0.2.1:80/tcp" {
		t.Errorf("b has %q", remaining(p))
	}
	c.Release(state.Name{Namespace: "ns", Name: "b"})
	c.SetNodePortAddresses(nodeAddrs)
	c.Resolve(planOf("b", "+198.51.100.1:80/tcp"), at(2))
	c.Release(state.Name{Namespace: "ns", Name: "b"})
	if len(c.beside.at)+len(c.beside.ids) != 0 {
		t.Errorf("an empty register holds %d external addresses, %d places beside node ports", len(c.beside.at), len(c.beside.ids))
	}
	if len(c.holders)+len(c.waiting)+len(c.ids) != 0 {
		t.Errorf("an empty register holds %d frontends, %d queues, %d Services", len(c.holders), len(c.waiting), len(c.ids))
	}
}

// TestOrdersLookAtEveryField: two keys or claims that compare as equal would be taken for one frontend.
func TestOrdersLookAtEveryField(t *testing.T) {
	base := claim{key: key{port: 80, protocol: state.TCP}}
	for path, changed := range fields.Each(base) {
		if base.compare(changed) == 0 || changed.compare(base) == 0 {
			t.Errorf("claim.compare ignores %s", path)
		}
		if same := base.sameKey(changed); same != (path == "rank") {
			t.Errorf("claims that differ in %s have the same key: %t", path, same)
		}
	}
}

func TestProblemFields(t *testing.T) {
	kinds := map[plan.FrontendKind]string{
		plan.ClusterIP: "spec.clusterIPs", plan.ExternalIP: "spec.externalIPs",
		plan.LoadBalancer: "status.loadBalancer.ingress", plan.NodePort: "spec.ports.nodePort",
	}
	for kind, field := range kinds {
		c := New()
		c.Resolve(planOf("a", "192.0.2.1:80/tcp"), at(1))
		p := planOf("b", "192.0.2.1:80/tcp")
		p.Ports[0].Frontends[0].Kind = kind
		problems, _ := c.Resolve(p, at(2))
		want := []state.Problem{{Kind: "Service", Object: state.Name{Namespace: "ns", Name: "b"}, Field: field,
			Reason: "frontend 192.0.2.1:80/tcp is taken by ns/a"}}
		if !reflect.DeepEqual(problems, want) {
			t.Errorf("%v: %+v", kind, problems)
		}
	}
}

// TestNumbersAreUsedAgain: Services that come and go need no more memory than those that are there at once.
func TestNumbersAreUsedAgain(t *testing.T) {
	c := New()
	for i := range 10 {
		name := string(rune('a' + i))
		p := planOf(name, "10.96.0.1:80/tcp")
		c.Resolve(p, at(1))
		c.Release(p.Name)
	}
	if len(c.claimants) > 2 || len(c.free) == 0 {
		t.Errorf("%d places for Services, %d of them free", len(c.claimants), len(c.free))
	}
}
