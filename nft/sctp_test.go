package nft

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// SCTP by hand over raw sockets, because many kernels have connection tracking for it but not the protocol itself: the
// client sends INIT, the pod answers INIT ACK with its text as a parameter. Where the kernel does have the protocol, it
// would answer ABORT at the same time; a rule in the pods and clients keeps that back.

const (
	sctpInit    = 1
	sctpInitAck = 2
)

// sctpPacket is a packet with one chunk: INIT or INIT ACK.
type sctpPacket struct {
	sport, dport uint16
	vtag         uint32 // what the receiver asked for in its own INIT
	chunk        uint8
	initTag      uint32
	text         []byte
}

const sctpFixed = 12 + 4 + 16 // common header, chunk header, fixed part of INIT

func (p sctpPacket) encode() []byte {
	b := make([]byte, sctpFixed+4, sctpFixed+4+len(p.text)+3)
	binary.BigEndian.PutUint16(b, p.sport)
	binary.BigEndian.PutUint16(b[2:], p.dport)
	binary.BigEndian.PutUint32(b[4:], p.vtag)
	b[12] = p.chunk
	binary.BigEndian.PutUint16(b[14:], uint16(4+16+4+len(p.text)))
	binary.BigEndian.PutUint32(b[16:], p.initTag)
	binary.BigEndian.PutUint32(b[20:], 1<<16)   // window
	binary.BigEndian.PutUint32(b[24:], 1<<16|1) // one stream each way
	binary.BigEndian.PutUint32(b[28:], p.initTag)
	// The text is an optional parameter (a cookie).
	binary.BigEndian.PutUint16(b[32:], 7)
	binary.BigEndian.PutUint16(b[34:], uint16(4+len(p.text)))
	b = append(b, p.text...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func decodeSCTP(b []byte) (p sctpPacket, ok bool) {
	if len(b) < sctpFixed+4 {
		return p, false
	}
	text := int(binary.BigEndian.Uint16(b[34:]))
	if text < 4 || sctpFixed+text > len(b) {
		return p, false
	}
	return sctpPacket{
		sport: binary.BigEndian.Uint16(b), dport: binary.BigEndian.Uint16(b[2:]), vtag: binary.BigEndian.Uint32(b[4:]),
		chunk: b[12], initTag: binary.BigEndian.Uint32(b[16:]), text: b[sctpFixed+4 : sctpFixed+text],
	}, true
}

// rawSocket opens an SCTP socket of a family; in IPv4 what it receives starts with the IP header.
func rawSocket(f Family) (int, error) {
	domain := unix.AF_INET
	if f == IPv6 {
		domain = unix.AF_INET6
	}
	return unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
}

func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Addr: a.As16()}
}

func addrOf(sa unix.Sockaddr) netip.Addr {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(sa.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(sa.Addr)
	}
	return netip.Addr{}
}

// receiveSCTP reads until a packet is whole.
func receiveSCTP(fd int) (p sctpPacket, from netip.Addr, err error) {
	buf := make([]byte, 2000)
	for {
		n, sa, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return p, from, err
		}
		if n == 0 {
			return p, from, io.EOF // shut down
		}
		b, from := buf[:n], addrOf(sa)
		if from.Is4() && n > 20 {
			b = b[int(b[0]&15)*4:]
		}
		if p, ok := decodeSCTP(b); ok {
			return p, from, nil
		}
	}
}

func (n *namespace) serveSCTP(t testing.TB, name string, f Family) {
	t.Helper()
	n.load(t, "add table inet test; add chain inet test out { type filter hook output priority 0; }; "+
		"add rule inet test out meta l4proto sctp @th,96,8 6 drop")
	var fd int
	n.Do(t, func() (err error) {
		fd, err = rawSocket(f)
		return err
	})
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = unix.Shutdown(fd, unix.SHUT_RD) // wakes the reader; ENOTCONN although it does
		<-ended
		unix.Close(fd)
	})
	go func() {
		defer close(ended)
		for {
			p, from, err := receiveSCTP(fd)
			if err != nil {
				return
			}
			if p.chunk != sctpInit || p.dport < firstPodPort || p.dport >= firstPodPort+podPorts {
				continue
			}
			text := answer{name, p.dport, from}.encode()
			reply := sctpPacket{sport: p.dport, dport: p.sport, vtag: p.initTag, chunk: sctpInitAck, initTag: 1, text: text}
			_ = unix.Sendto(fd, reply.encode(), 0, sockaddr(from))
		}
	}()
}

// askSCTP sends INIT and waits for INIT ACK. The socket is connected, so that it hears of ICMP errors.
func askSCTP(from netip.Addr, to netip.AddrPort, patience time.Duration) ([]byte, error) {
	fd, err := rawSocket(FamilyOf(to.Addr()))
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if from.IsValid() {
		if err := unix.Bind(fd, sockaddr(from)); err != nil {
			return nil, err
		}
	}
	if err := unix.Connect(fd, sockaddr(to.Addr())); err != nil {
		return nil, err
	}
	wait := unix.NsecToTimeval(patience.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return nil, err
	}
	p := sctpPacket{sport: uint16(20000 + rand.IntN(40000)), dport: to.Port(), chunk: sctpInit, initTag: rand.Uint32() | 1}
	if _, err := unix.Write(fd, p.encode()); err != nil {
		return nil, err
	}
	for {
		got, _, err := receiveSCTP(fd)
		if err != nil {
			return nil, err
		}
		if got.chunk == sctpInitAck && got.dport == p.sport && got.vtag == p.initTag {
			return got.text, nil
		}
	}
}
