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

// namespace is a network namespace without a name, so that it cannot outlive its process. The zero value is the one in
// which this process runs.
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
			return fmt.Errorf("make a network namespace: %w", err)
		}
		return linkUp("lo")
	})
	return n, err
}

// onOwnThread calls fn on a thread that ends with it: its namespace is not that of the other threads.
func onOwnThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- fn()
	}()
	return <-done
}

// run calls fn on a thread inside the namespace. Sockets that fn opens stay in the namespace.
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

// sysctl writes a setting, named as below /proc/sys/net.
func (n *namespace) sysctl(name, value string) error {
	return n.run(func() error {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0); err != nil {
			return fmt.Errorf("set a sysctl of an own network namespace: %w", err)
		}
		return nil
	})
}

// address gives a link an address that works at once.
func (n *namespace) address(link string, a netip.Prefix) error {
	return n.run(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return fmt.Errorf("find link %s: %w", link, err)
		}
		addr := &netlink.Addr{IPNet: ipNet(a)}
		if a.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD // duplicate address detection would keep it from answering for a second
		}
		if err := netlink.AddrAdd(l, addr); err != nil {
			return fmt.Errorf("add address %s to link %s: %w", a, link, err)
		}
		return nil
	})
}

// route sends a range to a link, through a gateway if there is one.
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

// pair joins two namespaces by a pair of links.
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
