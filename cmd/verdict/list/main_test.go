package list

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The tests work on the real kernel, in network namespaces that they make. As an ordinary user the test binary starts
// itself again in a user namespace, where it may do that.

// inUserNamespace is set in the environment of the second start.
const inUserNamespace = "VERDICT_TEST_IN_USER_NAMESPACE"

func TestMain(m *testing.M) {
	if mayMakeNamespaces() {
		os.Exit(m.Run())
	}
	if os.Getenv(inUserNamespace) != "" {
		fmt.Fprintln(os.Stderr, "cannot make a network namespace, not even inside a user namespace of its own; run the tests as root")
		os.Exit(1)
	}
	os.Exit(startAgain())
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
