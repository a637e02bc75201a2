//go:build !nokernel

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// nobody is a user without rights.
const nobody = 65534

// squat binds the name of the claim in a namespace as a user, until the test ends. It listens there if backlog is not
// negative.
func squat(t *testing.T, ns *netns.Namespace, uid, backlog int) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: nobody else can use a thread of another user
		done <- func() error {
			if err := unix.Setns(ns.Fd(), unix.CLONE_NEWNET); err != nil {
				return err
			}
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				return fmt.Errorf("become user %d: %w", uid, errno)
			}
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = unix.Close(fd) })
			if err := unix.Bind(fd, &unix.SockaddrUnix{Name: claimName}); err != nil || backlog < 0 {
				return err
			}
			return unix.Listen(fd, backlog)
		}()
	}()
	err := <-done
	if errors.Is(err, syscall.EINVAL) {
		t.Skipf("the user namespace of this test has no other user: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestStrangerHasTheName: no user can keep Verdict from starting, and a second process of Verdict still waits.
func TestStrangerHasTheName(t *testing.T) {
	for name, backlog := range map[string]int{"binds": -1, "listens": 5, "listens without room": 0} {
		t.Run(name, func(t *testing.T) {
			ns := netns.New(t)
			squat(t, ns, nobody, backlog)
			ns.MustDo(t, func() error {
				var log strings.Builder
				c, err := claimNode(t.Context(), 0, slog.New(slog.NewTextHandler(&log, nil)))
				if err != nil {
					return err
				}
				if !strings.Contains(log.String(), "going on without it") {
					t.Errorf("log %q", log.String())
				}
				if _, err := claimNode(t.Context(), 0, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another process of Verdict") {
					t.Errorf("the second claim: error %v", err)
				}
				return c.Close()
			})
		})
	}
}

// TestEarlierVersionHasTheName: an earlier version of Verdict has only the name. It still counts.
func TestEarlierVersionHasTheName(t *testing.T) {
	netns.New(t).MustDo(t, func() error {
		l, err := net.Listen("unix", claimName)
		if err != nil {
			return err
		}
		defer l.Close()
		if _, err := claimNode(t.Context(), 0, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another process of Verdict") {
			t.Errorf("error %v", err)
		}
		return nil
	})
}

// TestAddressInUse: the daemon serves although somebody has the addresses of its listeners, and answers there when they are
// free. With --bind-address-hard-fail, it ends.
func TestAddressInUse(t *testing.T) {
	ns, dir := netns.New(t), t.TempDir()
	var taken net.Listener
	ns.MustDo(t, func() (err error) {
		taken, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	defer taken.Close()
	address := taken.Addr().String()
	failing := startDaemon(t, ns, dir, "--metrics-bind-address="+address, "--bind-address-hard-fail")
	if err := failing.cmd.Wait(); err == nil || !strings.Contains(failing.log.String(), "address already in use") {
		t.Errorf("with --bind-address-hard-fail: %v\n%s", err, failing.log)
	}
	d := runDaemon(t, ns, dir, "--metrics-bind-address="+address)
	d.wait(t, "trying again")
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		c, err := ns.DialContext(t.Context(), "tcp", address)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nobody answers at %s: %v\n%s", address, err, d.log)
		}
	}
}
