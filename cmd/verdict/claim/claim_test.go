//go:build !nokernel

package claim

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"

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
				c, err := Take(t.Context(), 0, slog.New(slog.NewTextHandler(&log, nil)))
				if err != nil {
					return err
				}
				if !strings.Contains(log.String(), "going on without it") {
					t.Errorf("log %q", log.String())
				}
				if _, err := Take(t.Context(), 0, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another process of Verdict") {
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
		if _, err := Take(t.Context(), 0, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another process of Verdict") {
			t.Errorf("error %v", err)
		}
		return nil
	})
}
