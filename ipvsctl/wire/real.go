package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// RealServer is one endpoint. A real server of weight 0 gets no new connections.
type RealServer struct {
	Addr   netip.AddrPort
	Weight uint16
	// Forwarding is how packets reach it. Without NAT they keep the address and port of the virtual server, and the
	// answers do not come back to this host.
	Forwarding Forwarding
}

// Compare orders real servers by address.
func (r RealServer) Compare(o RealServer) int { return r.Addr.Compare(o.Addr) }

// Options returns the options of ipvsadm that make the real server.
func (r RealServer) Options() string {
	return fmt.Sprintf("-r %s %s -w %d", r.Addr, r.Forwarding.Options(), r.Weight)
}

// RealStatus is a real server that the kernel has. It has weight 0 while it drains, or because somebody set that weight.
type RealStatus struct {
	RealServer
	Active, Inactive int    // connections
	Connections      uint64 // that it got since it was added
	// Limit is how many connections it may have; 0: there is no limit. Verdict sets none, but other tools can (ipvsadm -x).
	Limit int
}

// Options returns the options of ipvsadm that make the real server, beside those that each one has.
func (r *RealStatus) Options() string {
	text := ""
	if r.Forwarding != (Forwarding{}) {
		text = r.Forwarding.Options()
	}
	if r.Limit > 0 {
		text += fmt.Sprintf(" -x %d", r.Limit)
	}
	return strings.TrimSpace(text)
}

// Full reports whether IPVS gives it no new connections, because it has as many as its limit allows.
func (r *RealStatus) Full() bool { return r.Limit > 0 && r.Active+r.Inactive >= r.Limit }

// Commands and attributes of real servers and their statistics, and the attributes that name their virtual server.
const (
	cmdGetReals = 8

	cmdAttrServer = 1
	svcFamily     = 1
	svcProtocol   = 2
	svcAddr       = 3
	svcPort       = 4

	cmdAttrReal  = 2
	destAddr     = 1
	destPort     = 2
	destMethod   = 3
	destWeight   = 4
	destLimit    = 5
	destLowLimit = 6
	destActive   = 7
	destInactive = 8
	destFamily   = 11
	destStats    = 12
	destTunType  = 13
	destTunPort  = 14
	destTunFlags = 15
	statsConns   = 1
	methodBits   = 0x7
)

func (k Key) attribute() *nl.RtAttr {
	a := nl.NewRtAttr(cmdAttrServer, nil)
	a.AddRtAttr(svcFamily, family(k.Addr))
	a.AddRtAttr(svcProtocol, nl.Uint16Attr(uint16(k.Protocol)))
	a.AddRtAttr(svcAddr, k.Addr.AsSlice())
	a.AddRtAttr(svcPort, bigEndian(k.Port))
	return a
}

func (r RealServer) attribute() *nl.RtAttr {
	a := nl.NewRtAttr(cmdAttrReal, nil)
	a.AddRtAttr(destAddr, r.Addr.Addr().AsSlice())
	a.AddRtAttr(destPort, bigEndian(r.Addr.Port()))
	a.AddRtAttr(destMethod, nl.Uint32Attr(uint32(r.Forwarding.Method)))
	a.AddRtAttr(destWeight, nl.Uint32Attr(uint32(r.Weight)))
	a.AddRtAttr(destLimit, nl.Uint32Attr(0)) // the kernel requires both limits
	a.AddRtAttr(destLowLimit, nl.Uint32Attr(0))
	a.AddRtAttr(destFamily, family(r.Addr.Addr()))
	if f := r.Forwarding; f.Method == ByTunnel {
		a.AddRtAttr(destTunType, nl.Uint8Attr(uint8(f.Tunnel)))
		a.AddRtAttr(destTunPort, bigEndian(f.Port))
		a.AddRtAttr(destTunFlags, nl.Uint16Attr(uint16(f.Checksum)))
	}
	return a
}

// parseReal reads the answer to the command that lists real servers.
func parseReal(message []byte) (RealStatus, error) {
	attrs, err := inner(message, cmdAttrReal)
	if err != nil {
		return RealStatus{}, err
	}
	r := RealStatus{
		Active: int(number(attrs[destActive])), Inactive: int(number(attrs[destInactive])), Limit: int(number(attrs[destLimit])),
	}
	r.Weight = uint16(number(attrs[destWeight]))
	r.Forwarding.Method = Method(number(attrs[destMethod]) & methodBits)
	if r.Forwarding.Method == ByTunnel {
		r.Forwarding.Tunnel = Tunnel(number(attrs[destTunType]))
		r.Forwarding.Checksum = Checksum(number(attrs[destTunFlags]))
		r.Forwarding.Port = port(attrs[destTunPort])
	}
	stats, err := attributes(attrs[destStats])
	if err != nil {
		return RealStatus{}, err
	}
	r.Connections = number(stats[statsConns])
	addr, err := address(attrs[destAddr], number(attrs[destFamily]))
	r.Addr = netip.AddrPortFrom(addr, port(attrs[destPort]))
	return r, err
}

// Reals lists the real servers of a virtual server, sorted by address. It lists none if there is no such virtual server.
func (s *Socket) Reals(k Key) ([]RealStatus, error) {
	messages, err := s.execute(cmdGetReals, unix.NLM_F_DUMP, k.attribute())
	list := make([]RealStatus, len(messages))
	for i, m := range messages {
		var parseErr error
		list[i], parseErr = parseReal(m)
		err = errors.Join(err, parseErr)
	}
	SortReals(list)
	return list, os.NewSyscallError("list real servers", err)
}

// SortReals sorts real servers by address.
func SortReals(list []RealStatus) {
	slices.SortFunc(list, func(a, b RealStatus) int { return a.Compare(b.RealServer) })
}

// Forwarding is how packets reach a real server. The zero value is NAT.
type Forwarding struct {
	Method   Method
	Tunnel   Tunnel   // for ByTunnel
	Port     uint16   // UDP port of GUE
	Checksum Checksum // of GUE and GRE
}

// Method is the method of forwarding. The numbers are those of the kernel.
type Method uint8

// The methods.
const (
	NAT      Method = 0
	ByTunnel Method = 2
	ByRoute  Method = 3 // the packet keeps its addresses and goes to the MAC address of the real server
)

// Tunnel is the encapsulation. The numbers are those of the kernel.
type Tunnel uint8

// The encapsulations.
const (
	IPIP Tunnel = iota
	GUE         // IP in UDP
	GRE
)

// Checksum is the checksum of the encapsulation. The numbers are those of the kernel.
type Checksum uint8

// The checksums.
const (
	NoChecksum Checksum = iota
	WithChecksum
	RemoteChecksum // GUE only: the outer checksum stands for the inner one
)

func tunnels() []string   { return []string{"ipip", "gue", "gre"} }
func checksums() []string { return []string{"nocsum", "csum", "remcsum"} }

// gueDefault is the port that IANA has assigned to GUE.
const gueDefault = 6080

// ParseForwarding parses "nat", "route" or "tunnel". After "tunnel" may follow the encapsulation (ipip, gue or gre), the
// port of GUE, and the checksum (csum, or remcsum for GUE), separated by commas.
func ParseForwarding(text string) (Forwarding, error) {
	words := strings.Split(text, ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	f := Forwarding{}
	switch words[0] {
	case "nat":
	case "route":
		f.Method = ByRoute
	case "tunnel":
		f.Method = ByTunnel
	default:
		return Forwarding{}, fmt.Errorf("%q is not nat, route or tunnel", text)
	}
	for i, word := range words[1:] {
		if f.Method != ByTunnel || i == 0 && !f.parseTunnel(word) || i > 0 && !f.parseDetail(word) {
			return Forwarding{}, fmt.Errorf("%q has no meaning in forwarding %q", word, text)
		}
	}
	if f.Tunnel == GUE && f.Port == 0 {
		f.Port = gueDefault
	}
	return f, nil
}

func (f *Forwarding) parseTunnel(word string) bool {
	i := slices.Index(tunnels(), word)
	f.Tunnel = Tunnel(max(i, 0))
	return i >= 0
}

// parseDetail parses a port or a checksum. Each may be given once.
func (f *Forwarding) parseDetail(word string) bool {
	if sum := slices.Index(checksums(), word); sum > 0 {
		fits := f.Checksum == NoChecksum && (f.Tunnel == GUE || f.Tunnel == GRE && Checksum(sum) == WithChecksum)
		f.Checksum = Checksum(sum)
		return fits
	}
	port, err := strconv.ParseUint(word, 10, 16)
	fits := err == nil && port != 0 && f.Port == 0 && f.Tunnel == GUE
	f.Port = uint16(port)
	return fits
}

// Options returns the options of ipvsadm that choose the forwarding.
func (f Forwarding) Options() string {
	switch f.Method {
	case NAT:
		return "-m"
	case ByRoute:
		return "-g"
	case ByTunnel:
		return "-i" + f.tunnelOptions()
	}
	return fmt.Sprintf("forwarding %d", f.Method)
}

func (f Forwarding) tunnelOptions() string {
	if int(f.Tunnel) >= len(tunnels()) || int(f.Checksum) >= len(checksums()) {
		return fmt.Sprintf(" --tun-type %d --tun-port %d, flags %d", f.Tunnel, f.Port, f.Checksum)
	}
	text := ""
	if f.Tunnel != IPIP {
		text = " --tun-type " + tunnels()[f.Tunnel]
	}
	if f.Port != 0 {
		text += fmt.Sprintf(" --tun-port %d", f.Port)
	}
	if f.Tunnel != IPIP || f.Checksum != NoChecksum {
		text += " --tun-" + checksums()[f.Checksum]
	}
	return text
}
