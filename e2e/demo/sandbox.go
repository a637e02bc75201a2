package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const mountNamespace = "/proc/self/ns/mnt"

// atMost is far more than the demo needs, also on a busy machine.
const atMost = 3 * time.Minute

// inside is the argument of the process inside.
const inside = "inside"

// runOutside starts the demo inside namespaces and waits until it ends. A signal kills it.
func runOutside(ctx context.Context, verdict string) error {
	// The kernel sends Pdeathsig when the thread that started the child ends, so this thread must live as long as the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	cmd, err := startInside(ctx, verdict)
	if err != nil {
		return err
	}
	err = cmd.Wait()
	exit, _ := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return interrupted(context.Cause(ctx))
	case exit != nil && exit.Exited():
		return exitError{nil, exit.ExitCode()} // it has printed its error
	}
	return fmt.Errorf("ended early: %w; nothing of it is left", err)
}

// interrupted is the error after a signal, with the exit code of shells: 128 plus its number. The cause of
// signal.NotifyContext names the signal.
func interrupted(cause error) error {
	if errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("not finished within %v; nothing of it is left", atMost)
	}
	sig := syscall.SIGINT
	if cause.Error() == syscall.SIGTERM.String()+" signal received" {
		sig = syscall.SIGTERM
	}
	return exitError{errors.New("interrupted; nothing of it is left"), 128 + int(sig)}
}

// startInside starts this program again in namespaces of its own. If root of this machine may not make them, or if this process
// is not root, it starts the program as root of a user namespace.
func startInside(ctx context.Context, verdict string) (*exec.Cmd, error) {
	outside, _ := os.Readlink(mountNamespace) // without /proc the start fails too
	var refused []error
	for _, how := range []string{"as root", "without root, in a user namespace"} {
		attr := &syscall.SysProcAttr{
			Cloneflags:   unix.CLONE_NEWNET | unix.CLONE_NEWPID,
			Unshareflags: unix.CLONE_NEWNS, // this also makes its mounts invisible outside
			Pdeathsig:    unix.SIGKILL,
			Setsid:       true, // Ctrl-C in a terminal reaches the process outside only
		}
		switch {
		case how != "as root":
			attr.Cloneflags |= unix.CLONE_NEWUSER
			attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
			attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		case os.Geteuid() != 0:
			continue
		}
		cmd := exec.CommandContext(ctx, "/proc/self/exe", verdict, inside, outside, how)
		cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdout, os.Stderr, attr
		err := cmd.Start()
		if err == nil {
			return cmd, nil
		}
		refused = append(refused, fmt.Errorf("%s: %w", how, err))
	}
	return nil, fmt.Errorf("cannot create network namespaces (%w); run it as root, or allow user namespaces "+
		"(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)", errors.Join(refused...))
}

// enter returns an error if this process runs in the namespaces of the machine, which the demo must not change. Otherwise it
// creates a folder that only this process and its children see, and that disappears when they end. It returns a path of
// verdict that is valid even if verdict is in the folder for temporary files, which the new one hides.
func enter(verdict, outside string) (program, dir string, err error) {
	if own, err := os.Readlink(mountNamespace); err != nil || os.Getpid() != 1 || outside == "" || outside == own {
		return "", "", errors.New("only the demo itself may start the process inside; " + usage)
	}
	file, err := unix.Open(verdict, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", "", fmt.Errorf("open %s: %w; nothing was changed", verdict, err)
	}
	temp := os.TempDir()
	if err := unix.Mount("tmpfs", temp, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=700,size=16m"); err != nil {
		return "", "", fmt.Errorf("mount a private folder over %s: %w; nothing was changed", temp, err)
	}
	dir = filepath.Join(temp, "manifests")
	return fmt.Sprint("/proc/self/fd/", file), dir, os.Mkdir(dir, 0o700)
}
