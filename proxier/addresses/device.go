package addresses

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// device is a link of this host.
type device struct {
	index     int
	hardware  net.HardwareAddr
	carrier   bool
	ups       uint32 // how often the link got its carrier
	announces bool   // its link has other hosts that ask for addresses
}

// find looks for a device.
func find(name string) (device, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return device{}, fmt.Errorf("find the device %s: %w", name, err)
	}
	a := link.Attrs()
	ups, err := carrierUps(a.Index)
	if err != nil {
		return device{}, fmt.Errorf("read the state of the device %s: %w", name, err)
	}
	return device{
		index: a.Index, hardware: a.HardwareAddr, carrier: a.RawFlags&unix.IFF_LOWER_UP != 0, ups: ups,
		announces: len(a.HardwareAddr) == 6 && a.Flags&net.FlagLoopback == 0 && a.RawFlags&unix.IFF_NOARP == 0,
	}, nil
}

// carrierUps reads how often a link got its carrier, so that nobody misses a short interruption.
func carrierUps(link int) (n uint32, err error) {
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(link)
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	request.AddData(header)
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	for _, m := range messages {
		attributes, err := nl.ParseRouteAttr(m[header.Len():])
		if err != nil {
			return 0, err
		}
		for _, a := range attributes {
			if a.Attr.Type == unix.IFLA_CARRIER_UP_COUNT && len(a.Value) == 4 {
				n = nl.NativeEndian().Uint32(a.Value)
			}
		}
	}
	return n, err
}

// add adds an address.
func (d *device) add(a netip.Addr) error {
	return change(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, a, d.index)
}

// remove deletes an address. It is no error when there is none.
func remove(a netip.Addr, link int) error {
	err := change(unix.RTM_DELADDR, 0, a, link)
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// change sends a request about an address. The package comment says why the address looks as it does.
func change(kind, flags int, a netip.Addr, link int) error {
	header := nl.NewIfAddrmsg(int(serviceport.FamilyOf(a)))
	header.Prefixlen, header.Index = uint8(a.BitLen()), uint32(link)
	request := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	request.AddData(header)
	request.AddData(nl.NewRtAttr(unix.IFA_LOCAL, a.AsSlice()))
	request.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, a.AsSlice()))
	request.AddData(nl.NewRtAttr(attributeProtocol, []byte{mark}))
	if a.Is4() {
		header.Scope = unix.RT_SCOPE_LINK
	} else {
		header.Flags = unix.IFA_F_NODAD
		const forever = 1<<32 - 1
		life := nl.IfaCacheInfo{IfaCacheinfo: unix.IfaCacheinfo{Valid: forever}} // preferred for no time: deprecated
		request.AddData(nl.NewRtAttr(unix.IFA_CACHEINFO, life.Serialize()))
	}
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// announcements is how often an address is announced, a second apart: a frame may be lost.
const announcements = 3

// announce sends the announcement of each address to all hosts of the link.
func (d *device) announce(list []netip.Addr) error {
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	for _, a := range list {
		to := unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ARP), Ifindex: d.index, Halen: 6}
		frame := gratuitousARP(a, d.hardware)
		copy(to.Addr[:], "\xff\xff\xff\xff\xff\xff")
		if a.Is6() {
			to.Protocol, frame = bigEndian(unix.ETH_P_IPV6), unsolicitedAdvertisement(a, d.hardware)
			copy(to.Addr[:], "\x33\x33\x00\x00\x00\x01")
		}
		if err := unix.Sendto(socket, frame, 0, &to); err != nil {
			return fmt.Errorf("send the announcement of %s: %w", a, err)
		}
	}
	return nil
}

// bigEndian is the number whose bytes are in the order of the network.
func bigEndian(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// gratuitousARP is a request for the sender's own address (RFC 5227, section 3).
func gratuitousARP(a netip.Addr, from net.HardwareAddr) []byte {
	frame := []byte{0, 1, 8, 0, 6, 4, 0, 1} // Ethernet, IPv4, lengths of their addresses, request
	frame = append(append(frame, from...), a.AsSlice()...)
	frame = append(frame, make([]byte, 6)...)
	return append(frame, a.AsSlice()...)
}

// unsolicitedAdvertisement is a neighbor advertisement that nobody has asked for (RFC 4861, section 7.2.6), with its IPv6
// header. Its flags say that this host forwards, and that the address is to replace what others remember.
func unsolicitedAdvertisement(a netip.Addr, from net.HardwareAddr) []byte {
	const router, override = 0x80, 0x20
	all := net.ParseIP("ff02::1")
	body := slices.Concat([]byte{router | override, 0, 0, 0}, a.AsSlice(), []byte{2, 1}, from) // with the option of the link-layer address
	message := icmp.Message{Type: ipv6.ICMPTypeNeighborAdvertisement, Body: &icmp.RawBody{Data: body}}
	packet, _ := message.Marshal(icmp.IPv6PseudoHeader(a.AsSlice(), all)) // never fails with such a body
	header := []byte{0x60, 0, 0, 0, 0, byte(len(packet)), unix.IPPROTO_ICMPV6, 255}
	return slices.Concat(header, a.AsSlice(), all, packet)
}
