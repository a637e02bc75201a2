//go:build !nokernel

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// traces are the namespaces that were seen of a demo, by what the kernel calls them ("net:[4026531840]"). They are kept
// open: the kernel gives numbers that are free to new namespaces, such as those of other tests on the machine.
type traces struct {
	mu   sync.Mutex
	own  map[string]string // the tests' own namespaces
	kept map[string]int    // file descriptors
}

func newTraces(t *testing.T) *traces {
	tr := &traces{own: namespacesOf("self"), kept: map[string]int{}}
	t.Cleanup(func() {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		for _, fd := range tr.kept {
			unix.Close(fd)
		}
		tr.kept = nil
	})
	return tr
}

// follow notes the namespaces of a process.
func (tr *traces) follow(pid string) {
	for name, path := range namespacesOf(pid) {
		tr.keep(name, path)
	}
}

func (tr *traces) keep(name, path string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if _, own := tr.own[name]; own || tr.kept == nil {
		return
	}
	if _, had := tr.kept[name]; had {
		return
	}
	// What has ended meanwhile cannot be opened, or is another namespace by now.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	if now, _ := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(fd))); now != name {
		unix.Close(fd)
		return
	}
	tr.kept[name] = fd
}

// networks counts the network namespaces.
func (tr *traces) networks() (n int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for name := range tr.kept {
		if strings.HasPrefix(name, "net:") {
			n++
		}
	}
	return n
}

// left are the namespaces that a process or a mount still has, apart from the tests themselves.
func (tr *traces) left() []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var left []string
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		pid := filepath.Base(p)
		if pid == strconv.Itoa(os.Getpid()) {
			continue
		}
		for name := range namespacesOf(pid) {
			if _, kept := tr.kept[name]; kept {
				left = append(left, name+" of process "+pid)
			}
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for name := range tr.kept {
		if bytes.Contains(mounts, []byte(name)) {
			left = append(left, name+" mounted")
		}
	}
	return left
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

// namespacesOf are the namespaces in which a process runs or which it holds open, and where they can be opened. A
// process that has ended (state Z) and waits for its new parent, the machine's init, to notice (which takes as long as that
// likes) does not run, and neither does one that the parent notices at this moment (state X).
func namespacesOf(pid string) map[string]string {
	found := map[string]string{}
	stat, _ := os.ReadFile("/proc/" + pid + "/stat")
	if bytes.Contains(stat, []byte(") Z ")) || bytes.Contains(stat, []byte(") X ")) {
		return found
	}
	for _, pattern := range []string{"/ns/net", "/ns/mnt", "/ns/pid", "/ns/user", "/task/*/ns/net", "/fd/*"} {
		paths, _ := filepath.Glob("/proc/" + pid + pattern)
		for _, path := range paths {
			name, _ := os.Readlink(path) // fails for what has ended meanwhile
			if kind, _, _ := strings.Cut(name, ":["); slices.Contains([]string{"net", "mnt", "pid", "user"}, kind) {
				found[name] = path
			}
		}
	}
	return found
}

// A namespace that somebody keeps is found: by a process, and not by the tests themselves.
func TestTraces(t *testing.T) {
	own := newTraces(t)
	own.follow("self")
	if len(own.kept) > 0 {
		t.Errorf("the tests' own namespaces count: %v", own.kept)
	}
	s := start(t, users()[1], nil, "sh", "-c", `exec unshare --user --map-root-user --net sleep 60`)
	s.untilNamespaces(1)
	if left := s.traces.left(); len(left) == 0 {
		t.Error("nothing is left of a program that still runs")
	}
	if pids := demoProcesses(s.temp); len(pids) != 1 {
		t.Errorf("processes %v, want one", pids)
	}
	s.signal(unix.SIGKILL)
	s.end()
	s.nothingLeft()
}

// nothingLeft checks that processes, namespaces and files of the demo are gone.
func (s *session) nothingLeft() { s.nothingLeftAfter(0) }

// nothingLeftAfter waits for the kernel to end what a killed process leaves.
func (s *session) nothingLeftAfter(patience time.Duration) {
	s.t.Helper()
	close(s.stop)
	<-s.watched // nothing is noted meanwhile
	for late := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		entries, err := os.ReadDir(s.temp)
		pids, left := demoProcesses(s.temp), s.traces.left()
		if err == nil && len(entries)+len(pids)+len(left) == 0 {
			return
		}
		if time.Now().After(late) {
			s.t.Errorf("left are processes %v, namespaces %v, temporary files %v (%v)", pids, left, entries, err)
			return
		}
	}
}
