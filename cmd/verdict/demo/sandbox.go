package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How often a signal is repeated to the stage (it may have come before the stage could hear it), and how long the stage
// may take to end before it is killed.
const (
	signalAgain = 200 * time.Millisecond
	endWithin   = 5 * time.Second
)

// runOutside starts the stage and waits for its end.
func runOutside(ctx context.Context, out, errOut io.Writer) error {
	// The kernel sends Pdeathsig when the starting thread ends, not the process: this thread has to last.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	cmd, err := startStage(out, errOut)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		err = cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return stageError(err)
	case s := <-signals:
		endStage(cmd.Process, ended)
		return interrupted(s)
	case <-ctx.Done():
		endStage(cmd.Process, ended)
		// The same signal may have ended the context, and says which exit code is right.
		select {
		case s := <-signals:
			return interrupted(s)
		case <-time.After(signalAgain):
			return interrupted(os.Interrupt)
		}
	}
}

// startStage starts this program again in namespaces of its own: as root directly, else as root of a user namespace.
func startStage(out, errOut io.Writer) (*exec.Cmd, error) {
	outside, err := os.Readlink(mountNamespace)
	if err != nil {
		return nil, fmt.Errorf("demo: find the own mount namespace: %w; is /proc mounted?", err)
	}
	var refused []error
	if mayMakeNamespaces() {
		cmd := stageCommand(outside, false, out, errOut)
		if err = cmd.Start(); err == nil {
			return cmd, nil
		}
		refused = append(refused, fmt.Errorf("as root: %w", reason(err)))
	}
	cmd := stageCommand(outside, true, out, errOut)
	if err = cmd.Start(); err == nil {
		return cmd, nil
	}
	refused = append(refused, fmt.Errorf("in a user namespace: %w", reason(err)))
	return nil, fmt.Errorf("demo: cannot make network namespaces (%w); run it as root, or allow user namespaces "+
		"(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)", errors.Join(refused...))
}

// reason is the kernel's part of an error of exec.
func reason(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// mayMakeNamespaces says whether this process is root with the capabilities of root, which it may lack in a container.
func mayMakeNamespaces() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	const need = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_NET_ADMIN
	return os.Geteuid() == 0 && unix.Capget(&header, &data[0]) == nil && data[0].Effective&need == need
}

func stageCommand(outside string, rootless bool, out, errOut io.Writer) *exec.Cmd {
	cmd := exec.Command(ownProgram, "demo", stageName, "--outside", outside)
	cmd.Args[0] = os.Args[0]
	cmd.Stdout, cmd.Stderr = out, errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWNS,
		Pdeathsig:  unix.SIGKILL,
	}
	if rootless {
		cmd.Args = append(cmd.Args, "--rootless")
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return cmd
}

// ownProgram is this very binary, wherever it lies: the stage hides the folder for temporary files, where "go run" puts it.
const ownProgram = "/proc/self/exe"

// endStage stops the stage and waits for it.
func endStage(p *os.Process, ended <-chan struct{}) {
	again := time.NewTicker(signalAgain)
	defer again.Stop()
	late := time.After(endWithin)
	for {
		// An error says that it has ended, which is what we want.
		_ = p.Signal(os.Interrupt)
		select {
		case <-ended:
			return
		case <-late:
			_ = p.Kill()
		case <-again.C:
		}
	}
}

func interrupted(s os.Signal) error {
	code := ExitInterrupted
	if s == syscall.SIGTERM {
		code = 128 + int(syscall.SIGTERM)
	}
	return ExitError{Code: code, Text: "demo interrupted; nothing of it is left"}
}

// stageError tells how the stage ended. It has said itself what went wrong, unless it was killed.
func stageError(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.ExitCode() == ExitInterrupted:
		return interrupted(os.Interrupt)
	case errors.As(err, &exit) && exit.Exited():
		return ExitError{Code: exit.ExitCode()}
	}
	return fmt.Errorf("demo ended early: %w; nothing of it is left", err)
}
