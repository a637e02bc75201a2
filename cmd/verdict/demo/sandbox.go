package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
)

const mountNamespace = "/proc/self/ns/mnt"

// atMost is far more than the demo needs, also on a busy machine.
const atMost = 3 * time.Minute

// ownProgram is this binary, even if it is in the folder for temporary files, where "go run" puts it and which enter hides.
const ownProgram = "/proc/self/exe"

// runOutside starts the demo inside namespaces and waits until it ends. A signal kills it.
func runOutside(ctx context.Context, out, errOut io.Writer) error {
	// The kernel sends Pdeathsig when the thread that started the child ends, so this thread must live as long as the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	cmd, err := startInside(ctx, out, errOut)
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
		return flags.ExitError{Code: exit.ExitCode()} // it has printed its error
	}
	return fmt.Errorf("demo ended early: %w; nothing of it is left", err)
}

// interrupted is the error after a signal, with the exit code of shells: 128 plus its number. The cause of
// signal.NotifyContext names the signal.
func interrupted(cause error) error {
	if errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("demo: not finished within %v; nothing of it is left", atMost)
	}
	sig := syscall.SIGINT
	if cause.Error() == syscall.SIGTERM.String()+" signal received" {
		sig = syscall.SIGTERM
	}
	return flags.ExitError{Code: 128 + int(sig), Text: "demo interrupted; nothing of it is left"}
}

// startInside starts this program again in namespaces of its own. If root of this machine may not make them, or if this process
// is not root, it starts the program as root of a user namespace.
func startInside(ctx context.Context, out, errOut io.Writer) (*exec.Cmd, error) {
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
		cmd := exec.CommandContext(ctx, ownProgram, "demo", "--inside", outside, "--how", how)
		cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, errOut, attr
		err := cmd.Start()
		if err == nil {
			return cmd, nil
		}
		refused = append(refused, fmt.Errorf("%s: %w", how, err))
	}
	return nil, fmt.Errorf("demo: cannot create network namespaces (%w); run it as root, or allow user namespaces "+
		"(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)", errors.Join(refused...))
}

// enter returns an error if this process runs in the namespaces of the machine, which the demo must not change. Otherwise it
// creates a folder that only this process and its children see, and that disappears when they end.
func enter(outside string) (string, error) {
	if own, err := os.Readlink(mountNamespace); err != nil || os.Getpid() != 1 || outside == "" || outside == own {
		return "", errors.New(`this command works only when "verdict demo" starts it; run that instead`)
	}
	temp := os.TempDir()
	if err := unix.Mount("tmpfs", temp, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=700,size=16m"); err != nil {
		return "", fmt.Errorf("mount a private folder over %s: %w; nothing was changed", temp, err)
	}
	dir := filepath.Join(temp, "manifests")
	return dir, os.Mkdir(dir, 0o700)
}
