package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// daemon is verdict as a process on the node.
type daemon struct {
	node       *lab.Namespace
	dir        string
	binary     string
	kubeconfig string
	manifests  string   // a folder that it follows instead of the API server; empty: none
	flags      []string // that a fault has chosen and that verdict render has, too
	extra      []string // that only verdict run has

	mu      sync.Mutex
	process *lab.Process
	since   time.Time // when the process became the daemon, or was started to become it
	started int       // names the logs
	ended   []error
}

// planFlags decide what the plan is. "verdict render" has them as well.
func (d *daemon) planFlags() []string {
	pods4, pods6 := podRanges()
	return slices.Concat([]string{
		"--kubeconfig=" + d.kubeconfig, "--hostname-override=" + lab.NodeName, "--cluster-cidr=" + pods4 + "," + pods6,
	}, d.flags)
}

func podRanges() (v4, v6 string) {
	v4, err4 := lab.Text(lab.IPv4, "PODS")
	v6, err6 := lab.Text(lab.IPv6, "PODS")
	if err := errors.Join(err4, err6); err != nil {
		panic(err) // the name stands here
	}
	return v4, v6
}

func (d *daemon) command() []string {
	own := []string{
		d.binary, "run", "--healthz-bind-address=[::]:10256", "--metrics-bind-address=127.0.0.1:10249", "-v=4",
		"--table-owner=off", // so that the edits have an effect; one of the faults switches it on
	}
	flags := d.planFlags()
	if d.manifests != "" {
		flags[0] = "--manifests=" + d.manifests
	}
	return slices.Concat(own, flags, d.extra)
}

// spawn starts a process of verdict, which is not yet the daemon. The words before the command may be another program
// that becomes verdict.
func (d *daemon) spawn(before ...string) (*lab.Process, error) {
	d.started++
	d.since = time.Now()
	return lab.NewProcess(lab.ProcessOptions{
		Name: fmt.Sprintf("verdict-%03d", d.started), Namespace: d.node, Dir: d.dir, Command: slices.Concat(before, d.command()),
	})
}

// start starts the daemon unless it runs.
func (d *daemon) start(before ...string) error {
	if d.running() != nil {
		return nil
	}
	p, err := d.spawn(before...)
	if err == nil {
		d.adopt(p)
	}
	return err
}

// adopt makes a process the daemon, and notices when it ends by itself.
func (d *daemon) adopt(p *lab.Process) {
	d.mu.Lock()
	d.process = p
	d.mu.Unlock()
	go func() {
		<-p.Exited()
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.process == p {
			d.process = nil
			d.ended = append(d.ended, fmt.Errorf("the daemon ended by itself; its log ends:\n%s", p.Log(12)))
		}
	}()
}

// running is the process of the daemon, or nil.
func (d *daemon) running() *lab.Process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.process
}

// release returns the process of the daemon, which from then on may end.
func (d *daemon) release() *lab.Process {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.process
	d.process = nil
	return p
}

// kill ends the daemon with SIGKILL.
func (d *daemon) kill() error {
	if p := d.release(); p != nil {
		return p.Kill()
	}
	return nil
}

// stop ends the daemon with SIGTERM. It must end in time and without an error.
func (d *daemon) stop() error {
	if p := d.release(); p != nil {
		// A suspended process does not take SIGTERM.
		err := errors.Join(send(p, syscall.SIGCONT), p.Stop())
		if err != nil && !strings.Contains(p.Log(2), "msg=starting") {
			return nil // it had no time to handle signals
		}
		if err != nil {
			return fmt.Errorf("%w; its log ends:\n%s", err, p.Log(12))
		}
	}
	return nil
}

// restart stops the daemon and starts it with other flags.
func (d *daemon) restart(flags, extra []string) error {
	if err := d.stop(); err != nil {
		return err
	}
	d.flags, d.extra = flags, extra
	return d.start()
}

// claimPatience is how long a daemon that has just started may take to claim the node.
const claimPatience = 5 * time.Second

// serving waits until the daemon has claimed the node, and returns it. It returns nil if there is no such daemon.
func (d *daemon) serving() *lab.Process {
	p := d.running()
	for end := time.Now().Add(claimPatience); p != nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if d.claimant() == p.PID() {
			return p
		}
	}
	return nil
}

// claimant is the number of the process that has claimed the node; 0: there is none.
func (d *daemon) claimant() (pid int) {
	_ = d.node.Do(func() error { // without an answer there is no claimant
		c, err := net.Dial("unix", "@verdict-proxy")
		if err != nil {
			return err
		}
		defer c.Close()
		raw, err := c.(*net.UnixConn).SyscallConn()
		if err != nil {
			return err
		}
		return raw.Control(func(fd uintptr) {
			if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				pid = int(peer.Pid)
			}
		})
	})
	return pid
}

// passed reports whether a process has made its first pass.
func (d *daemon) passed(p *lab.Process) bool {
	log, err := os.ReadFile(filepath.Join(d.dir, p.Name+".log"))
	return err == nil && bytes.Contains(log, []byte(`msg="tables written"`))
}

// send sends a signal to a process of verdict.
func send(p *lab.Process, s syscall.Signal) error {
	if err := syscall.Kill(p.PID(), s); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to %s: %w", s, p.Name, err)
	}
	return nil
}

// err says why the daemon ended although nobody had asked it to.
func (d *daemon) err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(d.ended...)
}

// log is the end of the daemon's log.
func (d *daemon) log(lines int) string {
	if p := d.running(); p != nil {
		return filepath.Join(d.dir, p.Name+".log") + " ends:\n" + p.Log(lines)
	}
	return "the daemon does not run"
}
