package inject

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// BecomeWord is the first argument of a program that is to call Become.
const BecomeWord = "become"

// listenerFD is the descriptor of the filter's listener in the process. No other one has such a high number.
const listenerFD = 500

// Become installs the filter and becomes a command. The filter must be in place before that command begins, so the program that
// injects starts itself for this.
func Become(command []string) error {
	runtime.LockOSThread() // the filter is of this thread, which execve keeps
	listener, err := installFilter()
	if err == nil {
		err = unix.Dup3(listener, listenerFD, 0)
	}
	if err != nil {
		return fmt.Errorf("install a seccomp filter: %w", err)
	}
	return unix.Exec(command[0], command, os.Environ())
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

// Injector answers the kernel's questions about system calls of one process.
type Injector struct {
	listener  int
	pid       int
	pidfd     int
	share     atomic.Int64
	failed    atomic.Int64
	shortened atomic.Int64
}

// Fail sets how many of a thousand calls fail from now on.
func (i *Injector) Fail(share int64) { i.share.Store(share) }

// Count returns how many calls failed, and how many of these read a part of a datagram.
func (i *Injector) Count() (failed, shortened int64) { return i.failed.Load(), i.shortened.Load() }

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

// startPatience is how long a process may take to install the filter.
const startPatience = 10 * time.Second

// Start has a function start this program with the arguments that it gets before a command. The process becomes that
// command, under an injector. Its calls wait until the injector answers.
func Start(start func(before ...string) (pid int, err error)) (*Injector, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	i := &Injector{}
	if i.pid, err = start(self, BecomeWord); err != nil {
		return nil, err
	}
	if i.pidfd, err = unix.PidfdOpen(i.pid, 0); err != nil {
		return nil, fmt.Errorf("open the process: %w", err)
	}
	for end := time.Now().Add(startPatience); ; time.Sleep(5 * time.Millisecond) {
		if i.listener, err = unix.PidfdGetfd(i.pidfd, listenerFD, 0); err == nil {
			go i.run()
			return i, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("take the listener of the filter: %w", errors.Join(err, unix.Close(i.pidfd)))
		}
	}
}

// run answers until the process has ended.
func (i *Injector) run() {
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
// not among its errors.
func (i *Injector) failure(q *question) answer {
	list := []syscall.Errno{unix.ENOBUFS, unix.ERESTART}
	switch {
	case q.data.number == unix.SYS_SENDTO:
		list = append(list, unix.EINTR, unix.ENOMEM, unix.EPERM)
	case rand.IntN(2) == 0:
		if a, done := i.shortRead(q); done {
			return a
		}
	}
	i.failed.Add(1)
	return answer{id: q.id, errno: -int32(list[rand.IntN(len(list))])}
}
