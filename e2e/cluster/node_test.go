//go:build e2e

package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// patience is how long the test waits for a part of the cluster.
const patience = 3 * time.Minute

// node is a node of the cluster. Its namespaces but that of the network end with its first process.
type node struct {
	c      *cluster
	number int
	ns     *lab.Namespace
	dir    string
	first  *lab.Process // nil: the node is down
	starts int
	system login1 // asks the kubelet to shut down
}

func (n *node) name() string { return fmt.Sprintf("verdict-e2e-%d", n.number) }

// port is the node's port of the bridge.
func (n *node) port() string { return fmt.Sprintf("to-%d", n.number) }

// addresses are those of the node in both families.
func (n *node) addresses() (list []netip.Addr) {
	for _, p := range hosts(nodeHost + n.number) {
		list = append(list, p.Addr())
	}
	return list
}

func (n *node) user() string { return "system:node:" + n.name() }

// start starts the processes of the node.
func (n *node) start() error {
	if err := n.startFirst(); err != nil {
		return err
	}
	if err := n.write("containerd.toml", containerd(n.dir)); err != nil {
		return err
	}
	if err := n.write("cni/10-e2e.conflist", cni(n.number)); err != nil {
		return err
	}
	if err := n.write("kubelet.yaml", kubelet(n)); err != nil {
		return err
	}
	if err := n.write("resolv.conf", ""); err != nil {
		return err
	}
	if err := n.run("containerd", "containerd", "-c", n.path("containerd.toml")); err != nil {
		return err
	}
	err := eventually("containerd answers", func() error { return n.command("ctr", "version") })
	if err != nil {
		return err
	}
	if n.starts == 1 {
		if err := n.load(n.c.images...); err != nil {
			return err
		}
	}
	kubeconfig, err := n.c.plane.Kubeconfig(n.user())
	if err != nil {
		return err
	}
	if n.starts == 1 {
		bus, err := n.system.listen(n.path("bus"))
		if err != nil {
			return err
		}
		n.c.cleanup(bus.Close)
	}
	var ips []string
	for _, a := range n.addresses() {
		ips = append(ips, a.String())
	}
	// As systemd does, the shell starts the kubelet again when it fails: containerd answers before its part for kubelets is ready. And it
	// stays when somebody stops the kubelet: nsenter would stop with it, and not notice that the node ends.
	return n.run("kubelet", "bash", "-c", `until "$0" "$@"; do sleep 1; done`, "env", "DBUS_SYSTEM_BUS_ADDRESS=unix:path="+n.path("bus"), n.c.program("kubelet"), "--config="+n.path("kubelet.yaml"), "--kubeconfig="+kubeconfig,
		"--hostname-override="+n.name(), "--node-ip="+strings.Join(ips, ","), "--v=2")
}

// startFirst starts the first process of the node, in new namespaces.
func (n *node) startFirst() (err error) {
	script, err := filepath.Abs("testdata/node.sh")
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(n.dir, 0o755), os.RemoveAll(n.path("ready"))); err != nil {
		return err
	}
	n.starts++
	n.first, err = lab.NewProcess(lab.ProcessOptions{
		Name: n.name(), Namespace: n.ns, Dir: n.c.logs, Command: []string{script, n.name(), n.dir},
		Attributes: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS},
	})
	if err != nil {
		return err
	}
	return eventually(n.name()+" is there", func() error {
		if _, err := os.Stat(n.path("ready")); err != nil {
			return fmt.Errorf("%w; its log ends:\n%s", err, n.first.Log(5))
		}
		return nil
	})
}

// end ends all processes of the node. The kernel kills them with the first one.
func (n *node) end() error {
	if n.first == nil {
		return nil
	}
	err := n.first.Kill()
	n.first = nil
	return err
}

// forget empties what the kernel has of the node's network, as a reboot does.
func (n *node) forget() error {
	_, err := n.ns.Command("nft", "flush", "ruleset")
	return errors.Join(err, n.ns.ForgetFlows())
}

// enter returns the command that runs another one in all namespaces of the node.
func (n *node) enter(args ...string) []string {
	return append([]string{"nsenter", "-t", strconv.Itoa(n.first.PID()), "-m", "-u", "-p", "--"}, args...)
}

// run starts a process that stays. It ends with the node.
func (n *node) run(name string, args ...string) error {
	_, err := lab.NewProcess(lab.ProcessOptions{
		Name: fmt.Sprintf("%s-%s", n.name(), name), Namespace: n.ns, Dir: n.c.logs, Command: n.enter(args...),
	})
	return err
}

// output runs a command on the node to its end.
func (n *node) output(args ...string) (string, error) {
	args = n.enter(args...)
	return n.ns.Command(args[0], args[1:]...)
}

func (n *node) command(args ...string) error {
	_, err := n.output(args...)
	return err
}

// load imports images from archives.
func (n *node) load(archives ...string) error {
	for _, a := range archives {
		if err := n.command("ctr", "-n", "k8s.io", "images", "import", a); err != nil {
			return err
		}
	}
	return nil
}

// processes returns the numbers of the node's processes that run a program, as the machine sees them.
func (n *node) processes(program string) (list []int, err error) {
	out, err := exec.Command("pgrep", "-x", program).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("look for processes %s: %w", program, err)
	}
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", n.first.PID()))
	if err != nil {
		return nil, err
	}
	for _, word := range strings.Fields(string(out)) {
		if ns, err := os.Readlink("/proc/" + word + "/ns/net"); err == nil && ns == own {
			pid, _ := strconv.Atoi(word) // pgrep prints numbers
			list = append(list, pid)
		}
	}
	return list, nil
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) write(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(n.path(name), []byte(text), 0o644)
}

// removeGroups removes the control groups of the node. The kernel removes one only when it is done with the processes in it.
func (n *node) removeGroups() error {
	groups, err := filepath.Glob("/sys/fs/cgroup/*/" + n.name())
	if err != nil {
		return err
	}
	for _, g := range groups {
		err = errors.Join(err, exec.Command("find", g, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+").Run())
	}
	return err
}

// eventually tries until there is no error.
func eventually(what string, try func() error) error {
	var err error
	for late := time.Now().Add(patience); time.Now().Before(late); time.Sleep(200 * time.Millisecond) {
		if err = try(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("not within %s: %s: %w", patience, what, err)
}
