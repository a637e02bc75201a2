package demo

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// namespace is a network namespace. It has no name, so it cannot outlive its process. The zero value is the namespace
// of this process.
type namespace struct {
	file *os.File
}

func newNamespace() (*namespace, error) {
	n := &namespace{}
	err := onOwnThread(func() error {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.file, err = os.Open("/proc/thread-self/ns/net")
		}
		if err != nil {
			return fmt.Errorf("create a network namespace: %w", err)
		}
		return linkUp("lo")
	})
	return n, err
}

// onOwnThread calls fn on a new thread that ends after the call, because fn changes the namespace of its thread.
func onOwnThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- fn()
	}()
	return <-done
}

// run calls fn on a thread inside the namespace. Sockets that fn opens stay in that namespace.
func (n *namespace) run(fn func() error) error {
	if n.file == nil {
		return fn()
	}
	return onOwnThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return fn()
	})
}

// sysctl writes a setting. The name is a path below /proc/sys/net.
func (n *namespace) sysctl(name, value string) error {
	return n.run(func() error {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0); err != nil {
			return fmt.Errorf("set a sysctl in a network namespace of the demo: %w", err)
		}
		return nil
	})
}

// address adds an address to a link. The address works at once.
func (n *namespace) address(link string, a netip.Prefix) error {
	return n.run(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return fmt.Errorf("find link %s: %w", link, err)
		}
		addr := &netlink.Addr{IPNet: ipNet(a)}
		if a.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD // duplicate address detection would delay it by a second
		}
		if err := netlink.AddrAdd(l, addr); err != nil {
			return fmt.Errorf("add address %s to link %s: %w", a, link, err)
		}
		return nil
	})
}

// route adds a route to a range over a link, through a gateway if that is valid.
func (n *namespace) route(link string, to netip.Prefix, gateway netip.Addr) error {
	return n.run(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return fmt.Errorf("find link %s: %w", link, err)
		}
		r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(to)}
		if gateway.IsValid() {
			r.Gw = gateway.AsSlice()
		} else {
			r.Scope = netlink.SCOPE_LINK
		}
		if err := netlink.RouteAdd(r); err != nil {
			return fmt.Errorf("add a route to %s over link %s: %w", to, link, err)
		}
		return nil
	})
}

// pair connects two namespaces by a pair of links.
func pair(near *namespace, nearName string, far *namespace, farName string) error {
	err := near.run(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = nearName
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: farName, PeerNamespace: netlink.NsFd(int(far.file.Fd()))}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add link %s: %w", nearName, err)
		}
		return linkUp(nearName)
	})
	if err != nil {
		return err
	}
	return far.run(func() error { return linkUp(farName) })
}

func linkUp(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("set link %s up: %w", name, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
