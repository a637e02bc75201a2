package addresses

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

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
