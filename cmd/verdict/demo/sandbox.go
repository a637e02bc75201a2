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

const (
	// signalAgain is the time after which a signal to the stage is repeated, because the stage may not have been ready
	// for the first one.
	signalAgain = 200 * time.Millisecond
	// endWithin is how long the stage may take to end before it is killed.
	endWithin = 5 * time.Second
)

// runOutside starts the stage and waits until it ends.
func runOutside(ctx context.Context, scene string, out, errOut io.Writer) error {
	// The kernel sends Pdeathsig when the thread that started the child ends. So this thread must live as long as the
	// process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	cmd, err := startStage(scene, out, errOut)
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
		// A signal may have ended the context. It decides about the exit code.
		select {
		case s := <-signals:
			return interrupted(s)
		case <-time.After(signalAgain):
			return interrupted(os.Interrupt)
		}
	}
}

// startStage starts this program again in namespaces of its own. If this process is not root, it starts the program as
// root of a user namespace.
func startStage(scene string, out, errOut io.Writer) (*exec.Cmd, error) {
	outside, err := os.Readlink(mountNamespace)
	if err != nil {
		return nil, fmt.Errorf("demo: find the mount namespace of this process: %w; is /proc mounted?", err)
	}
	var refused []error
	if mayMakeNamespaces() {
		cmd := stageCommand(outside, scene, false, out, errOut)
		if err = cmd.Start(); err == nil {
			return cmd, nil
		}
		refused = append(refused, fmt.Errorf("as root: %w", reason(err)))
	}
	cmd := stageCommand(outside, scene, true, out, errOut)
	if err = cmd.Start(); err == nil {
		return cmd, nil
	}
	refused = append(refused, fmt.Errorf("in a user namespace: %w", reason(err)))
	return nil, fmt.Errorf("demo: cannot create network namespaces (%w); run it as root, or allow user namespaces "+
		"(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)", errors.Join(refused...))
}

// reason returns the error number of the kernel, if an error of exec has one.
func reason(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// mayMakeNamespaces reports whether this process is root and has the capabilities, which root in a container may lack.
func mayMakeNamespaces() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	const need = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_NET_ADMIN
	return os.Geteuid() == 0 && unix.Capget(&header, &data[0]) == nil && data[0].Effective&need == need
}

func stageCommand(outside, scene string, rootless bool, out, errOut io.Writer) *exec.Cmd {
	cmd := exec.Command(ownProgram, "demo", stageName, "--outside", outside, "--scene", scene)
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

// ownProgram is the path of this binary. It works even if the binary is in the folder for temporary files, where "go
// run" puts it and which the stage hides.
const ownProgram = "/proc/self/exe"

// endStage stops the stage and waits until it has ended.
func endStage(p *os.Process, ended <-chan struct{}) {
	again := time.NewTicker(signalAgain)
	defer again.Stop()
	late := time.After(endWithin)
	for {
		// Signal returns an error only if the process has ended, which is the goal.
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

// stageError returns the error for the way in which the stage ended. The stage prints its own errors, unless it is
// killed.
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
