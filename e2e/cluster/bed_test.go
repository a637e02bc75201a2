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
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// cluster is a control plane, two nodes, and a client outside.
type cluster struct {
	binaries   string // the folder with the programs of Kubernetes
	dir, logs  string
	desk       string // where somebody who follows the documents works
	kubeconfig string
	images     []string // archives that each node imports
	plane      *apiserver.ControlPlane
	manager    *lab.Process   // kube-controller-manager
	place      *lab.Namespace // of the control plane
	outside    *lab.Namespace
	nodes      []*node
	cleanups   []func() error
}

// shared is the cluster of all tests.
var shared *cluster

func TestMain(m *testing.M) {
	c := &cluster{}
	code := 1
	err := c.start()
	if err == nil {
		shared = c
		code = m.Run()
	}
	if err = errors.Join(err, c.end(code == 0)); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		code = 1
	}
	os.Exit(code)
}

func (c *cluster) cleanup(f func() error) { c.cleanups = append(c.cleanups, f) }

// end ends the cluster. Its logs stay when a test has failed.
func (c *cluster) end(passed bool) (err error) {
	for i := len(c.cleanups) - 1; i >= 0; i-- {
		err = errors.Join(err, c.cleanups[i]())
	}
	if passed {
		return errors.Join(err, os.RemoveAll(c.logs))
	}
	fmt.Fprintln(os.Stderr, "cluster: the logs are in", c.logs)
	return err
}

func (c *cluster) program(name string) string { return filepath.Join(c.binaries, name) }

func (c *cluster) start() (err error) {
	began := time.Now()
	c.binaries, err = apiserver.Build("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl",
		"kube-proxy", "coredns", "pause")
	if err != nil {
		return err
	}
	say("programs of Kubernetes are built", began)
	// The storage of containers must be on a disk, so the folder is not in /tmp, which may be in memory. A run that was
	// killed has left the folder.
	c.dir = filepath.Join(filepath.Dir(c.binaries), "cluster")
	if err := errors.Join(os.RemoveAll(c.dir), os.MkdirAll(c.dir, 0o755)); err != nil {
		return err
	}
	c.cleanup(func() error { return os.RemoveAll(c.dir) })
	if c.logs, err = os.MkdirTemp("", "verdict-cluster-"); err != nil {
		return err
	}
	began = time.Now()
	for _, step := range []func() error{c.makeGroup, c.makeDesk, c.makeImages, c.makePlaces, c.startPlane, c.startNodes, c.startPods} {
		if err := step(); err != nil {
			return err
		}
	}
	say("the cluster is there", began)
	return nil
}

// makeGroup gives the control plane and the client outside what a node has, as if they were a machine. Otherwise each of their
// threads competes with all threads of this machine, and a client that does not run in time reports connections as late.
func (c *cluster) makeGroup() error {
	const root, group = "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu/verdict-e2e"
	enter := func(group string) error {
		return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644)
	}
	if err := os.MkdirAll(group, 0o755); err != nil {
		return err
	}
	c.cleanup(func() error { // it is empty when the kernel is done with the processes that were killed
		return errors.Join(enter(root), eventually("remove the control group", func() error { return os.Remove(group) }))
	})
	return errors.Join(os.WriteFile(filepath.Join(group, "cpu.shares"), []byte("16384"), 0o644), enter(group))
}

func say(what string, since time.Time) {
	fmt.Printf("=== cluster: %s (%s)\n", what, time.Since(since).Round(time.Second))
}

func (c *cluster) makeImages() error {
	workload := filepath.Join(c.dir, "workload")
	build := exec.Command("go", "build", "-o", workload, "./workload")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the workload: %w\n%s", err, out)
	}
	kubeProxy, err := kubeProxyImage(c.program("kube-proxy"))
	if err != nil {
		return err
	}
	list := []*image{kubeProxy}
	for name, file := range map[string]string{"pause": c.program("pause"), "coredns": c.program("coredns"), "workload": workload} {
		list = append(list, &image{name: name, entrypoint: []string{"/" + name}, files: map[string]string{"/" + name: file}})
	}
	for _, i := range list {
		archive, err := i.save(c.dir)
		if err != nil {
			return err
		}
		c.images = append(c.images, archive)
	}
	return nil
}

func (c *cluster) makePlaces() (err error) {
	if err := c.makePlane(); err != nil {
		return err
	}
	if c.outside, err = c.newPlace("outside"); err != nil {
		return err
	}
	if err := c.plug(c.outside, "to-outside", outsideHost); err != nil {
		return err
	}
	for number := 1; number <= 2; number++ {
		n := &node{c: c, number: number, dir: filepath.Join(c.dir, fmt.Sprintf("node-%d", number))}
		if n.ns, err = c.newPlace(n.name()); err != nil {
			return err
		}
		if err := c.plug(n.ns, n.port(), nodeHost+number); err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
		c.cleanup(func() error { return eventually("remove the control groups of "+n.name(), n.removeGroups) })
		c.cleanup(n.end)
	}
	return c.route()
}

// startPlane starts etcd, the API server, the controller manager and the scheduler.
func (c *cluster) startPlane() (err error) {
	users := []apiserver.User{{Name: "system:kube-controller-manager"}, {Name: "system:kube-scheduler"}}
	for _, n := range c.nodes {
		users = append(users, apiserver.User{Name: n.user(), Group: "system:nodes"})
	}
	c.plane, err = apiserver.Start(apiserver.Options{
		Binaries: c.binaries, Dir: c.logs, Namespace: c.place, Address: hosts(planeHost)[0].Addr(), ServiceRanges: serviceRanges,
		Pods: true, Users: users, Certified: []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("127.0.0.1")},
	})
	if err != nil {
		return err
	}
	c.cleanup(c.plane.Close)
	if c.kubeconfig, err = c.plane.Kubeconfig(apiserver.Admin); err != nil {
		return err
	}
	c.manager, err = c.control("kube-controller-manager", "--use-service-account-credentials", "--allocate-node-cidrs=false",
		"--cluster-cidr="+podRanges, "--service-cluster-ip-range="+serviceRanges,
		"--service-account-private-key-file="+c.plane.File("sa.key"), "--root-ca-file="+c.plane.File("ca.crt"))
	if err == nil {
		_, err = c.control("kube-scheduler")
	}
	return err
}

// control starts a controller of the control plane.
func (c *cluster) control(name string, flags ...string) (*lab.Process, error) {
	kubeconfig, err := c.plane.Kubeconfig("system:" + name)
	if err != nil {
		return nil, err
	}
	p, err := lab.NewProcess(lab.ProcessOptions{Name: name, Namespace: c.place, Dir: c.logs, Command: append([]string{
		c.program(name), "--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig, "--leader-elect=false",
	}, flags...)})
	if err != nil {
		return nil, err
	}
	c.cleanup(p.Kill)
	return p, nil
}

func (c *cluster) startNodes() error {
	for _, n := range c.nodes {
		if err := n.start(); err != nil {
			return fmt.Errorf("start node %s: %w", n.name(), err)
		}
	}
	for _, n := range c.nodes {
		err := eventually("node "+n.name()+" joins", func() error { _, err := c.kubectl("get", "node", n.name()); return err })
		if err != nil {
			return err
		}
		pods := podsOf(n.number)
		patch := fmt.Sprintf(`{"spec": {"podCIDR": "%[1]s", "podCIDRs": ["%[1]s", "%[2]s"]}}`, pods[0], pods[1])
		if _, err := c.kubectl("patch", "node", n.name(), "-p", patch); err != nil {
			return err
		}
	}
	_, err := c.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=180s")
	return err
}

// startPods starts CoreDNS and the workload. They are ready only when a proxy runs.
func (c *cluster) startPods() error {
	for _, file := range []string{"coredns", "workload"} {
		if _, err := c.kubectl("apply", "-f", "testdata/"+file+".yaml"); err != nil {
			return err
		}
	}
	return nil
}

// kubectl runs a command as administrator.
func (c *cluster) kubectl(args ...string) (string, error) {
	return c.place.Command(c.program("kubectl"), append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

// must runs kubectl. A failure ends the test.
func (c *cluster) must(t testing.TB, args ...string) string {
	t.Helper()
	out, err := c.kubectl(args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, c.state())
	}
	return out
}

// state says what the pods are doing.
func (c *cluster) state() string {
	pods, _ := c.kubectl("get", "pods", "-A", "-o", "wide")
	events, _ := c.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp")
	lines := strings.Split(strings.TrimSpace(events), "\n")
	return pods + strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// ready waits until all Deployments and DaemonSets of the cluster are complete.
func (c *cluster) ready(t testing.TB, proxy string) {
	t.Helper()
	for _, what := range []string{"kube-system daemonset/" + proxy, "kube-system deployment/coredns", "default deployment/web", "default daemonset/client"} {
		namespace, name, _ := strings.Cut(what, " ")
		c.must(t, "-n", namespace, "rollout", "status", name, "--timeout=180s")
	}
}
