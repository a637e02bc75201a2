package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/preflight"
)

// host is the node or a pod: a thread in a network namespace, which disappears with this process.
type host struct {
	name      string
	addresses []netip.Addr // one for each family of the kernel
	calls     chan func()  // to the thread
	thread    int
	links     *netlink.Handle
}

// perFamily returns the addresses whose families the kernel has.
func perFamily(v4, v6 string) []netip.Addr {
	list := []netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)}
	if !preflight.HasIPv6() {
		return list[:1]
	}
	return list
}

// settings are sysctls whose values a namespace may inherit from the machine.
const settings = "ipv4/conf/all/rp_filter=0 ipv4/conf/default/rp_filter=0 ipv4/ip_forward=1 " +
	"ipv6/conf/all/disable_ipv6=0 ipv6/conf/default/disable_ipv6=0 ipv6/conf/all/forwarding=1"

// newHost makes a host in a new network namespace, or, without the flag, in that of this process.
func newHost(name string, flag int, addresses []netip.Addr) (*host, error) {
	h := &host{name: name, addresses: addresses, calls: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked, because the thread changes its namespace
		for call := range h.calls {
			call()
		}
	}()
	err := h.run(func() (err error) {
		if err = unix.Unshare(flag); err != nil {
			return err
		}
		h.thread = unix.Gettid()
		if h.links, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		for setting := range strings.FieldsSeq(settings) {
			name, value, _ := strings.Cut(setting, "=")
			err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0)
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
				return err
			}
		}
		return h.setUp("lo", &host{})
	})
	if err != nil {
		return nil, fmt.Errorf("create the network namespace of %s: %w", name, err)
	}
	return h, nil
}

// run calls fn inside the namespace. Sockets that fn opens stay in that namespace.
func (h *host) run(fn func() error) error {
	done := make(chan error)
	h.calls <- func() { done <- fn() }
	return <-done
}

// add makes a pod and connects it to the node by a pair of links: eth0, and one with the name of the pod. Its default route
// leads to the node.
func (h *host) add(name string, addresses []netip.Addr) (*host, error) {
	pod, err := newHost(name, unix.CLONE_NEWNET, addresses)
	if err != nil {
		return nil, err
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsPid(pod.thread)}
	if err := errors.Join(h.links.LinkAdd(veth), h.setUp(name, pod), pod.setUp("eth0", h)); err != nil {
		return nil, fmt.Errorf("connect %s to the node: %w", name, err)
	}
	return pod, nil
}

// setUp sets a link up, with addresses that work at once and those of the peer at its other end. A pod routes all to its peer.
func (h *host) setUp(link string, peer *host) error {
	l, err := h.links.LinkByName(link)
	if err != nil {
		return err
	}
	err = h.links.LinkSetUp(l)
	for i, other := range peer.addresses {
		own := netlink.NewIPNet(h.addresses[i].AsSlice())
		address := &netlink.Addr{IPNet: own, Peer: netlink.NewIPNet(other.AsSlice()), Flags: unix.IFA_F_NODAD}
		err = errors.Join(err, h.links.AddrAdd(l, address))
		if link == "eth0" {
			route := &netlink.Route{LinkIndex: l.Attrs().Index, Gw: other.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
			err = errors.Join(err, h.links.RouteAdd(route))
		}
	}
	return err
}
