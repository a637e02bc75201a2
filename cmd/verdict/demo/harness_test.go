package demo

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// binary is verdict, built once for all tests of this package.
var binary string

// fault is the environment variable that turns this test binary into a "verdict run" that fails in some way.
const fault = "VERDICT_TEST_FAULT"

func TestMain(m *testing.M) {
	if how := os.Getenv(fault); how != "" && len(os.Args) > 1 && (os.Args[1] == "run" || os.Args[1] == "render") {
		os.Exit(failingProxy(how))
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "verdict-demo-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// An ordinary user starts the binary, too.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary = filepath.Join(dir, "verdict")
	build := exec.Command("go", "build", "-o", binary, "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s\n", err, out)
		return 1
	}
	return m.Run()
}

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

func rootOfUserNamespace() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
}

// session is a running demo under observation.
type session struct {
	t      *testing.T
	cmd    *exec.Cmd
	temp   string // its TMPDIR
	output *transcript
	errs   bytes.Buffer
	stop   chan struct{}
	traces traces
}

// traces are the namespaces that were seen of a demo.
type traces struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (tr *traces) add(seen map[string]bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	maps.Copy(tr.seen, seen)
}

// get leaves out the tests' own namespaces.
func (tr *traces) get() map[string]bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	own := namespacesOf("self")
	seen := maps.Clone(tr.seen)
	maps.DeleteFunc(seen, func(ns string, _ bool) bool { return own[ns] })
	return seen
}

// transcript collects output and lets others wait for a part of it.
type transcript struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{}
}

func (o *transcript) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	select {
	case o.changed <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (o *transcript) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start runs "verdict demo", or another program given by args, with the environment env besides.
func start(t *testing.T, u user, env []string, args ...string) *session {
	t.Helper()
	if len(args) == 0 {
		args = []string{binary, "demo"}
	}
	s := &session{
		t: t, temp: filepath.Join(t.TempDir(), "tmp"), output: &transcript{changed: make(chan struct{}, 1)},
		stop: make(chan struct{}), traces: traces{seen: map[string]bool{}},
	}
	if err := os.Mkdir(s.temp, 0o777); err != nil {
		t.Fatal(err)
	}
	openToAll(t, s.temp)
	s.cmd = exec.Command(args[0], args[1:]...)
	s.cmd.Dir = "/"
	s.cmd.Env = append(os.Environ(), append(env, "TMPDIR="+s.temp, "VERDICT="+binary)...)
	s.cmd.Stdout, s.cmd.Stderr = s.output, &s.errs
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

// patience is how long a test waits for something that normally takes a second or less.
const patience = 30 * time.Second

// until waits for a text in the output.
func (s *session) until(text string) {
	s.t.Helper()
	late := time.After(patience)
	for !strings.Contains(s.output.String(), text) {
		select {
		case <-s.output.changed:
		case <-late:
			s.t.Fatalf("the demo did not say %q:\n%s%s", text, s.output, s.errs.String())
		}
	}
}

// end waits for the end and returns the exit code, -1 after a deadly signal.
func (s *session) end() int {
	s.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			s.t.Fatal(err)
		}
	case <-time.After(patience):
		s.t.Fatalf("the demo did not end:\n%s", s.output)
	}
	return s.cmd.ProcessState.ExitCode()
}

// watch notes all namespaces of the demo's processes until it is told to stop.
func (s *session) watch() {
	for {
		select {
		case <-s.stop:
			return
		case <-time.After(2 * time.Millisecond):
			for _, pid := range demoProcesses(s.temp) {
				s.traces.add(namespacesOf(pid))
			}
		}
	}
}

// untilNamespaces waits until a number of the demo's network namespaces have been seen.
func (s *session) untilNamespaces(n int) {
	s.t.Helper()
	for late := time.Now().Add(patience); networkNamespaces(s.traces.get()) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			s.t.Fatalf("the demo did not make %d network namespaces: %v", n, s.traces.get())
		}
	}
}

func networkNamespaces(seen map[string]bool) (n int) {
	for ns := range seen {
		if strings.HasPrefix(ns, "net:") {
			n++
		}
	}
	return n
}

// pause holds the demo until a number of its namespaces have been seen.
func (s *session) pause(namespaces int) {
	s.t.Helper()
	s.signalStage(syscall.SIGSTOP)
	s.untilNamespaces(namespaces)
	s.signalStage(syscall.SIGCONT)
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

// demoProcesses are the processes with the TMPDIR of a session.
func demoProcesses(temp string) []string {
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	var pids []string
	for _, name := range environments {
		environment, err := os.ReadFile(name) // fails for processes that have ended meanwhile, and for those of others
		if err == nil && slices.Contains(strings.Split(string(environment), "\x00"), "TMPDIR="+temp) {
			pids = append(pids, filepath.Base(filepath.Dir(name)))
		}
	}
	return pids
}

// namespacesOf are the namespaces in which a process runs or which it holds open. A process that has ended and waits
// for its new parent, the machine's init, to notice (which takes as long as that likes) does not run.
func namespacesOf(pid string) map[string]bool {
	found := map[string]bool{}
	if stat, _ := os.ReadFile("/proc/" + pid + "/stat"); bytes.Contains(stat, []byte(") Z ")) {
		return found
	}
	for _, pattern := range []string{"/ns/net", "/ns/mnt", "/ns/pid", "/ns/user", "/task/*/ns/net", "/fd/*"} {
		names, _ := filepath.Glob("/proc/" + pid + pattern)
		for _, name := range names {
			to, _ := os.Readlink(name) // fails for what has ended meanwhile
			if kind, _, _ := strings.Cut(to, ":["); slices.Contains([]string{"net", "mnt", "pid", "user"}, kind) {
				found[to] = true
			}
		}
	}
	return found
}

// nothingLeft checks that processes, namespaces and files of the demo are gone.
func (s *session) nothingLeft() {
	s.t.Helper()
	close(s.stop)
	seen := s.traces.get()
	if pids := demoProcesses(s.temp); len(pids) > 0 {
		s.t.Errorf("processes are left: %v", pids)
	}
	for _, ns := range slices.Sorted(maps.Keys(leftOf(seen))) {
		s.t.Errorf("namespace %s is left", ns)
	}
	if entries, err := os.ReadDir(s.temp); err != nil || len(entries) > 0 {
		s.t.Errorf("folder for temporary files: %v, error %v; want it empty", entries, err)
	}
}

// leftOf are the namespaces that a process or a mount still keeps.
func leftOf(seen map[string]bool) map[string]bool {
	left := map[string]bool{}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		for ns := range namespacesOf(filepath.Base(p)) {
			if seen[ns] {
				left[ns] = true
			}
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for ns := range seen {
		if bytes.Contains(mounts, []byte(ns)) {
			left[ns] = true
		}
	}
	return left
}

// failingProxy does what a broken "verdict run" or "verdict render" might.
func failingProxy(how string) int {
	switch how {
	case "ends at once":
		fmt.Fprintln(os.Stderr, "verdict: --manifests: no such folder")
		return 1
	case "ends without a word":
		return 1
	case "reports an error":
		fmt.Fprintln(os.Stderr, `{"level":"ERROR","msg":"pass not applied","error":"operation not permitted"}`)
	case "warns only":
		fmt.Fprintln(os.Stderr, `{"level":"WARN","msg":"object cannot be honored","reason":"no port"}`)
	case "hears no signal":
		signal.Ignore(syscall.SIGTERM)
		fmt.Fprintln(os.Stderr, `{"level":"INFO","msg":"ready","added":1}`)
	}
	time.Sleep(patience) // the test kills it
	return 0
}
