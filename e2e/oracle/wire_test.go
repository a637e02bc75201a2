//go:build !nokernel

package oracle_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/e2e/oracle"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// wire is a node with two links, whose other ends are this test: pods are behind one link, everyone else behind the other. The
// test sends packets of any client, and sees each packet that leaves the node. Nobody else answers, so each packet is the first
// one of its connection.
type wire struct {
	node *netns.Namespace
	// Sockets of the links, and one that sees what the node sends to itself.
	pods, outside, loopback int
	own4, own6              int    // raw sockets of the node
	port                    uint16 // of the last packet
}

func newWire(t *testing.T, c *oracle.Cluster) *wire {
	t.Helper()
	oneProcessor(t)
	w := &wire{node: netns.New(t), port: firstPort}
	lab.Must(t, w.node.Quiet())
	w.pods, w.outside = w.link(t, "pods"), w.link(t, "outside")
	lab.Must(t, w.node.Sysctl(
		"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.icmp_ratemask=0", "net.ipv6.icmp.ratelimit=0",
	))
	for _, a := range c.NodeAddrs {
		lab.Must(t, w.node.AddAddress("outside", netip.PrefixFrom(a, a.BitLen())))
	}
	for _, r := range c.PodRanges {
		lab.Must(t, w.node.AddRoute(netns.Route{To: r, Link: "pods"}))
	}
	for _, r := range []string{"0.0.0.0/0", "::/0"} {
		lab.Must(t, w.node.AddRoute(netns.Route{To: netip.MustParsePrefix(r), Link: "outside"}))
	}
	w.loopback = w.socket(t, unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, int(bigEndian(unix.ETH_P_ALL)))
	const lo = 1
	lab.Must(t, unix.Bind(w.loopback, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: lo}))
	w.own4 = w.socket(t, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	w.own6 = w.socket(t, unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW)
	return w
}

// oneProcessor keeps the test on one processor, where packets are seen in the order in which they were sent.
func oneProcessor(t *testing.T) {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	var before, one unix.CPUSet
	lab.Must(t, unix.SchedGetaffinity(0, &before))
	for cpu := 0; one.Count() == 0; cpu++ {
		if before.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	lab.Must(t, unix.SchedSetaffinity(0, &one))
	t.Cleanup(func() { lab.Must(t, unix.SchedSetaffinity(0, &before)) })
}

func (w *wire) socket(t *testing.T, domain, kind, protocol int) (fd int) {
	t.Helper()
	lab.Must(t, w.node.Do(func() (err error) {
		fd, err = unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
		return err
	}))
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// link makes a link of the node and returns its other end.
func (w *wire) link(t *testing.T, name string) (fd int) {
	t.Helper()
	lab.Must(t, w.node.Do(func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return fmt.Errorf("open /dev/net/tun: %w", err)
		}
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}))
	t.Cleanup(func() { unix.Close(fd) })
	lab.Must(t, w.node.SetUp(name))
	return fd
}

// seen is a packet that the node has sent.
type seen struct {
	protocol uint8
	src, dst netip.AddrPort
	refusal  bool // a TCP reset, an SCTP abort, or an ICMP error
}

// Ports of clients: none is a node port, whose meaning as a source nobody tests.
const firstPort, lastPort = 1024, 29_999

// send sends the first packet of a connection and returns what the node has sent because of it.
func (w *wire) send(t *testing.T, c *oracle.Cluster, p oracle.Packet) (out []seen) {
	t.Helper()
	if w.port++; w.port > lastPort {
		w.port = firstPort
	}
	return w.exchange(t, c, p.Src, p.Dst.Addr(), encode(p.Src, w.port, p.Dst, uint8(p.Protocol)))
}

// exchange sends a packet and returns what the node has sent because of it.
func (w *wire) exchange(t *testing.T, c *oracle.Cluster, src, dst netip.Addr, raw []byte) (out []seen) {
	t.Helper()
	w.drain(t)
	w.put(t, c, src, dst, raw)
	// A packet for an address of nobody leaves through the link to the outside, and one of the node to itself through the
	// loopback link, where an answer to the first packet may be behind it. The second one is behind that answer.
	node := c.NodeAddrs[0]
	end, own := netip.MustParseAddrPort("198.18.0.1:9"), netip.AddrPortFrom(node, 0)
	w.put(t, c, node, end.Addr(), encode(node, 9, end, uint8(state.UDP)))
	out = w.until(t, w.outside, func(s seen) bool { return s.dst == end })
	for range 2 {
		w.put(t, c, node, node, encode(node, 0, own, unix.IPPROTO_ICMP))
		out = append(out, w.until(t, w.loopback, func(s seen) bool { return s.protocol == unix.IPPROTO_ICMP && !s.refusal })...)
	}
	return append(out, w.drain(t)...)
}

// put sends a packet of a client.
func (w *wire) put(t *testing.T, c *oracle.Cluster, src, dst netip.Addr, raw []byte) {
	t.Helper()
	switch {
	case !slices.Contains(c.NodeAddrs, src):
		fd := w.outside
		if slices.ContainsFunc(c.PodRanges, func(r netip.Prefix) bool { return r.Contains(src) }) {
			fd = w.pods
		}
		_, err := unix.Write(fd, raw)
		lab.Must(t, err)
	case src.Is4():
		_ = unix.Sendto(w.own4, raw, 0, &unix.SockaddrInet4{Addr: dst.As4()}) // fails if a rule drops or refuses the packet
	default:
		_ = unix.Sendto(w.own6, raw, 0, &unix.SockaddrInet6{Addr: dst.As16()})
	}
}

// until reads packets until one ends the wait, which it leaves out.
func (w *wire) until(t *testing.T, fd int, last func(seen) bool) (out []seen) {
	t.Helper()
	for end := time.Now().Add(lab.Limit); time.Now().Before(end); {
		s, ok := w.next(t, fd)
		switch {
		case ok && last(s):
			return out
		case ok:
			out = append(out, s)
		default:
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
			if err != nil && err != unix.EINTR {
				t.Fatal(err)
			}
		}
	}
	t.Fatal("the node has not sent the packet that ends the wait")
	return nil
}

// drain reads what is there.
func (w *wire) drain(t *testing.T) (out []seen) {
	t.Helper()
	for _, fd := range []int{w.pods, w.outside, w.loopback} {
		for s, ok := w.next(t, fd); ok; s, ok = w.next(t, fd) {
			out = append(out, s)
		}
	}
	return out
}

// next reads one packet, if there is one. It leaves out what is no packet of a connection.
func (w *wire) next(t *testing.T, fd int) (s seen, ok bool) {
	t.Helper()
	raw := make([]byte, 1<<16)
	for {
		var from unix.Sockaddr
		var n int
		var err error
		if fd == w.loopback {
			n, from, err = unix.Recvfrom(fd, raw, 0)
		} else {
			n, err = unix.Read(fd, raw)
		}
		if errors.Is(err, unix.EAGAIN) {
			return s, false
		}
		lab.Must(t, err)
		if l, isLink := from.(*unix.SockaddrLinklayer); isLink && l.Pkttype == unix.PACKET_OUTGOING {
			continue // the loopback link shows each packet twice
		}
		if s, ok := decode(raw[:n]); ok {
			return s, true
		}
	}
}

func bigEndian(n uint16) uint16 { return n<<8 | n>>8 }

const icmpEchoReply = 0 // which the kernel does not answer

const tcpSYN, tcpACK = 0x2, 0x10

// encode makes the first packet of a connection: a SYN, a datagram, an INIT; of ICMP, an echo reply.
func encode(src netip.Addr, port uint16, dst netip.AddrPort, protocol uint8) []byte {
	return encodeNumbered(src, port, dst, protocol, 0, tcpSYN)
}

// encodeNumbered is encode for any packet of a TCP connection whose ends have sent nothing but these numbers and flags.
func encodeNumbered(src netip.Addr, port uint16, dst netip.AddrPort, protocol uint8, number uint32, flags byte) []byte {
	var body []byte
	at := -1 // where the checksum of TCP and UDP is
	switch protocol {
	case unix.IPPROTO_TCP:
		body, at = make([]byte, 20), 16
		body[12], body[13] = 5<<4, flags // the length of the header before
		binary.BigEndian.PutUint32(body[4:], number)
		if flags&tcpACK != 0 {
			binary.BigEndian.PutUint32(body[8:], 1)
		}
		binary.BigEndian.PutUint16(body[14:], 1<<13)
	case unix.IPPROTO_UDP:
		body, at = append(make([]byte, 8), "question"...), 6
		binary.BigEndian.PutUint16(body[4:], uint16(len(body)))
	case unix.IPPROTO_SCTP:
		body = make([]byte, 32)
		copy(body[12:], []byte{1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1}) // INIT
	case unix.IPPROTO_ICMP:
		body = []byte{icmpEchoReply, 0, 0xff, 0xff, 0, 0, 0, 0}
	}
	if protocol != unix.IPPROTO_ICMP {
		binary.BigEndian.PutUint16(body, port)
		binary.BigEndian.PutUint16(body[2:], dst.Port())
	}
	if protocol == unix.IPPROTO_SCTP {
		binary.LittleEndian.PutUint32(body[8:], crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	}
	if at >= 0 {
		pseudo := append(append(src.AsSlice(), dst.Addr().AsSlice()...), 0, protocol, byte(len(body)>>8), byte(len(body)))
		binary.BigEndian.PutUint16(body[at:], checksum(append(pseudo, body...)))
	}
	if src.Is4() {
		head := make([]byte, 20)
		head[0], head[8], head[9] = 4<<4|5, 64, protocol
		binary.BigEndian.PutUint16(head[2:], uint16(20+len(body)))
		copy(head[12:], src.AsSlice())
		copy(head[16:], dst.Addr().AsSlice())
		binary.BigEndian.PutUint16(head[10:], checksum(head))
		return append(head, body...)
	}
	head := make([]byte, 40)
	head[0], head[6], head[7] = 6<<4, protocol, 64
	binary.BigEndian.PutUint16(head[4:], uint16(len(body)))
	copy(head[8:], src.AsSlice())
	copy(head[24:], dst.Addr().AsSlice())
	return append(head, body...)
}

// checksum is that of the Internet protocols.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i, v := range b {
		sum += uint32(v) << (8 * (1 - i%2))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// decode reads a packet; not ok: it is no packet of a connection.
func decode(raw []byte) (s seen, ok bool) {
	var src, dst netip.Addr
	switch {
	case len(raw) >= 28 && raw[0]>>4 == 4:
		src, dst = netip.AddrFrom4([4]byte(raw[12:])), netip.AddrFrom4([4]byte(raw[16:]))
		s.protocol, raw = raw[9], raw[4*(raw[0]&15):]
	case len(raw) >= 48 && raw[0]>>4 == 6:
		src, dst = netip.AddrFrom16([16]byte(raw[8:])), netip.AddrFrom16([16]byte(raw[24:]))
		s.protocol, raw = raw[6], raw[40:]
	default:
		return s, false
	}
	port := func(at int) uint16 { return binary.BigEndian.Uint16(raw[at:]) }
	switch s.protocol {
	case unix.IPPROTO_TCP:
		s.refusal = raw[13]&4 != 0
	case unix.IPPROTO_SCTP:
		const abort = 6
		s.refusal = len(raw) > 12 && raw[12] == abort
	case unix.IPPROTO_UDP:
	case unix.IPPROTO_ICMP:
		const unreachable = 3
		s.src, s.dst, s.refusal = netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0), raw[0] == unreachable
		return s, s.refusal || raw[0] == icmpEchoReply
	case unix.IPPROTO_ICMPV6:
		const unreachable = 1
		s.src, s.dst, s.refusal = netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0), raw[0] == unreachable
		return s, s.refusal
	default:
		return s, false
	}
	s.src, s.dst = netip.AddrPortFrom(src, port(0)), netip.AddrPortFrom(dst, port(2))
	return s, true
}
