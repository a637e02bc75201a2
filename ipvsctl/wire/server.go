package wire

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/serviceport"
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

// service returns a virtual server as this package makes it.
func service(k Key, h Header) *ipvs.Service {
	s := &ipvs.Service{
		AddressFamily: unix.AF_INET,
		Address:       k.Addr.AsSlice(),
		Port:          k.Port,
		Protocol:      uint16(k.Protocol),
		SchedName:     h.Scheduler,
		Flags:         ownerMark | uint32(h.Flags),
		Timeout:       h.Persistence,
		Netmask:       0xffffffff, // one persistence entry per client
	}
	if k.Addr.Is6() {
		s.AddressFamily, s.Netmask = unix.AF_INET6, 128 // for IPv6 this is a prefix length
	}
	if h.Persistence > 0 {
		s.Flags |= flagPersistent
	}
	return s
}

// foundServer reports false for a virtual server that has a packet mark in place of an address.
func foundServer(s *ipvs.Service) (Server, bool) {
	addr, ok := netip.AddrFromSlice(s.Address)
	if !ok || s.FWMark != 0 {
		return Server{}, false
	}
	f := Server{
		Key:         Key{Addr: addr, Port: s.Port, Protocol: Protocol(s.Protocol)},
		Header:      Header{Scheduler: s.SchedName, Flags: Flags(s.Flags) & AllFlags},
		Ours:        s.Flags&ownerMask == ownerMark,
		Adopted:     s.Flags&(ownerMask|adoptedMark) == ownerMark|adoptedMark,
		Connections: uint64(s.Stats.Connections),
	}
	if s.Flags&flagPersistent != 0 {
		f.Persistence = s.Timeout
	}
	return f, true
}

// Servers lists the virtual servers that have an address. The others are for packet marks.
func (s *Socket) Servers() ([]Server, error) {
	services, err := s.servers.GetServices()
	list := make([]Server, 0, len(services))
	for _, each := range services {
		if found, ok := foundServer(each); ok {
			list = append(list, found)
		}
	}
	return list, os.NewSyscallError("list virtual servers", err)
}

// Server reads one virtual server.
func (s *Socket) Server(k Key) (found Server, ok bool, err error) {
	has, err := s.servers.GetService(service(k, Header{}))
	if errors.Is(err, syscall.ESRCH) {
		return Server{}, false, nil
	}
	if err == nil {
		found, ok = foundServer(has)
	}
	return found, ok, os.NewSyscallError("read virtual server", err)
}

// SetAdopted takes over a virtual server that another Service proxy made, or gives it to another one. It changes nothing
// but the mark.
func (s *Socket) SetAdopted(k Key, adopted bool) error {
	has, err := s.servers.GetService(service(k, Header{}))
	if err != nil {
		return os.NewSyscallError("read virtual server", err)
	}
	has.Flags &^= ownerMask | adoptedMark
	if adopted {
		has.Flags |= ownerMark | adoptedMark
	}
	return os.NewSyscallError("change virtual server", s.servers.UpdateService(has))
}

// Flags modify a scheduler. The bits are those of the kernel. Both schedulers that have flags, sh and mh, use the
// same bits.
type Flags uint32

// The flags of the schedulers sh and mh.
const (
	// Fallback sends a client to another real server when its own has weight 0 (sh-fallback, mh-fallback). The engine
	// always sets it for these two schedulers.
	Fallback Flags = 0x8 // IP_VS_SVC_F_SCHED1
	// HashPort hashes the client's port together with its address (sh-port, mh-port).
	HashPort Flags = 0x10 // IP_VS_SVC_F_SCHED2
	AllFlags       = Fallback | HashPort
)

// ParseFlags parses a comma-separated list in the notation of ipvsadm -b: sh-port, sh-fallback, mh-port, mh-fallback, or
// flag-1 and flag-2 for both schedulers.
func ParseFlags(scheduler, list string) (Flags, error) {
	var flags Flags
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		names := FlagNames(scheduler)
		i := max(slices.Index(names, word), slices.Index([]string{"flag-1", "flag-2"}, word))
		if i < 0 || i >= len(names) {
			return 0, fmt.Errorf("scheduler %s has no flag %q", scheduler, word)
		}
		flags |= Fallback << i
	}
	return flags, nil
}

// FlagNames returns the names of a scheduler's flags in the order of their bits.
func FlagNames(scheduler string) []string {
	if scheduler != "sh" && scheduler != "mh" {
		return nil
	}
	return []string{scheduler + "-fallback", scheduler + "-port"}
}

// Text prints flags in the notation of ipvsadm -b.
func (f Flags) Text(scheduler string) string {
	names := FlagNames(scheduler)
	var set []string
	for i := range 3 {
		switch bit := Fallback << i; {
		case f&bit == 0:
		case i < len(names):
			set = append(set, names[i])
		default:
			set = append(set, fmt.Sprintf("flag-%d", i+1))
		}
	}
	return strings.Join(set, ",")
}

// Timeouts are the timeouts of IPVS connections: established TCP, closing TCP, and UDP. 0 leaves a timeout as it is.
// The kernel counts whole seconds. Each network namespace has its own timeouts.
type Timeouts struct {
	TCP, TCPFin, UDP time.Duration
}

// Seconds rounds up, so that a client does not lose its real server too early.
func Seconds(d time.Duration) uint32 { return uint32((d + time.Second - 1) / time.Second) }

// Timeouts reads the timeouts of connections.
func (s *Socket) Timeouts() (Timeouts, error) {
	c, err := s.servers.GetConfig()
	if err != nil {
		return Timeouts{}, os.NewSyscallError("read timeouts", err)
	}
	return Timeouts{TCP: c.TimeoutTCP, TCPFin: c.TimeoutTCPFin, UDP: c.TimeoutUDP}, nil
}

// SetTimeouts changes the timeouts that are not 0.
func (s *Socket) SetTimeouts(t Timeouts) error {
	whole := func(d time.Duration) time.Duration { return time.Duration(Seconds(d)) * time.Second } // moby/ipvs rounds down
	err := s.servers.SetConfig(&ipvs.Config{TimeoutTCP: whole(t.TCP), TimeoutTCPFin: whole(t.TCPFin), TimeoutUDP: whole(t.UDP)})
	return os.NewSyscallError("set timeouts", err)
}

// Protocol is an IP protocol number.
type Protocol = serviceport.Protocol

// The protocols that Services have and IPVS can balance.
const (
	TCP  = serviceport.TCP
	UDP  = serviceport.UDP
	SCTP = serviceport.SCTP
)

// Key identifies a virtual server. A network namespace has at most one virtual server with a key, whichever tool made
// it.
type Key struct {
	Addr     netip.Addr
	Port     uint16
	Protocol Protocol
}

func (k Key) String() string {
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(k.Addr, k.Port), k.Protocol)
}

// Compare orders keys by address, port and protocol.
func (k Key) Compare(o Key) int {
	return cmp.Or(k.Addr.Compare(o.Addr), cmp.Compare(k.Port, o.Port), cmp.Compare(k.Protocol, o.Protocol))
}

// Option returns the option of ipvsadm that names the virtual server.
func (k Key) Option() string {
	option := "-t"
	switch k.Protocol {
	case UDP:
		option = "-u"
	case SCTP:
		option = "--sctp-service"
	}
	return fmt.Sprintf("%s %s", option, netip.AddrPortFrom(k.Addr, k.Port))
}
