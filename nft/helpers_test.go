package nft

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/memkernel"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Memory is an engine over a kernel in memory.
type Memory struct {
	*Engine
	kernel *memkernel.NFTables
}

// OpenMemory makes an engine over an empty kernel in memory. Equal histories print as equal texts.
func OpenMemory(o Options) *Memory {
	m := &Memory{kernel: &memkernel.NFTables{}}
	o.Instance = cmp.Or(o.Instance, 1)
	m.Engine, _ = New(m.kernel, o) // nothing is there to be read
	return m
}

// Restart makes a second engine over the same kernel, as a new process does.
func (m *Memory) Restart(o Options) (*Memory, error) {
	o.Instance = cmp.Or(o.Instance, m.instance+1)
	e, err := New(m.kernel, o)
	return &Memory{Engine: e, kernel: m.kernel}, err
}

func (m *Memory) String() string { return m.kernel.String() }

// Tables reads the kernel in memory.
func (m *Memory) Tables() *inspect.Tables { return inspect.NewTables(m.kernel, m.kernel.Close) }

// List reads the kernel in memory, as the function List reads the real one.
func (m *Memory) List(match func(name string) bool) (inspect.Listing, error) {
	return m.kernel.List(match)
}

// mustApply hands the collected changes to the kernel.
func mustApply(t testing.TB, e *Engine) Result {
	t.Helper()
	r, err := e.Apply()
	if err != nil {
		t.Fatalf("apply: %s: %v", r.Outcome, err)
	}
	return r
}

// waiting lists the Services whose ports wait.
func waiting(e *Engine) []string { return memkernel.Waiting(e) }

func mustSet(t testing.TB, e *Engine, ports ...contents.Port) {
	t.Helper()
	for i := range ports {
		if err := e.Set(&ports[i]); err != nil {
			t.Fatal(err)
		}
	}
}

func mustGuard(t testing.TB, e *Engine, want bool, list ...string) {
	t.Helper()
	ready, err := e.Guard(addrs(list...))
	if err != nil || ready != want {
		t.Fatalf("guard %v: ready %t, error %v; want %t", list, ready, err, want)
	}
}

// manyPorts makes service ports of three endpoints each, with a cluster IP.
func manyPorts(f program.Family, first, count int) []contents.Port {
	var out []contents.Port
	for i := first; i < first+count; i++ {
		p := contents.Port{Family: f, Name: fmt.Sprintf("ns/svc-%d:http", i), Protocol: tcp}
		for e := range 3 {
			p.Cluster = append(p.Cluster, contents.Endpoint{Addr: netip.AddrPortFrom(numbered4or6(f, 10, i*3+e), 8080)})
		}
		p.Frontends = []contents.Frontend{{Addr: numbered4or6(f, 20, i), Port: 80, ClusterIP: true, Pool: program.ClusterPool}}
		out = append(out, p)
	}
	return out
}

// numbered4or6 is address number n of a network.
func numbered4or6(f program.Family, network byte, n int) netip.Addr {
	if f == program.IPv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 1: network, 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
	}
	return netip.AddrFrom4([4]byte{network, byte(n >> 16), byte(n >> 8), byte(n)})
}

// scalePort is a service port with a cluster IP and a node port. All such ports have the same class.
func scalePort(f program.Family, i, endpointsEach int) contents.Port {
	p := contents.Port{Family: f, Name: fmt.Sprintf("scale/svc-%d:http", i), Protocol: tcp, Frontends: []contents.Frontend{
		{Addr: numbered4or6(f, 20, i), Port: 80, ClusterIP: true, Pool: program.ClusterPool},
		{Port: uint16(1024 + i%60000), Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways},
	}}
	for n := range endpointsEach {
		p.Cluster = append(p.Cluster, contents.Endpoint{Addr: netip.AddrPortFrom(numbered4or6(f, 10, i*endpointsEach+n), 8080), Slots: 1})
	}
	return p
}

var stampText = regexp.MustCompile(`0x[0-9a-f]{8} \. 0x[0-9a-f]{8} comment`)

// unstamped is what Memory prints, without the stamps of transactions.
func (m *Memory) unstamped() string { return stampText.ReplaceAllString(m.String(), "") }

// memory is the text that Memory prints.
func (x example) memory(t *testing.T) string {
	t.Helper()
	m := OpenMemory(Options{})
	x.install(t, m.Engine)
	return m.String()
}

// wantStatus is what a listing says of a frontend.
func wantStatus(p *contents.Port, fe *contents.Frontend) inspect.FrontendStatus {
	s := inspect.FrontendStatus{
		Family: p.Family, Name: p.Name, Protocol: p.Protocol, Addr: fe.Addr, Port: fe.Port, LastPort: fe.EndPort, Pool: fe.Pool,
		Refusal: fe.Refusal, Firewalled: fe.Firewalled && fe.Addr.IsValid(), IPVS: fe.IPVS,
	}
	if fe.Pool == program.ClusterPool || fe.Pool == program.BySource {
		s.Cluster = wantSlots(p.Method, p.Cluster)
	}
	if fe.Pool == program.LocalPool || fe.Pool == program.BySource {
		s.Local = wantSlots(p.Method, p.Local)
	}
	if fe.EndPort != 0 {
		s.Cluster, s.Local = withPort(s.Cluster, fe.Port), withPort(s.Local, fe.Port)
	}
	if len(s.Cluster)+len(s.Local) > 0 {
		s.Method, s.Affinity = p.Method, p.Affinity
	}
	return s
}

// withPort gives endpoints without a port a port: that of a packet, or the first one of a range.
func withPort(list []inspect.EndpointStatus, port uint16) []inspect.EndpointStatus {
	for i, e := range list {
		if e.Addr.Port() == 0 {
			list[i].Addr = netip.AddrPortFrom(e.Addr.Addr(), port)
		}
	}
	return list
}

// wantSlots is how many slots each endpoint gets. In a hash table, they take turns until all slots are taken.
func wantSlots(method program.Method, list []contents.Endpoint) (out []inspect.EndpointStatus) {
	left := 0
	for _, slots := range hashing.Needed(&contents.Port{Method: method, Cluster: list}) {
		left = slots
	}
	for i := range list {
		out = append(out, inspect.EndpointStatus{Addr: list[i].Addr})
	}
	for again := true; again; again = left > 0 {
		for i := range list {
			n := int(max(list[i].Slots, 1))
			if method.Hashes() {
				n = min(n, left)
				left -= n
			}
			out[i].Slots += n
		}
	}
	slices.SortFunc(out, func(a, b inspect.EndpointStatus) int { return a.Addr.Compare(b.Addr) })
	return out
}

// poolOf looks up which pool a frontend leads to, and the chain of its class.
func (e *Engine) poolOf(t testing.TB, p *contents.Port, fe *contents.Frontend) (number uint32, chain string) {
	t.Helper()
	lookUp := func(set program.SetID, key program.Builder) []byte {
		found, exists, err := e.conn.Lookup(p.Family, set, key.Arena)
		if err != nil || !exists {
			t.Fatalf("look up %s of %s: found %t, %v", set.Name(), p.Name, exists, err)
		}
		return found.Data
	}
	var key program.Builder
	key.Frontend(fe.Addr, fe.Port, fe.EndPort, p.Protocol)
	set := program.Services
	if fe.EndPort != 0 {
		set = program.RangeServices
	}
	number = binary.NativeEndian.Uint32(lookUp(set, key)) & program.PoolMask
	word := func(v uint32) (b program.Builder) {
		b.Word(v)
		return b
	}
	class := binary.NativeEndian.Uint32(lookUp(program.Pools, word(number))) &^ program.PoolMask
	return number, string(lookUp(program.Dispatch, word(class)))
}

// chainOf is the chain of the class of a service port's first frontend.
func (e *Engine) chainOf(t testing.TB, p *contents.Port) string {
	t.Helper()
	_, chain := e.poolOf(t, p, &p.Frontends[0])
	return chain
}
