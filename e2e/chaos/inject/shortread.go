package inject

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shortRead reads a datagram of the process's netlink socket in its place, and hands over only its first part. The rest is
// lost, as if its buffer were too small: a message ends in its middle. It returns false when the socket is of
// another kind.
func (i *Injector) shortRead(q *question) (answer, bool) {
	fd, err := unix.PidfdGetfd(i.pidfd, int(q.data.args[0]), 0)
	if err != nil {
		return answer{}, false
	}
	defer unix.Close(fd)
	if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain != unix.AF_NETLINK {
		return answer{}, false
	}
	buffer := make([]byte, q.data.args[2])
	n, from, err := unix.Recvfrom(fd, buffer, int(q.data.args[3])|unix.MSG_DONTWAIT)
	var errno unix.Errno
	if errors.As(err, &errno) {
		return answer{id: q.id, errno: -int32(errno)}, true // EAGAIN: nothing has come
	}
	if n > 4 {
		n = rand.IntN(n/4)*4 + 2 // never at the end of a message: messages are aligned to 4 bytes
	}
	if err := i.fill(q, buffer[:n], from); err != nil {
		return answer{id: q.id, errno: -int32(unix.ENOBUFS)}, true // the datagram is lost
	}
	i.failed.Add(1)
	i.shortened.Add(1)
	return answer{id: q.id, value: int64(n)}, true
}

// fill writes what recvfrom would have written into the memory of the process: the data, the address of the sender, and the
// length of the address.
func (i *Injector) fill(q *question, data []byte, from unix.Sockaddr) error {
	pointers := q.data.args
	if err := i.poke(uintptr(pointers[1]), data); err != nil || pointers[4] == 0 || pointers[5] == 0 {
		return err
	}
	sender := unix.RawSockaddrNetlink{Family: unix.AF_NETLINK}
	if nl, ok := from.(*unix.SockaddrNetlink); ok {
		sender.Pid, sender.Groups = nl.Pid, nl.Groups
	}
	length := uint32(unix.SizeofSockaddrNetlink)
	if err := i.poke(uintptr(pointers[4]), bytesOf(&sender)); err != nil {
		return err
	}
	return i.poke(uintptr(pointers[5]), bytesOf(&length))
}

// poke writes into the memory of the process.
func (i *Injector) poke(at uintptr, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &data[0], Len: uint64(len(data))}}
	n, err := unix.ProcessVMWritev(i.pid, local, []unix.RemoteIovec{{Base: at, Len: len(data)}}, 0)
	if err == nil && n != len(data) {
		err = fmt.Errorf("%d of %d bytes written", n, len(data))
	}
	return err
}

// bytesOf is the memory of a value.
func bytesOf[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }
