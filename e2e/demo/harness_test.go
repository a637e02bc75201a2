//go:build !nokernel

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// user is whoever starts the demo.
type user struct {
	name string
	attr func() *syscall.SysProcAttr
}

// nobody is a user that owns nothing.
const nobody = 65534

// users are root and an ordinary user. Tests that do not run as root take root of a user namespace for root.
func users() []user {
	asTestsRun := func() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
	if os.Geteuid() != 0 {
		return []user{{"root", rootOfUserNamespace}, {"ordinary user", asTestsRun}}
	}
	ordinary := func() *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return []user{{"root", asTestsRun}, {"ordinary user", ordinary}}
}

func rootOfUserNamespace() *syscall.SysProcAttr { return netns.AsRoot(0) }

// session is a running demo under observation. It can write no more than two lines ahead of what the test has read, and
// so is held where the test wants it to be, however busy the machine is.
type session struct {
	t      *testing.T
	cmd    *exec.Cmd
	temp   string // its TMPDIR
	out    *os.File
	output strings.Builder // read from out
	errs   bytes.Buffer
	traces *traces

	stop, watched chan struct{}
}

// tightPipe is a pipe that holds one write, the next one blocks: one page, one packet on it.
func tightPipe(t *testing.T) (read, write *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_DIRECT); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // for deadlines
		t.Fatal(err)
	}
	read, write = os.NewFile(uintptr(fds[0]), "output"), os.NewFile(uintptr(fds[1]), "output")
	t.Cleanup(func() { read.Close() })
	return read, write
}

// start runs the demo, or another program given by args, with the environment env besides.
func start(t *testing.T, u user, env []string, args ...string) *session {
	t.Helper()
	if len(args) == 0 {
		args = []string{demo(), binary}
	}
	s := &session{
		t: t, temp: filepath.Join(t.TempDir(), "tmp"),
		stop: make(chan struct{}), watched: make(chan struct{}), traces: newTraces(t),
	}
	if err := os.Mkdir(s.temp, 0o777); err != nil {
		t.Fatal(err)
	}
	openToAll(t, s.temp)
	s.cmd = exec.Command(args[0], args[1:]...)
	s.cmd.Dir = "/"
	s.cmd.Env = append(os.Environ(), append(env, "TMPDIR="+s.temp, "VERDICT="+binary, "DEMO="+demo())...)
	read, write := tightPipe(t)
	defer write.Close()
	s.out, s.cmd.Stdout, s.cmd.Stderr = read, write, &s.errs
	s.cmd.SysProcAttr = u.attr()
	s.cmd.SysProcAttr.Setpgid = true // as a shell does: Ctrl-C goes to this group
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("start the demo as %s: %v", u.name, err)
	}
	go s.watch()
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			s.signal(syscall.SIGKILL)
			s.cmd.Wait()
		}
	})
	return s
}

// openToAll lets an ordinary user into the folders that the test made.
func openToAll(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for up := filepath.Dir(dir); up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); errors.Is(err, fs.ErrPermission) {
			return // not the test's own folder
		}
	}
}

func (s *session) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Errorf("send %v to the demo: %v", sig, err)
	}
}

// until reads the output up to a text.
func (s *session) until(text string) {
	s.t.Helper()
	if err := s.out.SetReadDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	packet := make([]byte, os.Getpagesize())
	for !strings.Contains(s.output.String(), text) {
		n, err := s.out.Read(packet)
		s.output.Write(packet[:n])
		if err != nil {
			s.t.Fatalf("the demo did not say %q (%v):\n%s%s", text, err, s.output.String(), s.errs.String())
		}
	}
}

// end reads the rest, waits for the end and returns the exit code, -1 after a deadly signal.
func (s *session) end() int {
	s.t.Helper()
	if err := s.out.SetReadDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.Copy(&s.output, s.out); err != nil {
		s.t.Fatalf("the demo, or what it started, did not end (%v):\n%s", err, s.output.String())
	}
	var exit *exec.ExitError
	if err := s.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode()
}

// watch notes all namespaces of the demo's processes until it is told to stop.
func (s *session) watch() {
	defer close(s.watched)
	for {
		select {
		case <-s.stop:
			return
		case <-time.After(2 * time.Millisecond):
			for _, pid := range demoProcesses(s.temp) {
				s.traces.follow(pid)
			}
		}
	}
}

// untilNamespaces waits until a number of the demo's network namespaces have been seen.
func (s *session) untilNamespaces(n int) {
	s.t.Helper()
	for late := time.Now().Add(patience); s.traces.networks() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			s.t.Fatalf("the demo made %d network namespaces, want %d:\n%s", s.traces.networks(), n, s.output.String())
		}
	}
}

// signalStage sends a signal to the process inside.
func (s *session) signalStage(sig syscall.Signal) {
	s.t.Helper()
	s.signalChild(s.cmd.Process.Pid, sig)
}

// signalChild sends a signal to the child of a process of the demo.
func (s *session) signalChild(parent int, sig syscall.Signal) {
	s.t.Helper()
	if err := syscall.Kill(s.child(parent), sig); err != nil {
		s.t.Fatalf("send %v to a process of the demo: %v", sig, err)
	}
}

// child is the only child of a process of the demo.
func (s *session) child(parent int) int {
	s.t.Helper()
	for _, name := range demoProcesses(s.temp) {
		status, err := os.ReadFile("/proc/" + name + "/status")
		if err == nil && strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", parent)) {
			pid, _ := strconv.Atoi(name)
			return pid
		}
	}
	s.t.Fatalf("process %d of the demo has no child", parent)
	return 0
}
