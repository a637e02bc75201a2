//go:build !nokernel

package ipvsctl

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

func openTestAddresses(t testing.TB, ns *namespace) *addresses {
	t.Helper()
	a, err := openAddresses(ns.Fd())
	must(t, err)
	t.Cleanup(a.close)
	return a
}

func expectAddresses(t *testing.T, a *addresses, want ...string) {
	t.Helper()
	list, err := a.ListAddresses()
	must(t, err)
	slices.SortFunc(list, netip.Addr.Compare)
	var got []string
	for _, addr := range list {
		got = append(got, addr.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("addresses are %v, want %v", got, want)
	}
}

// TestAddresses runs on the kernel of this machine: local routes do not need IPVS.
func TestAddresses(t *testing.T) {
	ns := newNamespace(t)
	a := openTestAddresses(t, ns)
	v4, v6 := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd96::1")
	expectAddresses(t, a)
	for range 2 { // the second time it exists
		must(t, a.AddAddress(v4))
		must(t, a.AddAddress(v6))
	}
	expectAddresses(t, a, "10.96.0.1", "fd96::1")
	for _, addr := range []netip.Addr{v4, v6} {
		if ok := accepts(t, ns, addr); !ok {
			t.Errorf("%s is not local", addr)
		}
	}
	for range 2 { // the second time it does not exist
		must(t, a.DeleteAddress(v4))
	}
	expectAddresses(t, a, "fd96::1")
	local, err := a.IsLocal(v4)
	must(t, err)
	if local {
		t.Errorf("%s is still local", v4)
	}
	must(t, a.DeleteAddress(v6))
	expectAddresses(t, a)
}

// TestSource: source ranges name the address from which a host goes to an IPv6 address before that is local. It goes from there
// afterwards as well, and not from another one that the kernel prefers to a local address: here, the one with the longer common prefix.
func TestSource(t *testing.T) {
	ns := newNamespace(t)
	a := openTestAddresses(t, ns)
	first, second, v6 := netip.MustParsePrefix("fd00:7::1/64"), netip.MustParsePrefix("fd96::2/128"), netip.MustParseAddr("fd96::1")
	must(t, ns.Sysctl("net.ipv6.conf.default.dad_transmits=0", "net.ipv6.conf.default.keep_addr_on_down=1"))
	must(t, netns.Connect(ns.Namespace, "host0", ns.Namespace, "host1"))
	must(t, netns.Connect(ns.Namespace, "other0", ns.Namespace, "other1"))
	must(t, ns.AddAddress("host0", first, func(a *netlink.Addr) { a.Flags = 0 })) // checked for duplicates, by no packet
	must(t, ns.AddAddress("other0", second))
	checked := func() {
		for end := time.Now().Add(3 * time.Minute); ns.Must(t, "", "ip", "address", "show", "to", first.String(), "tentative") != ""; {
			if time.Now().After(end) {
				t.Fatalf("%s is tentative", first)
			}
		}
	}
	from := func(want netip.Prefix) {
		t.Helper()
		c, err := ns.DialContext(t.Context(), "udp", netip.AddrPortFrom(v6, 9).String())
		must(t, err)
		defer c.Close()
		if got := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr(); got != want.Addr() {
			t.Errorf("the host goes from %s, not from %s", got, want.Addr())
		}
	}
	checked()
	must(t, ns.AddRoute(netns.Route{To: netip.MustParsePrefix("::/0"), Link: "other0", Source: first.Addr()}))
	from(first)
	for range 2 { // the second time it is local
		must(t, a.AddAddress(v6))
		from(first)
	}
	must(t, a.DeleteAddress(v6))
	expectAddresses(t, a)

	must(t, ns.SetDown("host0")) // the host keeps the address, and may not use it
	must(t, a.AddAddress(v6))
	from(second)
	must(t, a.DeleteAddress(v6))

	must(t, ns.SetUp("host0"))
	checked()
	must(t, a.AddAddress(v6))
	from(first)
	must(t, ns.RemoveAddress("host0", first))
	from(second)
	must(t, a.DeleteAddress(v6))
	expectAddresses(t, a)
}

// accepts sends a packet to an address and reports whether a listener on all addresses gets it.
func accepts(t *testing.T, ns *namespace, addr netip.Addr) bool {
	t.Helper()
	got := false
	ns.MustDo(t, func() error {
		l, err := net.ListenPacket("udp", ":0")
		if err != nil {
			return err
		}
		defer l.Close()
		port := l.LocalAddr().(*net.UDPAddr).AddrPort().Port()
		c, err := net.Dial("udp", netip.AddrPortFrom(addr, port).String())
		if err != nil {
			return nil
		}
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			return nil
		}
		_ = l.SetReadDeadline(time.Now().Add(30 * time.Second)) // it comes at once, or the test fails
		n, _, _ := l.ReadFrom(make([]byte, 10))
		got = n == 1
		return nil
	})
	return got
}

// TestCommandsOfAddresses checks that the commands that operations print do the same as the operations.
func TestCommandsOfAddresses(t *testing.T) {
	ns := newNamespace(t)
	a := openTestAddresses(t, ns)
	for _, text := range []string{"10.96.0.1", "fd96::1"} {
		v := &VirtualServer{Key: Key{Addr: netip.MustParseAddr(text)}}
		ns.Must(t, "", "sh", "-c", Operation{Kind: AddAddress, Server: v}.String())
		expectAddresses(t, a, text)
		must(t, a.DeleteAddress(v.Addr))
		must(t, a.AddAddress(v.Addr))
		ns.Must(t, "", "sh", "-c", Operation{Kind: DeleteAddress, Server: v}.String())
		expectAddresses(t, a)
	}
}

// TestAddressesOfOthers checks that the package neither lists nor deletes routes of others, even for the same address.
func TestAddressesOfOthers(t *testing.T) {
	ns := newNamespace(t)
	a := openTestAddresses(t, ns)
	must(t, ns.Sysctl("net.ipv6.conf.default.addr_gen_mode=1")) // the kernel would add link-local addresses at any time
	must(t, netns.Connect(ns.Namespace, "host0", ns.Namespace, "host1"))
	must(t, ns.AddAddress("host0", netip.MustParsePrefix("192.0.2.1/24")))
	must(t, ns.AddAddress("host0", netip.MustParsePrefix("2001:db8::1/64")))
	must(t, ns.Own(netip.MustParsePrefix("192.0.2.77/32")))
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	const list = "ip route show table local; ip -6 route show table local type local" // multicast routes come late
	before := ""
	for end := time.Now().Add(3 * time.Minute); !strings.Contains(before, v6.String()); {
		if before = ns.Must(t, "", "sh", "-c", list); time.Now().After(end) { // the kernel adds routes of IPv6 a little later
			t.Fatalf("the kernel has no route to %s:\n%s", v6, before)
		}
	}
	must(t, a.AddAddress(v4))
	must(t, a.AddAddress(v6))
	expectAddresses(t, a, "192.0.2.1", "2001:db8::1")
	must(t, a.DeleteAddress(v4))
	must(t, a.DeleteAddress(v6))
	must(t, a.DeleteAddress(netip.MustParseAddr("192.0.2.77")))
	expectAddresses(t, a)
	expect(t, "local routes", ns.Must(t, "", "sh", "-c", list), before)
	if !accepts(t, ns, v4) || !accepts(t, ns, v6) {
		t.Error("the host's own addresses are no longer local")
	}

	// The host loses its address: the route of this package stays.
	must(t, a.AddAddress(v4))
	must(t, ns.RemoveAddress("host0", netip.MustParsePrefix("192.0.2.1/24")))
	expectAddresses(t, a, "192.0.2.1")
	if !accepts(t, ns, v4) {
		t.Error("the frontend's address is no longer local")
	}
}

func TestAddressError(t *testing.T) {
	a := openTestAddresses(t, newNamespace(t))
	a.loopback = 9999 // no such link
	if err := a.AddAddress(netip.MustParseAddr("10.96.0.1")); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("error is %v", err)
	}
}

// TestOpenFailsWithoutIPVS runs on kernels with and without IPVS. Without it every call returns ErrNoIPVS, although
// moby/ipvs would report success.
func TestOpenFailsWithoutIPVS(t *testing.T) {
	ns := newNamespace(t)
	o := Options{NetNS: ns.Fd()}
	e, openError := Open(o)
	if openError == nil {
		e.Close()
	}
	_, probeError := Probe(o, nil)
	_, listError := List(o, 0)
	_, err := os.Stat("/proc/net/ip_vs")
	for call, got := range map[string]error{"Open": openError, "Probe": probeError, "List": listError} {
		if present := err == nil; present != (got == nil) || !present && !errors.Is(got, ErrNoIPVS) {
			t.Errorf("IPVS in the kernel: %v, but %s returned: %v", present, call, got)
		}
	}
	if openError != nil && !strings.Contains(openError.Error(), "module ip_vs") {
		t.Errorf("the error %q does not name the module", openError)
	}
}
