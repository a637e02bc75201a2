package addresses

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

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
	all := netip.MustParseAddr("ff02::1")
	body := append([]byte{136, 0, 0, 0, router | override, 0, 0, 0}, a.AsSlice()...)
	body = append(append(body, 2, 1), from...) // the option with the target's link-layer address: type, length
	pseudo := append(a.AsSlice(), all.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(body)))
	pseudo = append(pseudo, 0, 0, 0, unix.IPPROTO_ICMPV6)
	binary.BigEndian.PutUint16(body[2:], checksum(append(pseudo, body...)))

	frame := []byte{0x60, 0, 0, 0, 0, byte(len(body)), unix.IPPROTO_ICMPV6, 255}
	frame = append(append(frame, a.AsSlice()...), all.AsSlice()...)
	return append(frame, body...)
}

// checksum is that of the Internet (RFC 1071), over an even number of bytes.
func checksum(data []byte) uint16 {
	var sum uint32
	for i := 0; i < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
