//go:build !nokernel

package snapshot

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// told is a daemon that records its notifications.
type told struct {
	frontends map[string]socket.Frontends
	services  socket.Services
}

func (d *told) Frontends(of string) (socket.Frontends, error) {
	f, ok := d.frontends[of]
	if !ok {
		return f, socket.ErrUnknown
	}
	return f, nil
}

func (d *told) ServicesOf(string) (socket.Services, error) { return d.services, nil }

// filled is a node with two Services: shop/web at a cluster IP and a node port, and shop/names at the same cluster IP.
func filled(t *testing.T) *lab.World {
	w := lab.New(t)
	engine, err := nft.Open(nft.Options{NetNS: w.Node.Fd()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	end := contents.Endpoint{Addr: netip.MustParseAddrPort("10.0.1.1:8080"), Slots: 1}
	ip := contents.Frontend{Addr: netip.MustParseAddr("10.96.0.11"), Port: 80, ClusterIP: true, Pool: program.ClusterPool}
	for _, p := range []contents.Port{
		{Family: program.IPv4, Name: "shop/web:http", Protocol: unix.IPPROTO_TCP, Cluster: []contents.Endpoint{end},
			Frontends: []contents.Frontend{ip, {Port: 30080, Pool: program.ClusterPool}}},
		{Family: program.IPv4, Name: "shop/names:dns", Protocol: unix.IPPROTO_UDP, Cluster: []contents.Endpoint{end}, Frontends: []contents.Frontend{ip}},
	} {
		if err := engine.Set(&p); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := engine.Apply(); err != nil {
		t.Fatalf("%s: %v", r.Outcome, err)
	}
	return w
}

// TestReadNamed: what is read by the keys that the daemon names is what a listing of everything finds.
func TestReadNamed(t *testing.T) {
	w := filled(t)
	at := func(address string, port uint16, protocol uint8) Place {
		p := Place{Family: "IPv4", Port: port, Protocol: protocol}
		p.Address, _ = netip.ParseAddr(address) // "": a node port
		return p
	}
	web := socket.Frontends{List: []Place{
		at("10.96.0.11", 80, unix.IPPROTO_TCP), at("", 30080, unix.IPPROTO_TCP),
		at("10.96.0.15", 80, unix.IPPROTO_TCP),  // the kernel does not have it
		at("10.96.0.11", 80, unix.IPPROTO_UDP)}} // of another Service
	d := &told{
		frontends: map[string]socket.Frontends{"shop/web": web, "shop/late": {Unsure: true, List: web.List}},
		services:  socket.Services{List: []string{"shop/web"}},
	}
	w.Node.MustDo(t, func() error {
		for _, service := range []string{"shop/web", "shop/web:http"} {
			q := Query{Services: []string{service}, Uncounted: true}
			keyed, err := readNamed(d, &q)
			if err != nil {
				return err
			}
			all, err := readAll(&q)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(all.Frontends, keyed.Frontends, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || len(keyed.Frontends) != 2 {
				t.Errorf("%s (- listed, + by keys):\n%s", service, diff)
			}
		}
		if _, err := readNamed(d, &Query{Services: []string{"shop/late"}}); !errors.Is(err, errUnsure) {
			t.Errorf("a Service whose change waits: %v", err)
		}
		if _, err := readNamed(d, &Query{Services: []string{"shop/none"}}); !errors.Is(err, socket.ErrUnknown) {
			t.Errorf("an unknown Service: %v", err)
		}
		q := Query{Uncounted: true, Endpoint: "10.0.1.1"}
		found, err := readNamed(d, &q)
		if err != nil || len(found.Frontends) != 3 {
			t.Errorf("frontends of the Services with an endpoint: %v, %v", found, err)
		}
		d.services.Unsure = true
		if _, err := readNamed(d, &q); !errors.Is(err, errUnsure) {
			t.Errorf("an endpoint of a Service whose change waits: %v", err)
		}
		return nil
	})
}
