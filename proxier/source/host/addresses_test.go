//go:build !nokernel

package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/verdict-proxy/verdict/e2e/sourcetest"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// followAddresses runs an address source inside a namespace.
func followAddresses(t *testing.T, n *namespace, change ...func(*Addresses)) (*state.Store, *sourcetest.Journal) {
	t.Helper()
	log, lines := sourcetest.NewLog(t)
	store := state.NewStore()
	a := New(Options{Store: store, Log: log})
	for _, c := range change {
		c(a)
	}
	sourcetest.Run(t, func(ctx context.Context) error { return n.Do(func() error { return a.Run(ctx) }) })
	sourcetest.Eventually(t, "the addresses are listed", func() bool { return sourcetest.Synced(a) })
	return store, lines
}

func addressesOf(store *state.Store) []netip.Addr { return store.Environment().HostAddresses }

// withoutLinkLocal removes the addresses that the kernel assigns by itself.
func withoutLinkLocal(list []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), netip.Addr.IsLinkLocalUnicast)
}

func TestAddressesAreFollowed(t *testing.T) {
	n := newNamespace(t)
	n.link("d0")
	n.address("d0", "192.0.2.7/24")
	store, lines := followAddresses(t, n)
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"at the start", func() {}, []string{"192.0.2.7"}},
		{"loopback", func() { n.up("lo") }, []string{"127.0.0.1", "192.0.2.7", "::1"}},
		{"added", func() { n.address("d0", "198.51.100.1/32") }, []string{"127.0.0.1", "192.0.2.7", "198.51.100.1", "::1"}},
		{"IPv6 added", func() { n.address("d0", "2001:db8::7/64") }, []string{"127.0.0.1", "192.0.2.7", "198.51.100.1", "::1", "2001:db8::7"}},
		{"multicast is not the host's own", func() {
			n.address("d0", "239.1.2.3/32")
			n.address("d0", "198.51.100.2/32") // proves that the source has seen the previous change
		}, []string{"127.0.0.1", "192.0.2.7", "198.51.100.1", "198.51.100.2", "::1", "2001:db8::7"}},
		{"the device of kube-proxy is not the host's own", func() {
			n.link(KubeProxyDevice)
			n.address(KubeProxyDevice, "10.96.0.1/32")
			n.deleteAddress("d0", "198.51.100.2/32") // proves that the source has seen the previous change
			n.address("d0", "198.51.100.2/32")
		}, []string{"127.0.0.1", "192.0.2.7", "198.51.100.1", "198.51.100.2", "::1", "2001:db8::7"}},
		{"one less", func() { n.deleteAddress("d0", "198.51.100.2/32") }, []string{"127.0.0.1", "192.0.2.7", "198.51.100.1", "::1", "2001:db8::7"}},
		{"on two interfaces", func() {
			n.link("d1")
			n.address("d1", "192.0.2.7/32")
			n.address("d1", "192.0.2.8/32")
		}, []string{"127.0.0.1", "192.0.2.7", "192.0.2.8", "198.51.100.1", "::1", "2001:db8::7"}},
		{"removed", func() { n.deleteAddress("d0", "192.0.2.7/24") }, []string{"127.0.0.1", "192.0.2.7", "192.0.2.8", "198.51.100.1", "::1", "2001:db8::7"}},
		{"interface gone", func() { n.deleteLink("d1") }, []string{"127.0.0.1", "198.51.100.1", "::1", "2001:db8::7"}},
		{"all gone", func() { n.deleteLink("d0") }, []string{"127.0.0.1", "::1"}},
	} {
		step.do()
		want := sourcetest.Addrs(step.want...)
		sourcetest.Eventually(t, fmt.Sprintf("%s: the addresses are %v", step.name, want), func() bool {
			return slices.Equal(withoutLinkLocal(addressesOf(store)), want)
		})
	}
	if got := lines.Lines("level="); len(got) > 0 {
		t.Errorf("logged: %q", got)
	}
}

// TestPrimaryFollowsTheDefaultRoute: a plan without a Node object gets another main address, also if no address
// changes: a default route comes and goes, or the link of it goes down.
func TestPrimaryFollowsTheDefaultRoute(t *testing.T) {
	n := newNamespace(t)
	for i, link := range []string{"d0", "d1"} {
		n.link(link)
		n.address(link, fmt.Sprintf("192.0.%d.7/24", i+2))
	}
	store, lines := followAddresses(t, n)
	store.MarkSynced()
	route := func(change func(*netlink.Route) error, gateway string) {
		t.Helper()
		if err := n.Do(func() error { return change(&netlink.Route{Gw: net.ParseIP(gateway)}) }); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"a default route", func() { route(netlink.RouteAdd, "192.0.3.1") }, "[192.0.3.7]"},
		{"another one", func() { route(netlink.RouteReplace, "192.0.2.1") }, "[192.0.2.7]"},
		{"the first one again", func() { route(netlink.RouteReplace, "192.0.3.1") }, "[192.0.3.7]"},
		{"its link goes down", func() {
			if err := n.Do(func() error {
				link, err := netlink.LinkByName("d1")
				return errors.Join(err, netlink.LinkSetDown(link))
			}); err != nil {
				t.Fatal(err)
			}
		}, "[192.0.2.7]"},
	} {
		sourcetest.Applied(t, store)
		step.do()
		sourcetest.Eventually(t, step.name+": the environment changed", func() bool {
			c, _ := store.Pending()
			return c.Environment
		})
		n.MustDo(t, func() error {
			got, err := Primary()
			if fmt.Sprint(got) != step.want {
				t.Errorf("%s: the main addresses are %v, want %s", step.name, got, step.want)
			}
			return err
		})
	}
	if got := lines.Lines("level="); len(got) > 0 {
		t.Errorf("logged: %q", got)
	}
}

// TestLinkLocalAddressesCount: the source delivers link-local addresses, and planning decides about them.
func TestLinkLocalAddressesCount(t *testing.T) {
	n := newNamespace(t)
	n.link("d0")
	n.address("d0", "169.254.1.1/16")
	n.address("d0", "fe80::7/64")
	store, _ := followAddresses(t, n)
	for _, want := range sourcetest.Addrs("169.254.1.1", "fe80::7") {
		if !slices.Contains(addressesOf(store), want) {
			t.Errorf("%v lacks %s", addressesOf(store), want)
		}
	}
}

// TestAddressesOverflow: the buffer holds only a few messages, so the kernel drops some when many addresses change. The
// source lists the addresses again.
func TestAddressesOverflow(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	n.link("d0")
	store, lines := followAddresses(t, n, func(a *Addresses) { a.buffer = 1 })
	const many = 500
	each := func(change func(netlink.Link, *netlink.Addr) error) {
		t.Helper()
		n.must(n.Do(func() error {
			link, err := netlink.LinkByName("d0")
			for i := 0; i < many && err == nil; i++ {
				a := netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i%250 + 1)})
				err = change(link, &netlink.Addr{IPNet: netlink.NewIPNet(a.AsSlice())})
			}
			return err
		}))
	}
	each(netlink.AddrAdd)
	sourcetest.Eventually(t, "the loss is logged", func() bool { // the source may read as fast as the addresses change
		each(netlink.AddrDel)
		each(netlink.AddrAdd)
		return len(lines.Lines("lost the subscription to the host's addresses", "receive address changes: ")) > 0
	})
	sourcetest.Eventually(t, "all addresses are known", func() bool { return len(withoutLinkLocal(addressesOf(store))) == many })
	n.deleteLink("d0")
	sourcetest.Eventually(t, "no address is left", func() bool { return len(addressesOf(store)) == 0 })
}

// TestPrimaryAddresses has one row for each set of addresses and routes. The interfaces d0 and d1 are up.
func TestPrimaryAddresses(t *testing.T) {
	const v4, v6 = "0.0.0.0/0", "::/0"
	for _, tt := range []struct {
		name string
		set  func(*namespace)
		want []string
	}{
		{"nothing", func(*namespace) {}, nil},
		{"loopback and link-local only", func(n *namespace) {
			n.up("lo")
			n.address("d0", "169.254.1.1/16")
		}, nil},
		{"no route: the first global one", func(n *namespace) {
			n.address("d1", "192.0.2.1/24")
			n.address("d0", "198.51.100.1/24")
			n.address("d0", "198.51.100.2/24")
			n.address("d0", "2001:db8::1/64")
		}, []string{"198.51.100.1", "2001:db8::1"}},
		{"the default route's interface", func(n *namespace) {
			n.address("d0", "198.51.100.1/24")
			n.address("d1", "192.0.2.1/24")
			n.address("d0", "2001:db8::1/64")
			n.address("d1", "2001:db8:1::1/64")
			n.defaultRoute(v4, "d1", 100, "")
			n.defaultRoute(v6, "d1", 100, "")
		}, []string{"192.0.2.1", "2001:db8:1::1"}},
		{"each family by its own route", func(n *namespace) {
			n.address("d0", "198.51.100.1/24")
			n.address("d1", "192.0.2.1/24")
			n.address("d0", "2001:db8::1/64")
			n.address("d1", "2001:db8:1::1/64")
			n.defaultRoute(v4, "d1", 100, "")
			n.defaultRoute(v6, "d0", 100, "")
		}, []string{"192.0.2.1", "2001:db8::1"}},
		{"the better of two routes", func(n *namespace) {
			n.address("d0", "198.51.100.1/24")
			n.address("d1", "192.0.2.1/24")
			n.defaultRoute(v4, "d0", 200, "")
			n.defaultRoute(v4, "d1", 100, "")
		}, []string{"192.0.2.1"}},
		{"the route's source", func(n *namespace) {
			n.address("d0", "198.51.100.1/24")
			n.address("d1", "192.0.2.1/24")
			n.defaultRoute(v4, "d0", 100, "192.0.2.1")
		}, []string{"192.0.2.1"}},
		{"a route over an interface without an address", func(n *namespace) {
			n.address("d0", "198.51.100.1/24")
			n.defaultRoute(v4, "d1", 100, "")
		}, []string{"198.51.100.1"}},
		{"not a deprecated address", func(n *namespace) {
			deprecated := func(a *netlink.Addr) { a.ValidLft, a.PreferedLft = 3600, 0 }
			n.address("d0", "2001:db8::bad/64", deprecated)
			n.address("d0", "2001:db8::1/64")
			n.address("d0", "2001:db8::bad2/64", deprecated)
		}, []string{"2001:db8::1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNamespace(t)
			n.link("d0")
			n.link("d1")
			tt.set(n)
			var got []netip.Addr
			n.must(n.Do(func() (err error) {
				got, err = Primary()
				return err
			}))
			if want := sourcetest.Addrs(tt.want...); !slices.Equal(got, want) {
				t.Errorf("addresses %v, want %v", got, want)
			}
		})
	}
}
