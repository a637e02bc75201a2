package claims

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// planOf makes a plan from words: "192.0.2.1:80/tcp" (a cluster IP), "+192.0.2.1:80/tcp" (an external IP),
// "[fd00::1]:53/udp", "*4:30080/tcp" (an IPv4 node port), "hc:32000".
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
	port := plan.Port{Family: state.IPv4, Protocol: map[string]state.Protocol{"tcp": state.TCP, "udp": state.UDP}[protocol]}
	var fe plan.Frontend
	where, external := strings.CutPrefix(where, "+")
	if external {
		fe.Kind = plan.ExternalIP
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
	port.Frontends = []plan.Frontend{fe}
	return port
}

// remaining returns the words of the frontends that a plan still has.
func remaining(p *plan.Service) string {
	var words []string
	for _, port := range p.Ports {
		for _, fe := range port.Frontends {
			where := fmt.Sprintf("*%d:%d", port.Family, fe.Port)
			if fe.Addr.IsValid() {
				where = netip.AddrPortFrom(fe.Addr, fe.Port).String()
			}
			if fe.Kind == plan.ExternalIP {
				where = "+" + where
			}
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
			{"new", 2, "192.0.2.9:80/tcp", "192.0.2.9:80/tcp", "older", nil},
			{"older", 0, "+" + vip, "+" + vip, "", nil},
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
		{"twice in one Service", []step{
			{"a", 1, vip + " " + vip, vip, "", []string{"frontend 192.0.2.1:80/tcp occurs twice in this Service: the first one counts"}},
			{"a", 1, vip, vip, "", nil},
			{"a", 1, "*4:32000/tcp hc:32000", "*4:32000/tcp", "",
				[]string{"node port 32000/tcp occurs twice in this Service: the first one counts"}},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := New()
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
		if same := base.sameKey(changed); same != (path == "clusterIP") {
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

// world is the register, the Services that it knows, and the frontends that each of them has.
type world struct {
	claims  *Claims
	words   map[string]string
	created map[string]int
	left    map[string]string
}

func newWorld() *world {
	return &world{claims: New(), words: map[string]string{}, created: map[string]int{}, left: map[string]string{}}
}

// settle resolves a Service and the Services that must be planned again. Resolving those must not affect further ones.
func (w *world) settle(t *testing.T, name string) {
	t.Helper()
	for _, other := range w.resolve(name) {
		if more := w.resolve(other.Name); more != nil {
			t.Fatalf("planning %s again after %s changed affects %v", other, name, more)
		}
	}
}

func (w *world) resolve(name string) []state.Name {
	p := planOf(name, w.words[name])
	_, replan := w.claims.Resolve(p, at(w.created[name]))
	w.left[name] = remaining(p)
	return replan
}

func (w *world) remove(t *testing.T, name string) {
	delete(w.words, name)
	delete(w.left, name)
	for _, other := range w.claims.Release(state.Name{Namespace: "ns", Name: name}) {
		if more := w.resolve(other.Name); more != nil {
			t.Fatalf("planning %s again after %s went affects %v", other, name, more)
		}
	}
}

// expected finds by plain search which frontends every Service must have.
func (w *world) expected() map[string]string {
	order := slices.SortedFunc(func(yield func(string) bool) {
		for name := range w.words {
			if !yield(name) {
				return
			}
		}
	}, func(a, b string) int { return cmp.Or(cmp.Compare(w.created[a], w.created[b]), cmp.Compare(a, b)) })
	winner, out := map[string]string{}, map[string]string{}
	for _, external := range []bool{false, true} {
		for _, name := range order {
			for _, word := range strings.Fields(w.words[name]) {
				place := strings.TrimPrefix(word, "+")
				if _, taken := winner[place]; !taken && (place != word) == external {
					winner[place] = name + " " + word
				}
			}
		}
	}
	for _, name := range order {
		var own []string
		for _, word := range strings.Fields(w.words[name]) {
			if winner[strings.TrimPrefix(word, "+")] == name+" "+word {
				own = append(own, word)
			}
		}
		out[name] = strings.Join(own, " ")
	}
	return out
}

// TestRandomTransitions: the register depends on the current Services alone, and not on the order of past changes.
func TestRandomTransitions(t *testing.T) {
	pool := strings.Fields("192.0.2.1:80/tcp 192.0.2.1:80/udp 192.0.2.2:80/tcp [fd00::1]:80/tcp *4:30080/tcp *6:30080/tcp *4:30081/udp")
	externals := strings.Fields("+192.0.2.1:80/tcp +192.0.2.1:80/udp +192.0.2.2:80/tcp +[fd00::1]:80/tcp")
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		w := newWorld()
		for range 400 {
			name := string(rune('a' + rng.IntN(8)))
			if _, ok := w.words[name]; ok && rng.IntN(4) == 0 {
				w.remove(t, name)
			} else {
				if !ok || rng.IntN(10) == 0 {
					w.created[name] = rng.IntN(4)
				}
				w.words[name] = pick(rng, pool)
				if rng.IntN(3) == 0 {
					w.words[name] = pick(rng, externals)
				}
				w.settle(t, name)
			}
			if want := w.expected(); !reflect.DeepEqual(w.left, want) {
				t.Fatalf("seed %d:\n got %v\nwant %v", seed, w.left, want)
			}
		}
	}
}

func pick(rng *rand.Rand, pool []string) string {
	var words []string
	for _, w := range pool {
		if rng.IntN(3) == 0 {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

const (
	manyServices = 50_000
	perService   = 4 // two frontends in two families
)

// manyPlan returns the plan of one of many Services without common frontends.
func manyPlan(i int) *plan.Service {
	p := &plan.Service{Name: state.Name{Namespace: "ns", Name: fmt.Sprintf("service-%06d", i)}, Ports: make([]plan.Port, 2)}
	for f := range p.Ports {
		port := &p.Ports[f]
		b := [16]byte{0: 0xfd, 12: 10, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}
		port.Protocol, port.Family = state.TCP, state.IPv6
		addr := netip.AddrFrom16(b)
		if f == 0 {
			port.Family, addr = state.IPv4, netip.AddrFrom4([4]byte(b[12:]))
		}
		port.Frontends = []plan.Frontend{{Addr: addr, Port: 80}, {Addr: addr, Port: 443}}
	}
	return p
}

// TestMemory limits the memory for each claim to 100 bytes. That includes its share of the entry of the Service.
func TestMemory(t *testing.T) {
	plans := make([]*plan.Service, manyServices)
	for i := range plans {
		plans[i] = manyPlan(i)
	}
	before := heap()
	c := New()
	for _, p := range plans {
		c.Resolve(p, at(1))
	}
	each := float64(heap()-before) / (manyServices * perService)
	t.Logf("%.1f bytes per claim", each)
	if each > 100 {
		t.Errorf("%.1f bytes per claim, want at most 100", each)
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(plans)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkResolve resolves one Service again among few Services and among many. The cost must be the same.
func BenchmarkResolve(b *testing.B) {
	for _, n := range []int{100, manyServices} {
		c := New()
		for i := range n {
			c.Resolve(manyPlan(i), at(1))
		}
		p := manyPlan(n / 2)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Resolve(p, at(1))
			}
		})
	}
}
