package daemon

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Patience is how long a test waits for the daemon.
const Patience = lab.Limit

// Daemon is a running daemon.
type Daemon struct {
	*lab.Process
	Node      *lab.Namespace
	Manifests string // the folder
	Killed    bool   // the test expects that it ends by itself
}

// Start starts the program with the manifests of a folder, and waits until the kernel has them.
func Start(t testing.TB, program string, node *lab.Namespace, manifests string, flags ...string) *Daemon {
	t.Helper()
	d := Run(t, node, t.TempDir(), append([]string{
		program, "run", "--manifests", manifests, "--hostname-override", "n1", "--healthz-bind-address=",
		"--nodeport-addresses=192.168.0.0/16",
	}, flags...)...)
	d.Manifests = manifests
	return d
}

// Run starts a daemon with this command, and waits for its first pass. The daemon ends with the test.
func Run(t testing.TB, node *lab.Namespace, dir string, command ...string) *Daemon {
	t.Helper()
	p, err := lab.NewProcess(lab.ProcessOptions{Name: "verdict", Namespace: node, Dir: dir, Command: command})
	lab.Must(t, err)
	d := &Daemon{Process: p, Node: node}
	t.Cleanup(func() {
		lab.SaveIfFailed(t, node, p)
		if err := p.Stop(); err != nil && !d.Killed {
			t.Errorf("%v\n%s", err, p.Log(20))
		}
	})
	d.WaitFor(t, "the first pass", func(s *socket.Status) bool { return s.Synced && s.Passes > 0 })
	return d
}

// Status asks the daemon.
func (d *Daemon) Status() (s socket.Status, err error) {
	err = d.Node.Do(func() (err error) {
		s, err = socket.NewClient().Status()
		return err
	})
	return s, err
}

// WaitFor waits until the kernel has all changes and a condition holds.
func (d *Daemon) WaitFor(t testing.TB, what string, holds func(*socket.Status) bool) {
	t.Helper()
	lab.Eventually(t, what, func() error {
		lab.Must(t, d.EndedByItself())
		s, err := d.Status()
		if err == nil && (s.WaitingServices != 0 || !holds(&s)) {
			err = fmt.Errorf("the status is %+v\n%s", s, d.Log(20))
		}
		return err
	})
}

// WaitPass waits until there was another pass with Services, and the kernel has all changes.
func (d *Daemon) WaitPass(t testing.TB, after uint64) {
	t.Helper()
	d.WaitFor(t, "pass", func(s *socket.Status) bool {
		if s.Passes <= after || s.LastError != "" {
			return false
		}
		list, err := d.Passes()
		lab.Must(t, err)
		return slices.ContainsFunc(list, func(p socket.Pass) bool { return p.Number > after && p.Services > 0 })
	})
}

// Write writes a manifest.
func (d *Daemon) Write(t testing.TB, name, text string) { WriteFile(t, d.Manifests, name, text) }

// WriteFile writes a manifest into a folder. Nobody reads half of it.
func WriteFile(t testing.TB, dir, name, text string) {
	t.Helper()
	lab.Must(t, lab.WriteFile(dir, name, []byte(text)))
}

// Get gets a page of the daemon, and throws it away.
func (d *Daemon) Get(ctx context.Context, at, path string) error {
	page, err := d.Node.Get(ctx, "http://"+at+path)
	if err != nil || page.Code != http.StatusOK {
		return fmt.Errorf("get %s: %d: %w", path, page.Code, err)
	}
	return nil
}

// Passes asks for the latest passes.
func (d *Daemon) Passes() (list []socket.Pass, err error) {
	err = d.Node.Do(func() (err error) {
		list, err = socket.NewClient().Passes()
		return err
	})
	return list, err
}
