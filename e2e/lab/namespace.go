package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace without a name: it is gone when its last user is, even if the tests crash.
type Namespace struct {
	Name  string // for messages
	file  *os.File
	calls chan func() // run by a thread that lives as long as the namespace
}

// NewNamespace makes a network namespace with its loopback up.
func NewNamespace(name string) (*Namespace, error) {
	n := &Namespace{Name: name, calls: make(chan func())}
	started := make(chan error)
	go n.live(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("make network namespace %s (root is needed): %w", name, err)
	}
	return n, n.linkUp("lo")
}

// live is the namespace's own thread. Processes are started by it, because the kernel kills them (Pdeathsig) when the
// thread that started them ends.
func (n *Namespace) live(started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		started <- err
		return
	}
	f, err := os.Open("/proc/thread-self/ns/net")
	n.file = f
	started <- err
	for call := range n.calls {
		call()
	}
}

// Close lets go of the namespace. The kernel removes it when its processes and sockets are gone.
func (n *Namespace) Close() error {
	close(n.calls)
	return n.file.Close()
}

// Do calls fn on a thread of its own inside the namespace. Sockets that fn opens stay in the namespace.
func (n *Namespace) Do(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace %s: %w", n.Name, err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// Start starts a process inside the namespace. It dies with the test.
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
	var out, errs bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := n.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return out.String(), fmt.Errorf("run %s %s in %s: %w: %s", name, strings.Join(args, " "), n.Name, err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// Sysctl writes settings such as "net.ipv4.ip_forward=1".
func (n *Namespace) Sysctl(settings ...string) error {
	return n.Do(func() error {
		var errs []error
		for _, s := range settings {
			name, value, ok := strings.Cut(s, "=")
			if !ok {
				return fmt.Errorf("sysctl %q has no value", s)
			}
			path := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
			errs = append(errs, os.WriteFile(path, []byte(value), 0))
		}
		return errors.Join(errs...)
	})
}
