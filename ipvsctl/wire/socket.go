package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"syscall"

	"github.com/moby/ipvs"
	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/serviceport"
)

const version = 1 // of the messages

// Socket has the sockets to IPVS: one of moby/ipvs for virtual servers and timeouts, and one for the messages of this
// package. Only one goroutine at a time may use it.
type Socket struct {
	servers *ipvs.Handle
	family  int
	handle  *nl.SocketHandle
}

// ErrNoIPVS means that the kernel has no IPVS and cannot load it.
var ErrNoIPVS = errors.New(`the kernel has no IPVS (generic netlink family "IPVS", module ip_vs)`)

// Dial opens the sockets in a network namespace, or in the current one if ns is 0.
func Dial(ns int) (*Socket, error) {
	family, err := findFamily(ns)
	if err != nil {
		return nil, err
	}
	servers, err := openServers(ns)
	if err != nil {
		return nil, fmt.Errorf("open IPVS socket for virtual servers: %w", err)
	}
	s, err := nl.GetNetlinkSocketAt(Namespace(ns), netns.None(), unix.NETLINK_GENERIC)
	if err != nil {
		servers.Close()
		return nil, fmt.Errorf("open IPVS socket: %w", err)
	}
	return &Socket{servers: servers, family: int(family), handle: &nl.SocketHandle{Socket: s}}, nil
}

// findFamily looks for the generic netlink family before moby/ipvs does. That library stores a missing family as number
// 0, for the whole life of the process, and then the kernel reports success for every request. The lookup itself makes
// the kernel load ip_vs, even in a container without modprobe, because ip_vs has the alias
// net-pf-16-proto-16-family-IPVS (Linux 5.15, commit 2199f562730d). For older kernels findFamily runs modprobe.
func findFamily(ns int) (number uint16, err error) {
	h, err := netlink.NewHandleAt(Namespace(ns), unix.NETLINK_GENERIC)
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

// Namespace is a network namespace as package netlink names it; 0: the current one.
func Namespace(ns int) netns.NsHandle {
	if ns == 0 {
		return netns.None()
	}
	return netns.NsHandle(ns)
}

// openServers silences moby/ipvs. At its first use it runs modprobe, and when that fails it logs a warning through
// logrus, which no other code of Verdict uses.
func openServers(ns int) (*ipvs.Handle, error) {
	out := logrus.StandardLogger().Out
	logrus.SetOutput(io.Discard)
	defer logrus.SetOutput(out)
	if ns == 0 {
		return ipvs.New("")
	}
	return ipvs.New(fmt.Sprintf("/proc/self/fd/%d", ns))
}

// Close closes the sockets.
func (s *Socket) Close() {
	s.servers.Close()
	s.handle.Close()
}

// Command is a change of a virtual server or of one of its real servers. The numbers are those of the kernel.
type Command uint8

// The commands.
const (
	AddServer    Command = 1
	EditServer   Command = 2
	DeleteServer Command = 3
	AddReal      Command = 5
	EditReal     Command = 6
	DeleteReal   Command = 7
)

// Change executes a command. The header is for adding and changing a virtual server, which gets the mark, and the real
// server for commands about it. It is no error when there is nothing to delete.
func (s *Socket) Change(c Command, k Key, h Header, r RealServer) error {
	var err error
	switch c {
	case AddServer:
		return s.servers.NewService(service(k, h))
	case EditServer:
		return s.servers.UpdateService(service(k, h))
	case AddReal, EditReal:
		return s.change(uint8(c), k.attribute(), r.attribute())
	case DeleteReal:
		err = s.change(uint8(c), k.attribute(), r.attribute())
	case DeleteServer:
		err = s.servers.DelService(service(k, h))
	}
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

func (s *Socket) change(command uint8, attrs ...*nl.RtAttr) error {
	_, err := s.execute(command, unix.NLM_F_ACK, attrs...)
	return err
}

func (s *Socket) execute(command uint8, flags int, attrs ...*nl.RtAttr) ([][]byte, error) {
	req := nl.NewNetlinkRequest(s.family, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: s.handle}
	req.AddData(&nl.Genlmsg{Command: command, Version: version})
	for _, a := range attrs {
		req.AddData(a)
	}
	return req.Execute(unix.NETLINK_GENERIC, 0)
}

const typeMask = 0x3fff // without the flags of an attribute

func bigEndian(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

func family(a netip.Addr) []byte { return nl.Uint16Attr(uint16(serviceport.FamilyOf(a))) }

// address reads an address. The kernel writes 16 bytes, whatever the family is.
func address(b []byte, family uint64) (netip.Addr, error) {
	size := 4
	if family == unix.AF_INET6 {
		size = 16
	}
	if len(b) < size || family != unix.AF_INET && family != unix.AF_INET6 {
		return netip.Addr{}, fmt.Errorf("an address of %d bytes of family %d", len(b), family)
	}
	addr, _ := netip.AddrFromSlice(b[:size])
	return addr, nil
}

var errCut = errors.New("message of the kernel is cut short")

// inner has the attributes within the outer attribute of a message.
func inner(message []byte, kind uint16) (map[uint16][]byte, error) {
	outer, err := attributes(message[min(len(message), nl.SizeofGenlmsg):])
	if err != nil {
		return nil, err
	}
	return attributes(outer[kind])
}

// attributes has the values of attributes by their types.
func attributes(b []byte) (map[uint16][]byte, error) {
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, errors.Join(errCut, err)
	}
	values := make(map[uint16][]byte, len(list))
	for i := range list {
		values[list[i].Attr.Type&typeMask] = list[i].Value
	}
	return values, nil
}

// number reads a number of any size in the byte order of the host. A missing one is 0.
func number(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(nl.NativeEndian().Uint16(b))
	case 4:
		return uint64(nl.NativeEndian().Uint32(b))
	case 8:
		return nl.NativeEndian().Uint64(b)
	}
	return 0
}

// port reads a number in network byte order. A missing one is 0.
func port(b []byte) uint16 {
	if len(b) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}
