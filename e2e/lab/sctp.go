package lab

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// SCTP by hand over raw sockets, because many kernels have connection tracking for it but not the protocol itself. The
// client sends INIT; the pod answers INIT ACK, with its answer as a parameter. A kernel that has the protocol would
// also answer ABORT; a rule in the namespaces of pods drops that.
const (
	sctpInit    = 1
	sctpInitAck = 2
	sctpFixed   = 12 + 4 + 16 // common header, chunk header, fixed part of INIT
	sctpCookie  = 7           // type of the parameter that carries the answer

	dropAborts = "add table inet lab\n" +
		"add chain inet lab out { type filter hook output priority 0; }\n" +
		"add rule inet lab out meta l4proto sctp @th,96,8 6 drop\n"
)

// sctpPacket is a packet with one chunk, INIT or INIT ACK.
type sctpPacket struct {
	sport, dport uint16
	vtag         uint32 // the tag in the receiver's own INIT
	chunk        uint8
	initTag      uint32
	text         []byte
}

func (p *sctpPacket) encode() []byte {
	b := make([]byte, sctpFixed+4, sctpFixed+4+len(p.text)+3)
	binary.BigEndian.PutUint16(b, p.sport)
	binary.BigEndian.PutUint16(b[2:], p.dport)
	binary.BigEndian.PutUint32(b[4:], p.vtag)
	b[12] = p.chunk
	binary.BigEndian.PutUint16(b[14:], uint16(sctpFixed-12+4+len(p.text)))
	binary.BigEndian.PutUint32(b[16:], p.initTag)
	binary.BigEndian.PutUint32(b[20:], 1<<16)   // window
	binary.BigEndian.PutUint32(b[24:], 1<<16|1) // one stream each way
	binary.BigEndian.PutUint32(b[28:], p.initTag)
	binary.BigEndian.PutUint16(b[32:], sctpCookie)
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

func domain(f Family) int {
	if f == IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// rawSCTP is the network of raw sockets for SCTP, as package net has it.
const rawSCTP = "ip:132"

// receiveSCTP reads one packet; ok reports whether it is one of these.
func receiveSCTP(conn *net.IPConn) (p sctpPacket, from netip.Addr, ok bool, err error) {
	buf := make([]byte, 2000)
	n, sender, err := conn.ReadFromIP(buf)
	if err != nil {
		return p, from, false, err
	}
	p, ok = decodeSCTP(buf[:n])
	return p, addrOf(sender), ok, nil
}

// newInit is a request to a port.
func newInit(to uint16) sctpPacket {
	return sctpPacket{sport: uint16(20000 + rand.IntN(40000)), dport: to, chunk: sctpInit, initTag: rand.Uint32() | 1}
}

// answers reports whether a packet is the reply to a request.
func (p *sctpPacket) answers(request *sctpPacket) bool {
	return p.chunk == sctpInitAck && p.dport == request.sport && p.vtag == request.initTag
}

// answer waits for the reply to a request.
func (p *sctpPacket) answer(conn *net.IPConn) ([]byte, error) {
	for {
		got, _, ok, err := receiveSCTP(conn)
		if err != nil {
			return nil, err
		}
		if ok && got.answers(p) {
			return got.text, nil
		}
	}
}

// listenKernelSCTP listens at one address, in the namespace of the calling thread. An association then uses no other
// address of the server. Package net has no SCTP, but it serves a listening socket of SCTP as one of TCP: both are
// streams with the same system calls.
func listenKernelSCTP(at netip.AddrPort) (net.Listener, error) {
	f, err := kernelSCTP(FamilyOf(at.Addr()), at)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the listener has a copy
	if err := unix.Listen(int(f.Fd()), 64); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	return net.FileListener(f)
}

// kernelSCTP opens a socket of the kernel's own implementation, at an address unless that is zero.
func kernelSCTP(f Family, own netip.AddrPort) (*os.File, error) {
	fd, err := unix.Socket(domain(f), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return nil, fmt.Errorf("open an SCTP socket (the kernel needs module sctp): %w", err)
	}
	if own.Addr().IsValid() {
		if err := unix.Bind(fd, sockaddr(own)); err != nil {
			return nil, errors.Join(os.NewSyscallError("bind", err), unix.Close(fd))
		}
	}
	return os.NewFile(uintptr(fd), "sctp"), nil
}

// dialKernelSCTP connects with the kernel's own implementation.
func dialKernelSCTP(ctx context.Context, q Question) (net.Conn, error) {
	f, err := kernelSCTP(FamilyOf(q.To.Addr()), netip.AddrPortFrom(q.From, 0))
	if err != nil {
		return nil, err
	}
	defer f.Close() // the connection has a copy
	socket, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	defer interrupt(ctx, f)()
	late := socket.Write(func(fd uintptr) bool {
		err = unix.Connect(int(fd), sockaddr(q.To))
		return !errors.Is(err, unix.EINPROGRESS) && !errors.Is(err, unix.EALREADY)
	})
	if late != nil || err != nil && !errors.Is(err, unix.EISCONN) {
		return nil, cmp.Or(late, err)
	}
	return net.FileConn(f)
}

// interrupt ends what waits for a socket when the context ends. The caller calls stop before that.
func interrupt(ctx context.Context, socket interface{ SetDeadline(time.Time) error }) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = socket.SetDeadline(time.Now()) }) // it fails only if the socket is closed
}
