//go:build e2e

package flood

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// memoryGroup is a cgroup with a limit of memory, as the kubelet makes one for a pod. The memory of the rules counts, too.
type memoryGroup struct{ dir, limit, usage string }

// newMemoryGroup makes one that ends with the test, with version 1 or 2 of cgroups.
func newMemoryGroup(t testing.TB) *memoryGroup {
	t.Helper()
	root, g := "/sys/fs/cgroup/memory", &memoryGroup{limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes"}
	if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
		root, g = "/sys/fs/cgroup", &memoryGroup{limit: "memory.max", usage: "memory.current"}
	}
	g.dir = filepath.Join(root, fmt.Sprintf("verdict-test-%d", os.Getpid()))
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		t.Fatalf("make a cgroup for memory: %v", err)
	}
	t.Cleanup(func() {
		for late := time.Now().Add(daemon.Patience); os.Remove(g.dir) != nil; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(late) {
				t.Errorf("the cgroup %s cannot be removed", g.dir)
				return
			}
		}
	})
	return g
}

func (g *memoryGroup) set(t testing.TB, bytes int) {
	t.Helper()
	lab.Must(t, os.WriteFile(filepath.Join(g.dir, g.limit), []byte(strconv.Itoa(bytes)), 0))
}

// used is the memory in use, that of the kernel included.
func (g *memoryGroup) used(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, g.usage))
	lab.Must(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	lab.Must(t, err)
	return n
}

// enter is the beginning of a command that runs in the cgroup.
func (g *memoryGroup) enter() []string {
	return []string{"sh", "-c", `echo $$ >"` + g.dir + `/cgroup.procs" && exec "$@"`, "sh"}
}

// TestMemoryLimit: the daemon comes to the memory limit of its pod while Services come. The kernel ends it, also when it
// asks for memory for rules: there is no error that the daemon could see. The rules serve on. With more memory, the next
// daemon writes only what is missing.
func TestMemoryLimit(t *testing.T) {
	const before, after = 2000, 12_000
	b, g := newBedWithout(t), newMemoryGroup(t)
	b.server.put(crowd(before, 0)...)
	b.prefix = g.enter()
	b.start(t)
	g.set(t, g.used(t)+6<<20)
	b.server.put(crowd(after, 0)[2*before:]...)
	select {
	case <-b.daemon.Exited():
	case <-time.After(daemon.Patience):
		t.Fatalf("the daemon has %d bytes and goes on", g.used(t))
	}
	b.daemon.Killed = true
	b.connections(t, 50)
	g.set(t, 1<<40)
	b.start(t)
	b.daemon.WaitFor(t, "end of the changes", func(s *socket.Status) bool { return s.LastError == "" })
	if out, err := b.Node.Command(verdict, "list", "tenant/service-11999"); err != nil || !strings.Contains(out, "10.20.46.223") {
		t.Errorf("the last Service is not served: %v\n%s", err, out)
	}
	passes, err := b.daemon.Passes()
	lab.Must(t, err)
	const each = 7 // elements of a Service
	if first := passes[len(passes)-1]; first.Added > (after-before/2)*each {
		t.Errorf("the first pass wrote %d elements; at most %d Services were missing", first.Added, after-before)
	}
	b.connections(t, 50)
}
