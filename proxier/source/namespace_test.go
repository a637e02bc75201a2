package source

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inUserNamespace is set in the environment when the test binary has started itself again.
const inUserNamespace = "VERDICT_TEST_IN_USER_NAMESPACE"

// TestMain lets the tests make network namespaces: an ordinary user may do so in a user namespace.
func TestMain(m *testing.M) {
	if mayMakeNamespaces() {
		os.Exit(m.Run())
	}
	if os.Getenv(inUserNamespace) != "" {
		fmt.Fprintln(os.Stderr, "cannot make a network namespace, not even inside a user namespace of its own; run the tests as root")
		os.Exit(1)
	}
	os.Exit(startAgain())
}

func mayMakeNamespaces() bool {
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		made <- unix.Unshare(unix.CLONE_NEWNET)
	}()
	return <-made == nil
}

func startAgain() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inUserNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	fmt.Fprintf(os.Stderr, "start the tests in a user namespace: %v; allow unprivileged user namespaces or run them as root\n", err)
	return 1
}

// namespace is a network namespace without a name: it is gone when its last user is, even if the tests crash.
type namespace struct {
	t    *testing.T
	file *os.File
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	n := &namespace{t: t}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.file, err = os.Open("/proc/thread-self/ns/net")
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() {
		if err := n.file.Close(); err != nil {
			t.Errorf("leave the network namespace: %v", err)
		}
	})
	return n
}

// within calls fn on a thread inside the namespace.
func (n *namespace) within(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}

func (n *namespace) do(what string, fn func() error) {
	n.t.Helper()
	if err := n.within(fn); err != nil {
		n.t.Fatalf("%s: %v", what, err)
	}
}

// link adds an interface that is up: one end of a pair, since not every kernel has dummies.
func (n *namespace) link(name string) {
	n.t.Helper()
	n.do("add interface "+name, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-peer"})
	})
	n.up(name)
	n.up(name + "-peer")
}

// up brings an interface up.
func (n *namespace) up(name string) {
	n.t.Helper()
	n.do("bring up "+name, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
}

func (n *namespace) deleteLink(name string) {
	n.t.Helper()
	n.do("delete "+name, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
}

// address adds an address, at once usable.
func (n *namespace) address(name, cidr string, change ...func(*netlink.Addr)) {
	n.t.Helper()
	n.do("add address "+cidr, func() error { return changeAddress(netlink.AddrAdd, name, cidr, change...) })
}

func (n *namespace) deleteAddress(name, cidr string) {
	n.t.Helper()
	n.do("delete address "+cidr, func() error { return changeAddress(netlink.AddrDel, name, cidr) })
}

func changeAddress(call func(netlink.Link, *netlink.Addr) error, name, cidr string, change ...func(*netlink.Addr)) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(cidr)
	if err != nil {
		return err
	}
	if addr.IP.To4() == nil {
		addr.Flags = unix.IFA_F_NODAD
	}
	for _, c := range change {
		c(addr)
	}
	return call(link, addr)
}

// defaultRoute adds a default route over an interface.
func (n *namespace) defaultRoute(family int, name string, metric int, src string) {
	n.t.Helper()
	n.do("add default route over "+name, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		dst := netip.MustParsePrefix("0.0.0.0/0")
		if family == netlink.FAMILY_V6 {
			dst = netip.MustParsePrefix("::/0")
		}
		_, network, err := parseNet(dst)
		if err != nil {
			return err
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: network, Priority: metric, Scope: netlink.SCOPE_LINK}
		if src != "" {
			route.Src = netip.MustParseAddr(src).AsSlice()
		}
		return netlink.RouteAdd(route)
	})
}
