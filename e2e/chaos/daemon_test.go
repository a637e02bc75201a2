//go:build e2e

package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// quiet is longer than --min-sync-period and a pass.
const quiet = 300 * time.Millisecond

// withoutRepair is the flag of a daemon that repairs nothing.
const withoutRepair = "--repair=false"

// daemon is verdict as a process on the node.
type daemon struct {
	node     *lab.Namespace
	dir      string
	binary   string
	versions []string // those that do not run now
	source   string   // the flag that names what it reads
	flags    []string // that a fault has chosen and that verdict render has, too
	extra    []string // that only verdict run has
	fastPath bool     // connections take the fast path
	troubled bool     // it is suspended, or some of its system calls fail
	started  int      // names the logs
	process  *lab.Process
	ended    error // of daemons that ended by themselves
}

// planFlags decide what the plan is. "verdict render" has them as well.
func (d *daemon) planFlags() []string {
	flags := []string{d.source, "--hostname-override=" + lab.NodeName, "--cluster-cidr=" + strings.Join(lab.Both("PODS"), ",")}
	if hasIPVS() {
		flags = append(flags, "--backend=nft")
	}
	if d.fastPath {
		flags = append(flags, "--fast-path=services", fmt.Sprintf("--fast-path-after=%d", fastPathAfter))
	}
	return slices.Concat(flags, d.flags)
}

func (d *daemon) command() []string {
	own := []string{
		d.binary, "run", "--healthz-bind-address=[::]:10256", "--metrics-bind-address=127.0.0.1:10249", "-v=4",
		"--table-owner=off", // so that the edits have an effect; one of the faults switches it on
	}
	return slices.Concat(own, d.planFlags(), d.extra)
}

// spawn starts a process of verdict, which is not yet the daemon. The words before the command may be another program
// that becomes verdict.
func (d *daemon) spawn(before ...string) (*lab.Process, error) {
	d.started++
	return lab.NewProcess(lab.ProcessOptions{
		Name: fmt.Sprintf("verdict-%03d", d.started), Namespace: d.node, Dir: d.dir, Command: slices.Concat(before, d.command()),
	})
}

// start starts the daemon unless it runs.
func (d *daemon) start(before ...string) error {
	if d.running() != nil {
		return nil
	}
	var err error
	d.process, err = d.spawn(before...)
	return err
}

// running is the process of the daemon, or nil. It notes when the daemon has ended by itself.
func (d *daemon) running() *lab.Process {
	if err := d.process.EndedByItself(); err != nil {
		d.ended, d.process = errors.Join(d.ended, err), nil
	}
	return d.process
}

// release returns the process of the daemon, which from then on may end.
func (d *daemon) release() *lab.Process {
	p := d.running()
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
	p := d.release()
	if p == nil {
		return nil
	}
	err := errors.Join(send(p, syscall.SIGCONT), p.Stop()) // a suspended process does not take SIGTERM
	if err == nil || !strings.Contains(p.Log(2), "msg=starting") {
		return nil // without that line, it had no time to handle signals
	}
	return fmt.Errorf("%w; its log ends:\n%s", err, p.Log(12))
}

// restart stops the daemon and starts it with other flags.
func (d *daemon) restart(flags, extra []string) error {
	if err := d.stop(); err != nil {
		return err
	}
	d.flags, d.extra = flags, extra
	return d.start()
}

// abort ends the daemon with the stacks of its goroutines in the log, and returns the end of the log before that.
func (d *daemon) abort() string {
	p := d.release()
	if p == nil {
		return "the daemon does not run"
	}
	text := filepath.Join(d.dir, p.Name+".log") + " ends, before the stacks of all goroutines:\n" + p.Log(12)
	if err := errors.Join(send(p, syscall.SIGCONT), send(p, syscall.SIGABRT)); err != nil {
		return text + "\n" + err.Error()
	}
	select {
	case <-p.Exited():
	case <-time.After(time.Second):
		_ = p.Kill()
	}
	return text
}

// claimPatience is how long a daemon that has just started may take to claim the node.
const claimPatience = 5 * time.Second

// serving waits until the daemon has claimed the node, and returns it. It returns nil if there is no such daemon.
func (d *daemon) serving() *lab.Process {
	p := d.running()
	for end := time.Now().Add(slower(claimPatience)); p != nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if d.claimant() == p.PID() {
			return p
		}
	}
	return nil
}

// claimant is the number of the process that has claimed the node; 0: there is none. A suspended process counts, although it
// answers no question.
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

// firstPass waits until the daemon has made its first pass.
func (d *daemon) firstPass(patience time.Duration) error {
	p := d.running()
	for end := time.Now().Add(patience); p != nil && !d.passed(p); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%s has written no tables within %s", p.Name, patience)
		}
		if err := d.err(); err != nil {
			return err
		}
	}
	return d.err()
}

// repairs reports whether the daemon is there to repair at once. Before its first pass, which needs the API server, a
// daemon repairs no elements.
func (d *daemon) repairs() bool {
	p := d.running()
	return p != nil && !d.troubled && !slices.Contains(d.extra, withoutRepair) && d.passed(p)
}

// refusesSecond starts a second daemon beside the first one. It must give up and say why.
func (d *daemon) refusesSecond() error {
	p, err := d.spawn()
	if err != nil {
		return err
	}
	refusalPatience := slower(40 * time.Second)
	select {
	case <-p.Exited():
	case <-time.After(refusalPatience):
		return errors.Join(fmt.Errorf("a second daemon still runs after %s", refusalPatience), p.Kill())
	}
	if !strings.Contains(p.Log(3), "another process of Verdict") {
		return fmt.Errorf("a second daemon ended for another reason; its log ends:\n%s", p.Log(5))
	}
	return d.err()
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
	d.running()
	return d.ended
}
