package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inUserNamespace is set in the environment when the test binary has started itself again.
const inUserNamespace = "VERDICT_TEST_IN_USER_NAMESPACE"

// Main runs the tests of a package that makes namespaces. It is for the package's TestMain.
func Main(m *testing.M) (code int) { return Enter(m.Run) }

// Enter calls run where it may make namespaces. An ordinary user may make network namespaces only in a user namespace,
// so the test binary then starts itself again in one.
func Enter(run func() int) (code int) {
	n, err := makeBare("the tests")
	switch {
	case err == nil:
		_ = n.Close() // it was a try
		return run()
	case refused() || os.Getenv(inUserNamespace) != "":
		fmt.Fprintf(os.Stderr, "%v; run the tests as root\n", err)
		return 1
	}
	return startAgain()
}

func startAgain() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inUserNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = AsRoot(unix.CLONE_NEWNET)
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	fmt.Fprintf(os.Stderr, "start the tests in a user namespace: %v; allow user namespaces or run the tests as root\n", err)
	return 1
}

// AsRoot are the attributes of a process that is root of a user namespace of its own, and in further new namespaces
// such as unix.CLONE_NEWNET. An ordinary user may start such a process.
func AsRoot(namespaces uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | namespaces,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
}

// IsLinux returns the kernel's release, and whether that is a version of Linux or a later one.
func IsLinux(t testing.TB, major, minor int) (release string, reached bool) {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal("uname:", err)
	}
	release = unix.ByteSliceToString(u.Release[:])
	var is [2]int
	if _, err := fmt.Sscanf(release, "%d.%d", &is[0], &is[1]); err != nil {
		t.Fatalf("kernel version %q: %v", release, err)
	}
	return release, slices.Compare(is[:], []int{major, minor}) >= 0
}

// SkipBefore skips a test because the kernel lacks something that came with a version of Linux. Under that version and
// later ones, the test fails.
func SkipBefore(t testing.TB, major, minor int, what string) {
	t.Helper()
	release, reached := IsLinux(t, major, minor)
	if reached {
		t.Fatalf("Linux %s has no %s, but Linux %d.%d and later should have", release, what, major, minor)
	}
	t.Skipf("Linux %s has no %s; Linux %d.%d and later have", release, what, major, minor)
}

// New makes a namespace with its loopback link up. The namespace ends with the test.
func New(t testing.TB) *Namespace {
	t.Helper()
	n, err := Make(t.Name())
	return closing(t, n, err)
}

// Bare makes a namespace without any address, not even that of the loopback link. The namespace ends with the test.
func Bare(t testing.TB) *Namespace {
	t.Helper()
	n, err := makeBare(t.Name())
	return closing(t, n, err)
}

func closing(t testing.TB, n *Namespace, err error) *Namespace {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close network namespace %s: %v", n.Name, err)
		}
	})
	return n
}

// MustDo calls fn like Do. An error ends the test.
func (n *Namespace) MustDo(t testing.TB, fn func() error) {
	t.Helper()
	if err := n.Do(fn); err != nil {
		t.Fatal(err)
	}
}

// Must runs a program like Command, with a text as its input. A failure ends the test.
func (n *Namespace) Must(t testing.TB, stdin, name string, args ...string) string {
	t.Helper()
	out, err := n.command(stdin, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
