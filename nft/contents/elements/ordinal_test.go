package elements

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestOrdinalsOfBothPools changes the endpoints of a service port whose pools have few endpoints in common, up to the
// largest number of endpoints. No two endpoints have the same number, and an endpoint that stays keeps its number.
func TestOrdinalsOfBothPools(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	pick := func(among, percent int) (out []contents.Endpoint) {
		for i := range among {
			if r.IntN(100) < percent {
				out = append(out, contents.Endpoint{Addr: netip.AddrPortFrom(numberedAddr(i), 80)})
			}
		}
		return out
	}
	for _, size := range []int{10, program.MaxOrdinals} {
		p := &ordinals{}
		before := map[netip.AddrPort]uint32{}
		for range 20 {
			want := &contents.Port{Affinity: time.Hour, Cluster: pick(size, 95), Local: pick(size, 50)}
			old := p.list
			p.list = unionOfPools(want)
			if n := sizeOfUnion(want.Cluster, want.Local); n != len(p.list) || n != sizeOfUnion(want.Local, want.Cluster) {
				t.Fatalf("%d endpoints in the union are counted as %d", len(p.list), n)
			}
			p.assign(old)
			owner, now := map[uint32]netip.AddrPort{}, map[netip.AddrPort]uint32{}
			for _, o := range p.list {
				if other, taken := owner[o.n]; taken {
					t.Fatalf("%s and %s both have number %d", other, o.addr, o.n)
				}
				if n, stayed := before[o.addr]; stayed && n != o.n {
					t.Fatalf("%s had number %d and has %d", o.addr, n, o.n)
				}
				owner[o.n], now[o.addr] = o.addr, o.n
			}
			before = now
		}
	}
}

func TestSizeOfUnion(t *testing.T) {
	for _, test := range []struct {
		a, b []contents.Endpoint
		want int
	}{
		{nil, nil, 0},
		{endpointsAt("10.0.0.1:80"), nil, 1},
		{nil, endpointsAt("10.0.0.1:80", "10.0.0.2:80"), 2},
		{endpointsAt("10.0.0.1:80", "10.0.0.3:80"), endpointsAt("10.0.0.1:80", "10.0.0.2:80"), 3},
		{endpointsAt("10.0.0.1:80", "10.0.0.1:81"), endpointsAt("10.0.0.1:81", "10.0.0.1:82"), 3},
		{endpointsAt("10.0.0.1:80", "10.0.0.2:80"), endpointsAt("10.0.0.3:80"), 3},
	} {
		if got := sizeOfUnion(test.a, test.b); got != test.want {
			t.Errorf("%v and %v: %d, want %d", test.a, test.b, got, test.want)
		}
	}
}
