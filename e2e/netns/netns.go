// Package netns gives tests network namespaces to work in: throw-away ones, on the real kernel, as root or as an ordinary
// user. It is for tests of any package; programs must not import it, and it imports nothing of this module.
//
// Namespaces in which processes live on, with links between them, are the matter of package lab.
package netns

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inUserNamespace is set in the environment when the test binary has started itself again.
const inUserNamespace = "VERDICT_TEST_IN_USER_NAMESPACE"

// Main runs the tests of a package that makes namespaces, for its TestMain. An ordinary user may make them in a user namespace
// only: there the test binary starts itself again.
func Main(m *testing.M) (code int) {
	if mayMakeNamespaces() {
		return m.Run()
	}
	if os.Getenv(inUserNamespace) != "" {
		fmt.Fprintln(os.Stderr, "cannot make a network namespace, not even inside a user namespace of its own; run the tests as root")
		return 1
	}
	return startAgain()
}

// mayMakeNamespaces tries it, on a thread that is thrown away afterwards.
func mayMakeNamespaces() bool {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		result <- unix.Unshare(unix.CLONE_NEWNET)
	}()
	return <-result == nil
}

func startAgain() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inUserNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	fmt.Fprintf(os.Stderr, "start the tests in a user namespace: %v; allow unprivileged user namespaces or run them as root\n", err)
	return 1
}

// Namespace is a network namespace without a name: it is gone when its last user is, even if the tests crash.
type Namespace struct {
	file *os.File
}

// New makes a namespace with its loopback up. It ends with the test.
func New(t testing.TB) *Namespace {
	t.Helper()
	n := Bare(t)
	n.Do(t, func() error { return LinkUp("lo") })
	return n
}

// Bare makes a namespace without any address, not even that of loopback. It ends with the test.
func Bare(t testing.TB) *Namespace {
	t.Helper()
	type result struct {
		file *os.File
		err  error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- result{err: err}
			return
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		made <- result{f, err}
	}()
	r := <-made
	if r.err != nil {
		t.Fatalf("make a network namespace (root is needed, in a user namespace at least): %v", r.err)
	}
	t.Cleanup(func() { r.file.Close() })
	return &Namespace{file: r.file}
}

// Fd is a file descriptor of the namespace, good until the test ends.
func (n *Namespace) Fd() int { return int(n.file.Fd()) }

// Run calls fn on a thread inside the namespace. Sockets that fn opens stay in the namespace.
func (n *Namespace) Run(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(n.Fd(), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// Do calls fn like Run; an error ends the test.
func (n *Namespace) Do(t testing.TB, fn func() error) {
	t.Helper()
	if err := n.Run(fn); err != nil {
		t.Fatal(err)
	}
}

// Command runs a program inside the namespace. Its output goes to a file, because nft writes a few bytes at a time and a
// pipe would wake us up for each of them.
func (n *Namespace) Command(stdin, name string, args ...string) (string, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("make a file for the output of %s: %w", name, err)
	}
	out := os.NewFile(uintptr(fd), name)
	defer out.Close()
	var errs bytes.Buffer
	err = n.Run(func() error {
		cmd := exec.Command(name, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), out, &errs
		return cmd.Run()
	})
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, errs.String())
	}
	text, err := io.ReadAll(io.NewSectionReader(out, 0, math.MaxInt64))
	return string(text), err
}

// Must runs a program that has to succeed.
func (n *Namespace) Must(t testing.TB, stdin, name string, args ...string) string {
	t.Helper()
	out, err := n.Command(stdin, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// LinkUp brings a link of the present namespace up.
func LinkUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	return netlink.LinkSetUp(link)
}
