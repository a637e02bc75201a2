package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace without a name.
type Namespace struct {
	Name  string // for error messages
	file  *os.File
	calls chan func() // the namespace's own thread runs them
}

// errRefused is the answer of a build with the tag nokernel.
var errRefused = errors.New("this build has the tag nokernel, as in make check; " +
	"a test file that needs a network namespace begins with //go:build !nokernel")

// Make makes a namespace with its loopback link up. The caller closes it.
func Make(name string) (*Namespace, error) {
	n, err := makeBare(name)
	if err != nil {
		return nil, err
	}
	if err := n.SetUp("lo"); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// makeBare makes a namespace without any address, not even that of the loopback link.
func makeBare(name string) (*Namespace, error) {
	n := &Namespace{Name: name, calls: make(chan func())}
	started := make(chan error)
	go n.live(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("make network namespace %s: %w (it takes root, or root of a user namespace)", name, err)
	}
	return n, nil
}

// live is the namespace's own thread. It starts all processes of the namespace: the kernel kills a process (Pdeathsig)
// when the thread that started it ends.
func (n *Namespace) live(started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := unshare(); err != nil {
		started <- err
		return
	}
	f, err := os.Open("/proc/thread-self/ns/net")
	n.file = f
	started <- err
	if err != nil {
		return
	}
	for call := range n.calls {
		call()
	}
}

// refused reports whether this build has the tag nokernel.
func refused() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "-tags" && slices.Contains(strings.Split(s.Value, ","), "nokernel")
	})
}

// unshare moves the calling thread into a new network namespace.
func unshare() error {
	if refused() {
		return errRefused
	}
	return os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNET))
}

// Close gives the namespace up. Its processes die; the kernel removes it when its last socket is closed.
func (n *Namespace) Close() error {
	close(n.calls)
	return n.file.Close()
}

// Fd is a file descriptor of the namespace, valid until Close.
func (n *Namespace) Fd() int { return int(n.file.Fd()) }

// Do calls fn on a thread of its own inside the namespace. Sockets that fn opens stay in the namespace.
func (n *Namespace) Do(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(n.Fd(), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace %s: %w", n.Name, err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// DialContext connects from inside the namespace. It has the form that clients of HTTP ask for.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.Do(func() error {
		var d net.Dialer
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Start starts a process inside the namespace. The process dies with the namespace or with this program.
func (n *Namespace) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	done := make(chan error)
	n.calls <- func() { done <- cmd.Start() }
	return <-done
}

// Command runs a program inside the namespace to its end and returns what it printed.
func (n *Namespace) Command(name string, args ...string) (string, error) {
	return n.command("", name, args...)
}

// Load has the nft program (Debian package nftables) read a script inside the namespace.
func (n *Namespace) Load(script string) error {
	_, err := n.command(script, "nft", "-f", "-")
	return err
}

// command writes the output to a file in memory: nft prints a few bytes at a time, and each write to a pipe would wake
// this process up.
func (n *Namespace) command(stdin, name string, args ...string) (string, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("make a file for the output of %s: %w", name, err)
	}
	out := os.NewFile(uintptr(fd), name)
	defer out.Close()
	var errs bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, &errs
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	err = n.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	text, readErr := io.ReadAll(io.NewSectionReader(out, 0, math.MaxInt64))
	if err == nil {
		err = readErr
	}
	if err != nil {
		return string(text), fmt.Errorf("run %s %s in network namespace %s: %w: %s",
			name, strings.Join(args, " "), n.Name, err, strings.TrimSpace(errs.String()))
	}
	return string(text), nil
}

// Sysctl writes settings such as "net.ipv4.ip_forward=1".
func (n *Namespace) Sysctl(settings ...string) error {
	return n.Do(func() error {
		var errs []error
		for _, s := range settings {
			name, value, ok := strings.Cut(s, "=")
			err := errors.New("it has no value; write NAME=VALUE")
			if ok {
				err = os.WriteFile("/proc/sys/"+strings.ReplaceAll(name, ".", "/"), []byte(value), 0)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("set sysctl %s in network namespace %s: %w", s, n.Name, err))
			}
		}
		return errors.Join(errs...)
	})
}
