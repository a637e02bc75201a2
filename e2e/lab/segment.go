package lab

import (
	"encoding/binary"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// SendOutsideOfWindow sends a segment of a connection whose number is far ahead, from the namespace of the calling thread. What it
// acknowledges is right.
func SendOutsideOfWindow(c *net.TCPConn) error {
	sent, received, err := sequence(c)
	if err != nil {
		return err
	}
	src, dst := c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
	from, to := src.Addr().Unmap(), dst.Addr().Unmap()
	segment := make([]byte, 20)
	binary.BigEndian.PutUint16(segment, src.Port())
	binary.BigEndian.PutUint16(segment[2:], dst.Port())
	binary.BigEndian.PutUint32(segment[4:], sent+1<<28)
	binary.BigEndian.PutUint32(segment[8:], received)
	segment[12], segment[13], segment[14] = 5<<4, 0x10, 0xff // the length of the header, ACK, the window
	sum := uint32(0)
	for i, v := range append(append(append(from.AsSlice(), to.AsSlice()...), 0, unix.IPPROTO_TCP, 0, 20), segment...) {
		sum += uint32(v) << (8 * (1 - i%2))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(segment[16:], ^uint16(sum))
	domain, at := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte(to.AsSlice())})
	if to.Is6() {
		domain, at = unix.AF_INET6, &unix.SockaddrInet6{Addr: to.As16()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, segment, 0, at); err != nil {
		return fmt.Errorf("send a segment to %s: %w", to, err)
	}
	return nil
}

// sequence returns the numbers of the next bytes that an end of a connection sends and receives.
func sequence(c *net.TCPConn) (sent, received uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	const receiveQueue, sendQueue, offWithoutProbe = 1, 2, -1
	wrong := raw.Control(func(fd uintptr) {
		read := func(queue int) (n int) {
			if err == nil {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR_QUEUE, queue)
			}
			if err == nil {
				n, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
			}
			return n
		}
		if err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1); err != nil {
			return
		}
		received, sent = uint32(read(receiveQueue)), uint32(read(sendQueue))
		if off := unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, offWithoutProbe); err == nil {
			err = off
		}
	})
	if wrong != nil {
		err = wrong
	}
	return sent, received, err
}
