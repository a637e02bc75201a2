package claims

import (
	"cmp"
	"fmt"
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
	for _, want := range []rank{rankClusterIP, rankNodePort, rankLoadBalancer, rankExternalIP} {
		for _, name := range order {
			for _, word := range strings.Fields(w.words[name]) {
				place := strings.TrimLeft(word, "+%")
				if _, taken := winner[place]; !taken && rankOfWord(word) == want {
					winner[place] = name + " " + word
				}
			}
		}
	}
	for _, name := range order {
		var own []string
		for _, word := range strings.Fields(w.words[name]) {
			if winner[strings.TrimLeft(word, "+%")] == name+" "+word && !w.hidden(winner, name, word) && !w.kept(word) {
				own = append(own, word)
			}
		}
		out[name] = strings.Join(own, " ")
	}
	return out
}

func rankOfWord(word string) rank {
	switch word[0] {
	case '*':
		return rankNodePort
	case '%':
		return rankLoadBalancer
	case '+':
		return rankExternalIP
	}
	return rankClusterIP
}

// hidden reports whether a word is an external address with the node port of another Service.
func (w *world) hidden(winner map[string]string, name, word string) bool {
	if rankOfWord(word) <= rankNodePort {
		return false
	}
	where, protocol, _ := strings.Cut(strings.TrimLeft(word, "+%"), "/")
	a := netip.MustParseAddrPort(where)
	holder := winner[fmt.Sprintf("*%d:%d/%s", state.FamilyOf(a.Addr()), a.Port(), protocol)]
	reaches := rankOfWord(word) == rankExternalIP || slices.Contains(w.nodeAddrs, a.Addr())
	return reaches && holder != "" && !strings.HasPrefix(holder, name+" ")
}

// kept reports whether a word is an external IP that is a cluster IP of any Service.
func (w *world) kept(word string) bool {
	where, _, _ := strings.Cut(strings.TrimPrefix(word, "+"), "/")
	for _, words := range w.words {
		for _, other := range strings.Fields(words) {
			at, _, _ := strings.Cut(other, "/")
			if word[0] == '+' && rankOfWord(other) == rankClusterIP &&
				netip.MustParseAddrPort(at).Addr() == netip.MustParseAddrPort(where).Addr() {
				return true
			}
		}
	}
	return false
}

// TestRandomTransitions: the register depends on the current Services alone, and not on the order of past changes.
func TestRandomTransitions(t *testing.T) {
	pool := strings.Fields("192.0.2.1:80/tcp 192.0.2.1:80/udp 192.0.2.2:80/tcp [fd00::1]:80/tcp *4:30080/tcp *6:30080/tcp *4:30081/udp")
	externals := strings.Fields("+192.0.2.1:80/tcp %192.0.2.1:80/udp +192.0.2.2:80/tcp +[fd00::1]:80/tcp " +
		"+198.51.100.1:30080/tcp %198.51.100.2:30080/tcp +[fd00::100]:30080/tcp %198.51.100.1:30081/udp *4:30080/tcp " +
		"+203.0.113.9:30080/tcp +[fd00::9]:30080/tcp %203.0.113.9:30081/udp")
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
