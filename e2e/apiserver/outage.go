package apiserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Part is one of the two processes of a control plane.
type Part int

// The parts, in the order in which they start.
const (
	Etcd Part = iota
	Server
)

// Kill ends a part with SIGKILL.
func (c *ControlPlane) Kill(p Part) error { return c.processes[p].Kill() }

// Stop ends a part with SIGTERM. The exit code does not matter: kube-apiserver waits for its clients, and is killed
// when that takes too long.
func (c *ControlPlane) Stop(p Part) { _ = c.processes[p].Stop() }

// Signal sends a signal to a part, such as SIGSTOP or SIGCONT. A part that was killed or stopped gets none: another
// process may have its number.
func (c *ControlPlane) Signal(p Part, s syscall.Signal) error {
	if c.processes[p].HasExited() {
		return nil
	}
	if err := syscall.Kill(c.processes[p].PID(), s); err != nil {
		return fmt.Errorf("send %s to %s: %w", s, c.processes[p].Name, err)
	}
	return nil
}

// Restart starts a part that was killed or stopped, and returns when the API server is ready. When the other part does not
// run either, it returns at once: only the Restart of that one can wait. An API server that is suspended continues, because
// it would never be ready.
func (c *ControlPlane) Restart(p Part) error {
	if err := c.start(p); err != nil {
		return err
	}
	if c.processes[1-p].HasExited() {
		return nil
	}
	return errors.Join(c.Signal(Server, syscall.SIGCONT), c.ready())
}

// Upgrade replaces the API server by the one in another folder, which keeps the data.
func (c *ControlPlane) Upgrade(binaries string) error {
	c.Stop(Server)
	c.commands[Server][0] = filepath.Join(binaries, filepath.Base(c.commands[Server][0]))
	return c.Restart(Server)
}

// start starts one part.
func (c *ControlPlane) start(p Part) error {
	command := c.commands[p]
	process, err := lab.NewProcess(lab.ProcessOptions{
		Name: filepath.Base(command[0]), Namespace: c.ns, Dir: c.files.dir, Command: command,
	})
	if err != nil {
		return err
	}
	c.processes[p] = process
	return nil
}

// Save copies the data of etcd, which does not run in the meantime. A later Restore brings it back.
func (c *ControlPlane) Save() error {
	if err := c.Signal(Etcd, syscall.SIGSTOP); err != nil {
		return err
	}
	saved := c.files.path("etcd-saved")
	err := errors.Join(os.RemoveAll(saved), os.CopyFS(saved, os.DirFS(c.files.path("etcd"))))
	if err != nil {
		err = fmt.Errorf("copy the data of etcd: %w", err)
	}
	return errors.Join(err, c.Signal(Etcd, syscall.SIGCONT))
}

// Restore replaces the data of etcd by what Save copied, as an operator does after a loss. Both parts are killed and
// started again: revisions go back, and objects are what they were.
func (c *ControlPlane) Restore() error {
	return c.replace(func(data string) error { return os.CopyFS(data, os.DirFS(c.files.path("etcd-saved"))) })
}

// Empty deletes the data of etcd. Both parts are killed and started again, and the API server has only its own objects.
func (c *ControlPlane) Empty() error { return c.replace(func(string) error { return nil }) }

// replace writes new data of etcd while both parts are dead.
func (c *ControlPlane) replace(write func(data string) error) error {
	data := c.files.path("etcd")
	if err := errors.Join(c.Kill(Server), c.Kill(Etcd), os.RemoveAll(data), write(data)); err != nil {
		return fmt.Errorf("replace the data of etcd: %w", err)
	}
	if err := c.start(Etcd); err != nil {
		return err
	}
	return c.Restart(Server)
}
