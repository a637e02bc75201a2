package ipvsctl

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/moby/ipvs"
	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Bits in the flags of a virtual server (include/uapi/linux/ip_vs.h).
const (
	flagPersistent = 0x1
	// ownerMark is ours: the kernel keeps flag bits that it has no meaning for and gives them back, so the mark lives
	// and dies with the virtual server. Kernels up to 6.18 use bits 0 to 5; bit 1 (HASHED) is the kernel's own.
	ownerMark = 0x76000000
	ownerMask = 0xff000000
)

// conn is the socket to the kernel. It hides the library: what it takes for granted, gets wrong or prints. One
// goroutine at a time may use it.
type conn struct {
	*addresses
	handle *ipvs.Handle
}

// ErrNoIPVS means that the kernel has no IPVS and could not load it.
var ErrNoIPVS = errors.New(`the kernel has no IPVS (generic netlink family "IPVS", module ip_vs)`)

func dial(ns int) (*conn, error) {
	if err := findFamily(ns); err != nil {
		return nil, err
	}
	h, err := openHandle(ns)
	if err != nil {
		return nil, fmt.Errorf("open IPVS socket: %w", err)
	}
	a, err := openAddresses(ns)
	if err != nil {
		h.Close()
		return nil, err
	}
	return &conn{addresses: a, handle: h}, nil
}

// findFamily asks for the family first, because the library remembers a family that is missing as number 0, to which
// the kernel says yes whatever is asked. The question itself makes the kernel load ip_vs, also when we run in a container
// without modprobe, since ip_vs has the alias net-pf-16-proto-16-family-IPVS (Linux 5.15, commit 2199f562730d). For older
// kernels modprobe is tried.
func findFamily(ns int) error {
	h, err := openGeneric(ns)
	if err != nil {
		return fmt.Errorf("open generic netlink socket: %w", err)
	}
	defer h.Close()
	_, err = h.GenlFamilyGet("IPVS")
	if errors.Is(err, syscall.ENOENT) && exec.Command("modprobe", "-q", "ip_vs").Run() == nil {
		_, err = h.GenlFamilyGet("IPVS")
	}
	if errors.Is(err, syscall.ENOENT) {
		return ErrNoIPVS
	}
	return os.NewSyscallError("look for generic netlink family IPVS", err)
}

func openGeneric(ns int) (*netlink.Handle, error) {
	if ns == 0 {
		return netlink.NewHandle(unix.NETLINK_GENERIC)
	}
	return netlink.NewHandleAt(netns.NsHandle(ns), unix.NETLINK_GENERIC)
}

// openHandle silences the library, which runs modprobe at its first use and complains through logrus when there is
// none. Nothing else of ours uses logrus.
func openHandle(ns int) (*ipvs.Handle, error) {
	out := logrus.StandardLogger().Out
	logrus.SetOutput(io.Discard)
	defer logrus.SetOutput(out)
	if ns == 0 {
		return ipvs.New("")
	}
	return ipvs.New(fmt.Sprintf("/proc/self/fd/%d", ns))
}

func (c *conn) close() {
	c.addresses.close()
	c.handle.Close()
}

func (c *conn) execute(o Operation) error {
	switch o.Kind {
	case AddServer:
		return c.handle.NewService(service(o.Server))
	case EditServer:
		return c.handle.UpdateService(service(o.Server))
	case DeleteServer:
		return ignore(c.handle.DelService(service(o.Server)), syscall.ESRCH)
	case AddReal:
		return c.handle.NewDestination(service(o.Server), destination(o.Real))
	case EditReal:
		return c.handle.UpdateDestination(service(o.Server), destination(o.Real))
	case DeleteReal:
		err := c.handle.DelDestination(service(o.Server), destination(o.Real))
		return ignore(ignore(err, syscall.ENOENT), syscall.ESRCH)
	case AddAddress:
		return c.addAddress(o.Server.Addr)
	case DeleteAddress:
		return c.deleteAddress(o.Server.Addr)
	}
	return fmt.Errorf("unknown operation %d", o.Kind)
}

// ignore drops an error that says that nothing was left to delete.
func ignore(err error, harmless syscall.Errno) error {
	if errors.Is(err, harmless) {
		return nil
	}
	return err
}

func service(v *VirtualServer) *ipvs.Service {
	s := &ipvs.Service{
		Address:       v.Addr.AsSlice(),
		Port:          v.Port,
		Protocol:      uint16(v.Protocol),
		SchedName:     v.Scheduler,
		Flags:         ownerMark | uint32(v.kernelFlags()),
		Netmask:       0xffffffff, // one client, one persistence entry
		AddressFamily: unix.AF_INET,
	}
	if v.Addr.Is6() {
		s.AddressFamily, s.Netmask = unix.AF_INET6, 128 // a prefix length here
	}
	if p := seconds(v.Persistence); p > 0 {
		s.Flags |= flagPersistent
		s.Timeout = p
	}
	return s
}

func destination(r RealServer) *ipvs.Destination {
	return &ipvs.Destination{
		Address:         r.Addr.Addr().AsSlice(),
		Port:            r.Addr.Port(),
		Weight:          int(r.Weight),
		ConnectionFlags: ipvs.ConnectionFlagMasq,
	}
}

// found is a virtual server that the kernel has.
type found struct {
	key         Key
	header      header
	ours        bool
	connections uint64 // since it was made
}

// servers lists the virtual servers that have an address (those for packet marks are never ours).
func (c *conn) servers() ([]found, error) {
	services, err := c.handle.GetServices()
	if err != nil {
		return nil, os.NewSyscallError("list virtual servers", err)
	}
	list := make([]found, 0, len(services))
	for _, s := range services {
		if f, ok := foundServer(s); ok {
			list = append(list, f)
		}
	}
	return list, nil
}

// server looks for one virtual server.
func (c *conn) server(k Key) (f found, ok bool, err error) {
	s, err := c.handle.GetService(service(&VirtualServer{Key: k}))
	if errors.Is(err, syscall.ESRCH) {
		return found{}, false, nil
	}
	if err != nil {
		return found{}, false, os.NewSyscallError("read virtual server", err)
	}
	f, ok = foundServer(s)
	return f, ok, nil
}

func foundServer(s *ipvs.Service) (found, bool) {
	addr, ok := netip.AddrFromSlice(s.Address)
	if !ok || s.FWMark != 0 {
		return found{}, false
	}
	f := found{
		key:         Key{Addr: addr, Port: s.Port, Protocol: Protocol(s.Protocol)},
		header:      header{scheduler: s.SchedName, flags: Flags(s.Flags) & allFlags},
		ours:        s.Flags&ownerMask == ownerMark,
		connections: uint64(s.Stats.Connections),
	}
	if s.Flags&flagPersistent != 0 {
		f.header.persistence = s.Timeout
	}
	return f, true
}

// foundReal is a real server that the kernel has, with what it is doing.
type foundReal struct {
	RealServer
	active, inactive int
}

// reals lists the real servers of a virtual server, sorted by address; none when it does not exist.
func (c *conn) reals(k Key) ([]foundReal, error) {
	destinations, err := c.handle.GetDestinations(service(&VirtualServer{Key: k}))
	if err != nil {
		return nil, os.NewSyscallError("list real servers", err)
	}
	list := make([]foundReal, 0, len(destinations))
	for _, d := range destinations {
		r, ok := foundDestination(d)
		if !ok {
			return nil, fmt.Errorf("list real servers: unknown address family %d", d.AddressFamily)
		}
		list = append(list, r)
	}
	sortReals(list)
	return list, nil
}

func foundDestination(d *ipvs.Destination) (foundReal, bool) {
	addr, ok := netip.AddrFromSlice(d.Address)
	return foundReal{
		RealServer: RealServer{Addr: netip.AddrPortFrom(addr, d.Port), Weight: uint16(d.Weight)},
		active:     d.ActiveConnections,
		inactive:   d.InactiveConnections,
	}, ok
}

// timeouts reads the timeouts of connections.
func (c *conn) timeouts() (Timeouts, error) {
	t, err := c.handle.GetConfig()
	if err != nil {
		return Timeouts{}, os.NewSyscallError("read timeouts", err)
	}
	return Timeouts{TCP: t.TimeoutTCP, TCPFin: t.TimeoutTCPFin, UDP: t.TimeoutUDP}, nil
}

// setTimeouts changes those that are not 0.
func (c *conn) setTimeouts(t Timeouts) error {
	whole := func(d time.Duration) time.Duration { return time.Duration(seconds(d)) * time.Second }
	err := c.handle.SetConfig(&ipvs.Config{TimeoutTCP: whole(t.TCP), TimeoutTCPFin: whole(t.TCPFin), TimeoutUDP: whole(t.UDP)})
	return os.NewSyscallError("set timeouts", err)
}
