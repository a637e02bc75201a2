package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// System calls of the daemon fail by a seccomp filter with a listener: the kernel asks this program about each sendto
// and recvfrom of the daemon. The daemon uses both for netlink only. It knows nothing of this, and nothing in it exists
// for this.
//
// This program starts itself on the way (see become): the filter must be in place before verdict begins.

// becomeWord is the first argument of this program when it is to become verdict.
const becomeWord = "become"

// become installs the filter, hands its listener to the socket of the first argument, and becomes the command that
// follows.
func become(args []string) error {
	runtime.LockOSThread() // the filter is of this thread, which execve keeps
	listener, err := installFilter()
	if err != nil {
		return fmt.Errorf("install a seccomp filter: %w", err)
	}
	conn, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	unixConn := conn.(*net.UnixConn)
	if _, _, err := unixConn.WriteMsgUnix([]byte("."), unix.UnixRights(listener), nil); err != nil {
		return fmt.Errorf("hand over the listener: %w", err)
	}
	if _, err := unixConn.Read(make([]byte, 1)); err != nil { // somebody listens from here on
		return fmt.Errorf("wait for the answer: %w", err)
	}
	return unix.Exec(args[1], args[1:], os.Environ())
}

// installFilter has the kernel ask about sendto and recvfrom of this thread.
func installFilter() (listener int, err error) {
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 4}, // the number of the system call
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_SENDTO, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_RECVFROM, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
		bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF},
	})
	if err != nil {
		return 0, err
	}
	filter := make([]unix.SockFilter, len(program))
	for i, p := range program {
		filter[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	fprog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER,
		uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}

// injector answers the kernel's questions about system calls of one daemon.
type injector struct {
	listener  int
	pid       int // of the daemon
	pidfd     int
	share     atomic.Int64 // how many of a thousand calls fail
	injected  atomic.Int64
	shortened atomic.Int64 // calls of these that read a part of a datagram
	ended     chan struct{}
}

// question and answer are struct seccomp_notif and struct seccomp_notif_resp of the kernel.
type question struct {
	id    uint64
	pid   uint32
	flags uint32
	data  struct {
		number  int32
		arch    uint32
		pointer uint64
		args    [6]uint64
	}
}

type answer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// startInjected starts the daemon under an injector.
func (b *bed) startInjected() (*injector, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	path := filepath.Join(b.options.logs, "seccomp.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for a seccomp listener: %w", err)
	}
	defer l.Close() // removes the file, too
	if err := b.daemon.start(self, becomeWord, path); err != nil {
		return nil, err
	}
	if err := l.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, err
	}
	conn, err := l.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("wait for a seccomp listener: %w", err)
	}
	defer conn.Close()
	listener, err := receiveDescriptor(conn)
	if err != nil {
		return nil, err
	}
	i := &injector{listener: listener, pid: b.daemon.running().PID(), ended: make(chan struct{})}
	if i.pidfd, err = unix.PidfdOpen(i.pid, 0); err != nil {
		return nil, fmt.Errorf("open the daemon's process: %w", errors.Join(err, unix.Close(listener)))
	}
	go i.run()
	_, err = conn.Write([]byte("."))
	return i, err
}

func receiveDescriptor(conn *net.UnixConn) (int, error) {
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), control)
	if err != nil {
		return 0, fmt.Errorf("receive a seccomp listener: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		return 0, fmt.Errorf("receive a seccomp listener: %d messages, %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return 0, fmt.Errorf("receive a seccomp listener: %d descriptors, %w", len(fds), err)
	}
	return fds[0], nil
}

// run answers until the daemon has ended.
func (i *injector) run() {
	defer close(i.ended)
	defer unix.Close(i.listener)
	defer unix.Close(i.pidfd)
	for {
		fds := []unix.PollFd{{Fd: int32(i.listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
			continue
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			return // POLLHUP: nobody uses the filter any more
		}
		var q question
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(i.listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&q))); errno != 0 {
			continue // the thread was interrupted, and asks again
		}
		a := answer{id: q.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if rand.Int64N(1000) < i.share.Load() {
			a = i.failure(&q)
		}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(i.listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a)))
	}
}

// failure chooses how a call fails. The kernel itself interrupts no call on these sockets, since none waits, and answers
// with ERESTART only where a batch names a generation; sends get both because nothing may depend on that. A receiver that
// is interrupted would wait for the next datagram, with this one in its socket: that is how polling works, and so EINTR is
// not among its errors. EBADF says that the socket is lost.
func (i *injector) failure(q *question) answer {
	list := []syscall.Errno{unix.ENOBUFS, unix.ERESTART, unix.EBADF}
	switch {
	case q.data.number == unix.SYS_SENDTO:
		list = append(list, unix.EINTR, unix.ENOMEM, unix.EPERM)
	case rand.IntN(2) == 0:
		if a, done := i.shortRead(q); done {
			return a
		}
	}
	i.injected.Add(1)
	return answer{id: q.id, errno: -int32(list[rand.IntN(len(list))])}
}

// systemCallsFail starts the daemon anew, and lets a part of its netlink calls fail for a while.
func (b *bed) systemCallsFail(r *rand.Rand) (func() error, error) {
	if err := b.daemon.stop(); err != nil {
		return nil, err
	}
	i, err := b.startInjected()
	if err != nil {
		return nil, err
	}
	share := oneOf(r, int64(20), 100, 300)
	p := b.daemon.running()
	for end := time.Now().Add(claimPatience); p != nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if b.daemon.passed(p) {
			break // it has started; an error at the start would rightly end it
		}
	}
	i.share.Store(share)
	b.failing = true
	return func() error {
		pause(r, time.Second)
		i.share.Store(0)
		b.failing = false
		b.injected += i.injected.Load()
		b.shortened += i.shortened.Load()
		return nil
	}, nil
}
