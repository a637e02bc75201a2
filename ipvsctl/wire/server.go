package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Header is what the kernel knows of a virtual server besides its key and its real servers.
type Header struct {
	Scheduler   string
	Flags       Flags
	Persistence uint32 // seconds
}

// Options returns the options of ipvsadm that make the header.
func (h Header) Options() string {
	text := " -s " + h.Scheduler
	if h.Persistence > 0 {
		text += fmt.Sprintf(" -p %d", h.Persistence)
	}
	if flags := h.Flags.Text(h.Scheduler); flags != "" {
		text += " -b " + flags
	}
	return text
}

// Server is a virtual server that the kernel has.
type Server struct {
	Key
	Header
	Ours        bool   // it has the mark
	Adopted     bool   // another Service proxy made it
	Connections uint64 // since it was made

	flags, netmask uint32 // as the kernel has them
}

// Bits in the flags of a virtual server (include/uapi/linux/ip_vs.h).
const (
	flagPersistent = 0x1
	// ownerMark says that this package made the virtual server. The kernel stores flag bits that it does not know and
	// returns them, so the mark exists exactly as long as the virtual server. Kernels up to 6.18 use bits 0 to 5. Bit 1
	// (HASHED) is internal to the kernel.
	ownerMark = 0x76000000
	ownerMask = 0xff000000
	// adoptedMark says, together with ownerMark, that another Service proxy made the virtual server.
	adoptedMark = 0x00800000
)

// Commands and attributes of virtual servers.
const (
	cmdGetServers = 4

	cmdAttrServer = 1
	svcFamily     = 1
	svcProtocol   = 2
	svcAddr       = 3
	svcPort       = 4
	svcPacketMark = 5
	svcScheduler  = 6
	svcFlags      = 7
	svcTimeout    = 8
	svcNetmask    = 9
	svcStats      = 10
)

func (k Key) attribute() *nl.RtAttr {
	a := nl.NewRtAttr(cmdAttrServer, nil)
	a.AddRtAttr(svcFamily, family(k.Addr))
	a.AddRtAttr(svcProtocol, nl.Uint16Attr(uint16(k.Protocol)))
	a.AddRtAttr(svcAddr, k.Addr.AsSlice())
	a.AddRtAttr(svcPort, bigEndian(k.Port))
	return a
}

func (s *Server) attribute() *nl.RtAttr {
	a := s.Key.attribute()
	a.AddRtAttr(svcScheduler, nl.ZeroTerminated(s.Scheduler))
	a.AddRtAttr(svcFlags, binary.NativeEndian.AppendUint32(nl.Uint32Attr(s.flags), 0xffffffff)) // and which bits count
	a.AddRtAttr(svcTimeout, nl.Uint32Attr(s.Persistence))
	a.AddRtAttr(svcNetmask, nl.Uint32Attr(s.netmask))
	return a
}

// owned returns a virtual server as this package makes it.
func owned(k Key, h Header) *Server {
	s := &Server{Key: k, Header: h, Ours: true, flags: ownerMark | uint32(h.Flags), netmask: 0xffffffff} // one persistence entry per client
	if k.Addr.Is6() {
		s.netmask = 128 // for IPv6 this is a prefix length
	}
	if h.Persistence > 0 {
		s.flags |= flagPersistent
	}
	return s
}

// parseServer reads a virtual server. It reports false for one that has a packet mark in place of an address.
func parseServer(message []byte) (s Server, ok bool, err error) {
	attrs, err := inner(message, cmdAttrServer)
	if err != nil || number(attrs[svcPacketMark]) != 0 {
		return Server{}, false, err
	}
	if s.Addr, err = address(attrs[svcAddr], number(attrs[svcFamily])); err != nil {
		return Server{}, false, err
	}
	s.Port, s.Protocol = port(attrs[svcPort]), Protocol(number(attrs[svcProtocol]))
	s.Scheduler, _, _ = strings.Cut(string(attrs[svcScheduler]), "\x00")
	if list := attrs[svcFlags]; len(list) >= 4 {
		s.flags = uint32(number(list[:4]))
	}
	s.netmask = uint32(number(attrs[svcNetmask]))
	s.Flags = Flags(s.flags) & AllFlags
	if s.flags&flagPersistent != 0 {
		s.Persistence = uint32(number(attrs[svcTimeout]))
	}
	s.Ours, s.Adopted = s.flags&ownerMask == ownerMark, s.flags&(ownerMask|adoptedMark) == ownerMark|adoptedMark
	stats, err := attributes(attrs[svcStats])
	s.Connections = number(stats[statsConns])
	return s, err == nil, err
}

// Servers lists the virtual servers that have an address. The others are for packet marks.
func (s *Socket) Servers() ([]Server, error) {
	messages, err := s.execute(cmdGetServers, unix.NLM_F_DUMP)
	list := make([]Server, 0, len(messages))
	for _, m := range messages {
		found, ok, parseErr := parseServer(m)
		if err = errors.Join(err, parseErr); ok {
			list = append(list, found)
		}
	}
	return list, os.NewSyscallError("list virtual servers", err)
}

// Server reads one virtual server.
func (s *Socket) Server(k Key) (found Server, ok bool, err error) {
	messages, err := s.execute(cmdGetServers, unix.NLM_F_ACK, k.attribute())
	if errors.Is(err, syscall.ESRCH) {
		return Server{}, false, nil
	}
	if err == nil && len(messages) > 0 {
		found, ok, err = parseServer(messages[0])
	}
	return found, ok, os.NewSyscallError("read virtual server", err)
}

// SetAdopted takes over a virtual server that another Service proxy made, or gives it to another one. It changes nothing
// but the mark.
func (s *Socket) SetAdopted(k Key, adopted bool) error {
	found, ok, err := s.Server(k)
	if err != nil {
		return err
	}
	if !ok {
		return os.NewSyscallError("read virtual server", syscall.ESRCH)
	}
	found.flags &^= ownerMask | adoptedMark
	if adopted {
		found.flags |= ownerMark | adoptedMark
	}
	return os.NewSyscallError("change virtual server", s.change(uint8(EditServer), found.attribute()))
}
