package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Process is a program that runs inside a namespace and logs into a file.
type Process struct {
	Name   string
	cmd    *exec.Cmd
	log    *os.File
	exited chan struct{}
	err    error       // of Wait, once exited is closed
	asked  atomic.Bool // Stop or Kill ends it
}

// ProcessOptions describe a process.
type ProcessOptions struct {
	Name      string
	Namespace *Namespace
	Dir       string // the process appends its log to NAME.log in this folder
	Command   []string
	Env       []string // in addition to the environment of the test
	// Attributes may put the process into further new namespaces. Nil: none.
	Attributes *syscall.SysProcAttr
}

// NewProcess starts a process.
func NewProcess(o ProcessOptions) (*Process, error) {
	log, err := os.OpenFile(filepath.Join(o.Dir, o.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", o.Name, err)
	}
	fmt.Fprintf(log, "=== %s %s\n", time.Now().UTC().Format(time.RFC3339), strings.Join(o.Command, " "))
	p := &Process{Name: o.Name, log: log, exited: make(chan struct{})}
	p.cmd = exec.Command(o.Command[0], o.Command[1:]...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = log, log, append(os.Environ(), o.Env...)
	p.cmd.SysProcAttr = o.Attributes
	if err := o.Namespace.Start(p.cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", o.Name, err), log.Close())
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// HasExited reports whether the process has ended.
func (p *Process) HasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// EndedByItself is an error with the end of the log if the process has ended before Stop or Kill.
func (p *Process) EndedByItself() error {
	if p == nil || !p.HasExited() || p.asked.Load() {
		return nil
	}
	return fmt.Errorf("%s ended by itself; its log ends:\n%s", p.Name, p.Log(12))
}

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// stopPatience is how long a process may take to end after SIGTERM. It is that of the kubelet.
const stopPatience = 30 * time.Second

// Stop sends SIGTERM and waits for the end. It returns an error if the process does not end, or ends with an error.
func (p *Process) Stop() error {
	defer p.log.Close()
	p.asked.Store(p.asked.Load() || !p.HasExited())
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	select {
	case <-p.exited:
	case <-time.After(stopPatience):
		err := p.Kill()
		return errors.Join(fmt.Errorf("%s did not end within %s of SIGTERM and was killed", p.Name, stopPatience), err)
	}
	if p.err != nil {
		return fmt.Errorf("%s ended: %w", p.Name, p.err)
	}
	return nil
}

// Kill sends SIGKILL and waits for the end.
func (p *Process) Kill() error {
	defer p.log.Close()
	p.asked.Store(p.asked.Load() || !p.HasExited())
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.Name, err)
	}
	<-p.exited
	return nil
}

// Log is the last lines of the log; of no process, there are none.
func (p *Process) Log(lines int) string {
	if p == nil {
		return ""
	}
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Suspend stops a process, and returns when each of its threads stands still: until a thread gets to run, the others go on.
func Suspend(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	running := func(thread string) bool {
		text, err := os.ReadFile(thread)
		return err == nil && !strings.Contains(string(text), ") T ")
	}
	for late := time.Now().Add(Limit); ; time.Sleep(time.Millisecond) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		switch {
		case err != nil:
			return err
		case !slices.ContainsFunc(threads, running):
			return nil
		case time.Now().After(late):
			return fmt.Errorf("process %d got SIGSTOP, and still runs after %s", pid, Limit)
		}
	}
}
