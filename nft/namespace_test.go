package nft

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// namespace is a network namespace without a name: it is gone when its last user is, even if the tests crash.
type namespace struct {
	file *os.File
}

func newNamespace(t testing.TB) *namespace {
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
		t.Fatalf("make a network namespace: %v", r.err)
	}
	n := &namespace{file: r.file}
	t.Cleanup(func() { r.file.Close() })
	n.do(t, func() error { return linkUp("lo") })
	return n
}

// run calls fn on a thread inside the namespace. Sockets that fn opens stay in the namespace.
func (n *namespace) run(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}

func (n *namespace) do(t testing.TB, fn func() error) {
	t.Helper()
	if err := n.run(fn); err != nil {
		t.Fatal(err)
	}
}

// command runs a program inside the namespace. Its output goes to a file, because nft writes a few bytes at a time and
// a pipe would wake us up for each of them.
func (n *namespace) command(stdin, name string, args ...string) (string, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("make a file for the output of %s: %w", name, err)
	}
	out := os.NewFile(uintptr(fd), name)
	defer out.Close()
	var errs bytes.Buffer
	err = n.run(func() error {
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

// must runs a program that has to succeed.
func (n *namespace) must(t testing.TB, stdin, name string, args ...string) string {
	t.Helper()
	out, err := n.command(stdin, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// nft runs the nft program (Debian package nftables).
func (n *namespace) nft(t testing.TB, args ...string) string {
	t.Helper()
	return n.must(t, "", "nft", args...)
}

// load has nft read a script.
func (n *namespace) load(t testing.TB, script string) {
	t.Helper()
	n.must(t, script, "nft", "-f", "-")
}

// list is the listing of both tables, and of others if there are any. While the kernel makes the hash table of a large
// set larger or smaller, it leaves out elements and repeats others; then two listings differ.
func (n *namespace) list(t testing.TB) string {
	t.Helper()
	for before := ""; ; time.Sleep(20 * time.Millisecond) {
		now := n.nft(t, "list", "ruleset")
		if now == before || len(now) < 1<<16 {
			return now
		}
		before = now
	}
}

// engine opens an engine in the namespace.
func (n *namespace) engine(t testing.TB) *Engine {
	t.Helper()
	e, err := Open(Options{NetNS: int(n.file.Fd())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func linkUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	return netlink.LinkSetUp(link)
}

// mustApply hands the collected changes to the kernel.
func mustApply(t testing.TB, e *Engine) Result {
	t.Helper()
	r, err := e.Apply()
	if err != nil {
		t.Fatalf("apply: %s: %v", r.Outcome, err)
	}
	return r
}

func mustSet(t testing.TB, e *Engine, ports ...Port) {
	t.Helper()
	for i := range ports {
		if err := e.Set(&ports[i]); err != nil {
			t.Fatal(err)
		}
	}
}
