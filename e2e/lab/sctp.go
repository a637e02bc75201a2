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

// sctpHeader is what stands before the text of a packet with one chunk, INIT or INIT ACK, that has one parameter.
type sctpHeader struct {
	Sport, Dport    uint16
	Vtag, Checksum  uint32 // the tag is that in the receiver's own INIT
	Chunk, Flags    uint8
	ChunkLen        uint16
	InitTag, Window uint32
	Out, In         uint16 // streams
	FirstTSN        uint32
	Param, ParamLen uint16
}

type sctpPacket struct {
	sctpHeader
	text []byte
}

func (p *sctpPacket) encode() []byte {
	h := p.sctpHeader
	h.ChunkLen, h.Window, h.Out, h.In, h.FirstTSN = uint16(sctpFixed-12+4+len(p.text)), 1<<16, 1, 1, p.InitTag
	h.Param, h.ParamLen = sctpCookie, uint16(4+len(p.text))
	b, _ := binary.Append(nil, binary.BigEndian, h) // all fields have a fixed size
	b = append(b, p.text...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func decodeSCTP(b []byte) (p sctpPacket, ok bool) {
	_, err := binary.Decode(b, binary.BigEndian, &p.sctpHeader)
	end := sctpFixed + int(p.ParamLen)
	if err != nil || p.ParamLen < 4 || end > len(b) {
		return p, false
	}
	p.text = b[sctpFixed+4 : end]
	return p, true
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
	header := sctpHeader{Sport: uint16(20000 + rand.IntN(40000)), Dport: to, Chunk: sctpInit, InitTag: rand.Uint32() | 1}
	return sctpPacket{sctpHeader: header}
}

// answer waits for the reply to a request.
func (p *sctpPacket) answer(conn *net.IPConn) ([]byte, error) {
	for {
		got, _, ok, err := receiveSCTP(conn)
		if err != nil {
			return nil, err
		}
		if ok && got.Chunk == sctpInitAck && got.Dport == p.Sport && got.Vtag == p.InitTag {
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
