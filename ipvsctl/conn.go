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

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// Bits in the flags of a virtual server (include/uapi/linux/ip_vs.h).
const (
	flagPersistent = 0x1
	// ownerMark says that this package made the virtual server. The kernel stores flag bits that it does not know and
	// returns them, so the mark exists exactly as long as the virtual server. Kernels up to 6.18 use bits 0 to 5. Bit 1
	// (HASHED) is internal to the kernel.
	ownerMark = 0x76000000
	ownerMask = 0xff000000
	// adoptedMark says, together with ownerMark, that another Service proxy made the virtual server (adopt.go).
	adoptedMark = 0x00800000
)

// conn has the sockets to the kernel. It hides moby/ipvs, with its assumptions, its bugs and its log messages, and package
// wire, which knows of real servers what moby/ipvs does not. Only one goroutine at a time may use it.
type conn struct {
	*addresses
	handle *ipvs.Handle
	wire   *wire.Socket // for real servers
}

// ErrNoIPVS means that the kernel has no IPVS and cannot load it.
var ErrNoIPVS = errors.New(`the kernel has no IPVS (generic netlink family "IPVS", module ip_vs)`)

func dial(ns int) (*conn, error) {
	family, err := findFamily(ns)
	if err != nil {
		return nil, err
	}
	h, err := openHandle(ns)
	if err != nil {
		return nil, fmt.Errorf("open IPVS socket: %w", err)
	}
	w, err := wire.Open(ns, family)
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("open IPVS socket for real servers: %w", err)
	}
	a, err := openAddresses(ns)
	if err != nil {
		h.Close()
		w.Close()
		return nil, err
	}
	return &conn{addresses: a, handle: h, wire: w}, nil
}

// findFamily looks for the generic netlink family before moby/ipvs does. That library stores a missing family as
// number 0, and then the kernel reports success for every request. The lookup itself makes the kernel load ip_vs,
// even in a container without modprobe, because ip_vs has the alias net-pf-16-proto-16-family-IPVS (Linux 5.15,
// commit 2199f562730d). For older kernels findFamily runs modprobe.
func findFamily(ns int) (number uint16, err error) {
	h, err := openGeneric(ns)
	if err != nil {
		return 0, fmt.Errorf("open generic netlink socket: %w", err)
	}
	defer h.Close()
	f, err := h.GenlFamilyGet("IPVS")
	if errors.Is(err, syscall.ENOENT) && exec.Command("modprobe", "-q", "ip_vs").Run() == nil {
		f, err = h.GenlFamilyGet("IPVS")
	}
	switch {
	case errors.Is(err, syscall.ENOENT):
		return 0, ErrNoIPVS
	case err != nil:
		return 0, os.NewSyscallError("look up generic netlink family IPVS", err)
	}
	return f.ID, nil
}

func openGeneric(ns int) (*netlink.Handle, error) {
	if ns == 0 {
		return netlink.NewHandle(unix.NETLINK_GENERIC)
	}
	return netlink.NewHandleAt(netns.NsHandle(ns), unix.NETLINK_GENERIC)
}

// openHandle silences moby/ipvs. At its first use it runs modprobe, and when that fails it logs a warning through
// logrus, which no other code of Verdict uses.
func openHandle(ns int) (*ipvs.Handle, error) {
	out := logrus.StandardLogger().Out
	logrus.SetOutput(io.Discard)
	defer logrus.SetOutput(out)
	if ns == 0 {
		return ipvs.New("")
	}
	return ipvs.New(fmt.Sprintf("/proc/self/fd/%d", ns))
}

// Close closes the sockets.
func (c *conn) Close() error {
	c.close()
	c.handle.Close()
	c.wire.Close()
	return nil
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
		return c.wire.Add(o.Server.name(), o.Real.real())
	case EditReal:
		return c.wire.Edit(o.Server.name(), o.Real.real())
	case DeleteReal:
		err := c.wire.Delete(o.Server.name(), o.Real.real())
		return ignore(ignore(err, syscall.ENOENT), syscall.ESRCH)
	case AddAddress:
		return c.addAddress(o.Server.Addr)
	case DeleteAddress:
		return c.deleteAddress(o.Server.Addr)
	}
	return fmt.Errorf("unknown operation %d", o.Kind)
}

func (k Key) name() wire.Service {
	return wire.Service{Addr: k.Addr, Port: k.Port, Protocol: uint8(k.Protocol)}
}

// ignore drops an error that means that there was nothing to delete.
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
		Netmask:       0xffffffff, // one persistence entry per client
		AddressFamily: unix.AF_INET,
	}
	if v.Addr.Is6() {
		s.AddressFamily, s.Netmask = unix.AF_INET6, 128 // for IPv6 this is a prefix length
	}
	if p := seconds(v.Persistence); p > 0 {
		s.Flags |= flagPersistent
		s.Timeout = p
	}
	return s
}

// found is a virtual server that the kernel has.
type found struct {
	key         Key
	header      header
	ours        bool   // it has the mark
	adopted     bool   // another Service proxy made it
	connections uint64 // since it was made
}

// servers lists the virtual servers that have an address. The others are for packet marks, which this package does
// not use.
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

// server reads one virtual server.
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
		adopted:     s.Flags&(ownerMask|adoptedMark) == ownerMark|adoptedMark,
		connections: uint64(s.Stats.Connections),
	}
	if s.Flags&flagPersistent != 0 {
		f.header.persistence = s.Timeout
	}
	return f, true
}

// reals lists the real servers of a virtual server, sorted by address. It lists none when there is no such virtual
// server.
func (c *conn) reals(k Key) ([]RealStatus, error) {
	reals, err := c.wire.List(k.name())
	if err != nil {
		return nil, os.NewSyscallError("list real servers", err)
	}
	list := make([]RealStatus, len(reals))
	for i, r := range reals {
		list[i] = foundReal(r)
	}
	sortReals(list)
	return list, nil
}

// mark replaces the mark of a virtual server, and changes nothing else.
func (c *conn) mark(k Key, bits uint32) error {
	s, err := c.handle.GetService(service(&VirtualServer{Key: k}))
	if err != nil {
		return os.NewSyscallError("read virtual server", err)
	}
	s.Flags = s.Flags&^(ownerMask|adoptedMark) | bits
	return os.NewSyscallError("change virtual server", c.handle.UpdateService(s))
}

// timeouts reads the timeouts of connections.
func (c *conn) timeouts() (Timeouts, error) {
	t, err := c.handle.GetConfig()
	if err != nil {
		return Timeouts{}, os.NewSyscallError("read timeouts", err)
	}
	return Timeouts{TCP: t.TimeoutTCP, TCPFin: t.TimeoutTCPFin, UDP: t.TimeoutUDP}, nil
}

// setTimeouts changes the timeouts that are not 0.
func (c *conn) setTimeouts(t Timeouts) error {
	whole := func(d time.Duration) time.Duration { return time.Duration(seconds(d)) * time.Second }
	config := ipvs.Config{TimeoutTCP: whole(t.TCP), TimeoutTCPFin: whole(t.TCPFin), TimeoutUDP: whole(t.UDP)}
	err := c.handle.SetConfig(&config)
	return os.NewSyscallError("set timeouts", err)
}

func (c *conn) daemons() ([]wire.Daemon, error) {
	list, err := c.wire.Daemons()
	return list, os.NewSyscallError("list synchronization daemons", err)
}

func (c *conn) startDaemon(d wire.Daemon) error { return c.wire.StartDaemon(d) }

func (c *conn) stopDaemon(d wire.Daemon) error { return c.wire.StopDaemon(d) }
