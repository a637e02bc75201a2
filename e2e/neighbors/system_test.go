//go:build e2e

package neighbors

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// system is what programs of the node share besides the network: folders such as /run and /etc that are empty at first, and
// a message bus. It is a mount namespace, which a process of its own keeps.
type system struct {
	b      *bed
	keeper *lab.Process
}

// folders are empty in a system, so that programs find no configuration of the machine, and leave none there.
var folders = []string{
	"/run", "/etc/firewalld", "/etc/ufw", "/var/lib/ufw", "/lib/ufw", "/etc/default", "/var/lib/cni", "/etc/libvirt", "/var/lib/libvirt",
	"/var/cache/libvirt", "/var/log/libvirt",
}

// newSystem makes the system of the node, or returns the one that is there.
func (b *bed) newSystem(t *testing.T) *system {
	t.Helper()
	if b.system != nil {
		return b.system
	}
	script := "set -e\n"
	for _, folder := range folders {
		if _, err := os.Stat(folder); err != nil {
			continue
		}
		// What a Debian package brought is there at the start, in a copy.
		script += fmt.Sprintf("mkdir -p %[1]s/copy; [ %[2]s = /run ] || cp -a %[2]s/. %[1]s/copy/\nmount -t tmpfs none %[2]s\n"+
			"[ %[2]s = /run ] || cp -a %[1]s/copy/. %[2]s/\nrm -rf %[1]s/copy\n", b.dir, folder)
	}
	script += "mkdir -p /run/dbus /run/lock\necho ready\nexec sleep infinity\n"
	keeper, err := lab.NewProcess(lab.ProcessOptions{
		Name: "system", Namespace: b.Node, Dir: b.dir, Command: []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", script},
	})
	lab.Must(t, err)
	b.system = &system{b: b, keeper: keeper}
	t.Cleanup(func() { _ = keeper.Kill() })
	eventually(t, "the system is ready", keeper, func() bool { return strings.HasSuffix(keeper.Log(1), "ready") })
	return b.system
}

func (s *system) wrap(command []string) []string {
	return append([]string{"nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", s.keeper.PID())}, command...)
}

// start starts a program that runs until the test ends, or until somebody stops it.
func (s *system) start(t *testing.T, name string, command ...string) *lab.Process {
	t.Helper()
	p, err := lab.NewProcess(lab.ProcessOptions{Name: name, Namespace: s.b.Node, Dir: s.b.dir, Command: s.wrap(command)})
	lab.Must(t, err)
	t.Cleanup(func() {
		_ = p.Kill() // most have ended before
		if t.Failed() {
			t.Logf("the log of %s ends:\n%s", name, p.Log(20))
		}
	})
	return p
}

// run runs a program to its end.
func (s *system) run(t *testing.T, command ...string) string {
	t.Helper()
	wrapped := s.wrap(command)
	return s.b.Node.Must(t, "", wrapped[0], wrapped[1:]...)
}

// succeeds reports whether a program succeeds.
func (s *system) succeeds(command ...string) bool {
	wrapped := s.wrap(command)
	_, err := s.b.Node.Command(wrapped[0], wrapped[1:]...)
	return err == nil
}

// write writes a file of the system.
func (s *system) write(t *testing.T, path, text string) {
	t.Helper()
	wrapped := s.wrap([]string{"sh", "-c", `mkdir -p "$(dirname "$1")" && cat >"$1"`, "write", path})
	s.b.Node.Must(t, text, wrapped[0], wrapped[1:]...)
}

// bus starts the message bus.
func (s *system) bus(t *testing.T) {
	t.Helper()
	s.start(t, "dbus", "dbus-daemon", "--system", "--nofork", "--nopidfile")
	eventually(t, "the message bus answers", nil, func() bool { return s.succeeds("test", "-S", "/run/dbus/system_bus_socket") })
}

// stop ends a program as systemd does, and waits for its end.
func stop(t *testing.T, p *lab.Process) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Logf("%v", err) // many end with the signal
	}
}

// needs fails a test whose program is not installed: the Makefile installs it.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil && !sbin(name) {
			t.Fatalf("%s is not installed: %v; \"make e2e-neighbors\" installs it", name, err)
		}
	}
}

func sbin(name string) bool {
	_, err := os.Stat(filepath.Join("/usr/sbin", name))
	return !errors.Is(err, os.ErrNotExist)
}

// eventually waits until something holds, or until the process has ended.
func eventually(t *testing.T, what string, p *lab.Process, holds func() bool) {
	t.Helper()
	for late := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(late) {
			log := ""
			if p != nil {
				log = p.Log(20)
			}
			t.Fatalf("not within a minute: %s\n%s", what, log)
		}
	}
}

func contains(text, part string) bool { return strings.Contains(text, part) }
