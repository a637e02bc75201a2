package claims

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// world is the register, the Services that it knows, and the frontends that each of them has.
type world struct {
	claims  *Claims
	words   map[string]string
	created map[string]int
	left    map[string]string

	nodeAddrs []netip.Addr
}

func newWorld() *world {
	return &world{claims: newAtNode(), words: map[string]string{}, created: map[string]int{}, left: map[string]string{}, nodeAddrs: nodeAddrs}
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

// move changes the node port addresses.
func (w *world) move(t *testing.T, addrs []netip.Addr) {
	t.Helper()
	w.nodeAddrs = addrs
	for _, name := range w.claims.SetNodePortAddresses(addrs) {
		if more := w.resolve(name.Name); more != nil {
			t.Fatalf("planning %s again after the node port addresses changed affects %v", name, more)
		}
	}
}

// asked is a word that a Service has.
type asked struct {
	name, word string
	key        key
	rank       rank
	created    int
}

func (w *world) asked() (list []asked) {
	for _, name := range slices.Sorted(maps.Keys(w.words)) {
		for _, word := range strings.Fields(w.words[name]) {
			port := portOf(word)
			list = append(list, asked{name, word, keyOf(&port, &port.Frontends[0]), rankOfWord(word), w.created[name]})
		}
	}
	return list
}

func (a asked) overlaps(b asked) bool { return a.key.place() == b.key.place() && a.key.overlaps(b.key) }

func (a asked) before(b asked) bool {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.created, b.created), cmp.Compare(a.name, b.name)) < 0
}

// expected finds by plain search which frontends every Service must have.
func (w *world) expected() map[string]string {
	list, out, own := w.asked(), map[string]string{}, map[string][]asked{}
	for name := range w.words {
		out[name] = ""
	}
	for _, a := range list {
		if slices.ContainsFunc(list, func(b asked) bool { return b.name != a.name && a.overlaps(b) && b.before(a) }) ||
			slices.ContainsFunc(own[a.name], a.overlaps) {
			continue
		}
		own[a.name] = append(own[a.name], a)
		if !w.hidden(list, a) && !isKept(list, a) {
			out[a.name] = strings.TrimSpace(out[a.name] + " " + a.word)
		}
	}
	return out
}

func rankOfWord(word string) rank {
	isRange := strings.Contains(word, "-")
	switch {
	case word[0] == '*':
		return rankNodePort
	case word[0] == '%' && !isRange:
		return rankLoadBalancer
	case word[0] == '+', word[0] == '%':
		return rankExternalIP
	}
	return rankClusterIP
}

// hidden reports whether a word is an external address with a node port of another Service.
func (w *world) hidden(list []asked, a asked) bool {
	if a.rank <= rankNodePort || a.rank == rankLoadBalancer && !slices.Contains(w.nodeAddrs, netip.AddrFrom16(a.key.addr).Unmap()) {
		return false
	}
	holders := map[key]asked{}
	for _, b := range list {
		holder, taken := holders[b.key]
		if b.key.isNodePort() && b.key.place() == a.key.nodePort().place() && b.key.overlaps(a.key) && (!taken || b.before(holder)) {
			holders[b.key] = b
		}
	}
	for _, b := range holders {
		if b.name != a.name {
			return true
		}
	}
	return false
}

// isKept reports whether a word is an external IP that is a cluster IP of any Service.
func isKept(list []asked, a asked) bool {
	return a.word[0] == '+' && slices.ContainsFunc(list, func(b asked) bool { return b.rank == rankClusterIP && b.key.addr == a.key.addr })
}

// TestRandomTransitions: the register depends on the current Services alone, and not on the order of past changes.
func TestRandomTransitions(t *testing.T) {
	pool := strings.Fields("192.0.2.1:80/tcp 192.0.2.1:80/udp 192.0.2.2:80/tcp [fd00::1]:80/tcp *4:30080/tcp *6:30080/tcp *4:30081/udp")
	externals := strings.Fields("+192.0.2.1:80/tcp %192.0.2.1:80/udp +192.0.2.2:80/tcp +[fd00::1]:80/tcp " +
		"+198.51.100.1:30080/tcp %198.51.100.2:30080/tcp +[fd00::100]:30080/tcp %198.51.100.1:30081/udp *4:30080/tcp " +
		"+203.0.113.9:30080/tcp +[fd00::9]:30080/tcp %203.0.113.9:30081/udp")
	pool = append(pool, "192.0.2.1:79-90/tcp", "192.0.2.1:90-95/tcp", "192.0.2.2:1-65535/tcp", "192.0.2.2:80-81/udp", "[fd00::1]:1-80/tcp")
	externals = append(externals, "%192.0.2.1:95-100/tcp", "%192.0.2.3:1-9/tcp", "%192.0.2.3:9-12/tcp", "%192.0.2.3:10/tcp", "+192.0.2.3:12/tcp",
		"+192.0.2.3:1-20/tcp", "+203.0.113.9:30000-30090/tcp", "%[fd00::100]:1-65535/tcp", "%198.51.100.1:30080-30090/udp")
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		w := newWorld()
		for range 400 {
			name := string(rune('a' + rng.IntN(8)))
			if _, ok := w.words[name]; ok && rng.IntN(4) == 0 {
				w.remove(t, name)
			} else if rng.IntN(20) == 0 {
				w.move(t, nodeAddrs[:rng.IntN(len(nodeAddrs)+1)])
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
				t.Fatalf("seed %d: %v %v\n got %v\nwant %v", seed, w.words, w.created, w.left, want)
			}
		}
		for name := range w.words {
			w.remove(t, name)
		}
		r, b := &w.claims.ranges, &w.claims.beside
		if n := len(r.at) + len(r.count) + len(r.blocked) + len(r.losers) + len(b.ids) + len(b.served); n > 0 {
			t.Fatalf("seed %d: %d entries about ranges stay when all Services are gone: %+v", seed, n, *r)
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
