package runner

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Kind is which proxy is tested.
type Kind string

// The proxies.
const (
	Verdict   Kind = "verdict"
	KubeProxy Kind = "kube-proxy"
)

// Proxy is the program under test.
type Proxy struct {
	Kind   Kind
	Binary string
	// IPVS has IPVS serve all Services.
	IPVS bool
}

// command is how the program is started. Everything that is not said here is the program's default.
func (p Proxy) command(arguments []string) []string {
	common := []string{
		"--hostname-override=" + lab.NodeName, "--cluster-cidr=" + both("PODS"),
		"--healthz-bind-address=[::]:10256", "--metrics-bind-address=127.0.0.1:10249", "-v=4",
	}
	// A flag that a scenario gives takes the place of ours: lists would add up otherwise.
	common = slices.DeleteFunc(common, func(flag string) bool {
		name, _, _ := strings.Cut(flag, "=")
		return slices.ContainsFunc(arguments, func(own string) bool { return strings.HasPrefix(own, name+"=") })
	})
	// One without a value only takes ours away.
	arguments = slices.DeleteFunc(slices.Clone(arguments), func(flag string) bool { return strings.HasSuffix(flag, "=") })
	if p.Kind == Verdict {
		if p.IPVS {
			// Addresses of Services that are gone stay with the node while connections drain; scenarios wait for that.
			common = append(common, "--backend=ipvs", "--ipvs-fallback=false", "--ipvs-graceful-period=5s")
		}
		return slices.Concat([]string{p.Binary, "run"}, common, arguments)
	}
	upstream := []string{
		"--proxy-mode=nftables",
		"--iptables-min-sync-period=10ms", // holds for nftables, too; the default is 1 s for each change
		"--conntrack-max-per-core=0", "--conntrack-min=0",
		"--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
	}
	return slices.Concat([]string{p.Binary}, common, upstream, arguments)
}

// tables are what the programs leave in the kernel.
func (p Proxy) tables() []string {
	if p.Kind == Verdict {
		return []string{"ip verdict", "ip6 verdict"}
	}
	return []string{"ip kube-proxy", "ip6 kube-proxy"}
}

// proxy is the program as it runs.
type proxy struct {
	program   Proxy
	node      *lab.Namespace
	dir       string
	arguments []string

	mu       sync.Mutex
	process  *lab.Process
	expected bool // the process is meant to end
	started  time.Time
	failure  error
}

func newProxy(program Proxy, node *lab.Namespace, dir string) *proxy {
	return &proxy{program: program, node: node, dir: dir}
}

// start starts the program.
func (p *proxy) start(arguments []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arguments, p.expected, p.failure = arguments, false, nil
	return p.launch()
}

func (p *proxy) launch() error {
	process, err := lab.NewProcess(lab.ProcessOptions{
		Name: string(p.program.Kind), Namespace: p.node, Dir: p.dir, Command: p.program.command(p.arguments),
	})
	if err != nil {
		return err
	}
	p.process, p.started = process, time.Now()
	go p.watch(process)
	return nil
}

// shortLife is that of a kube-proxy that does not understand its arguments, and would end again.
const shortLife = 300 * time.Millisecond

// watch does for kube-proxy what the kubelet does: it ends itself when something changes that it cannot follow, and is
// started again. Verdict must not end.
func (p *proxy) watch(process *lab.Process) {
	<-process.Exited()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.expected || p.process != process {
		return
	}
	if p.program.Kind == KubeProxy && time.Since(p.started) > shortLife {
		p.failure = p.launch()
		return
	}
	p.failure = fmt.Errorf("%s ended by itself; its log ends:\n%s", process.Name, process.Log(10))
}

// err is why the program does not run although it should.
func (p *proxy) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure
}

// log is the end of the program's log.
func (p *proxy) log(lines int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return ""
	}
	return p.process.Log(lines)
}

// expectEnd says that the program is about to be ended.
func (p *proxy) expectEnd() *lab.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	process := p.process
	p.expected, p.process = true, nil
	return process
}

// stop asks the program to end. kube-proxy has no handler for SIGTERM: it ends with a code that says so.
func (p *proxy) stop() error {
	process := p.expectEnd()
	if process == nil {
		return nil
	}
	err := process.Stop()
	if p.program.Kind == KubeProxy {
		return nil
	}
	return err
}

func (p *proxy) kill() error {
	process := p.expectEnd()
	if process == nil {
		return nil
	}
	return process.Kill()
}

// clean removes what the program left in the kernel, without its help.
func (p *proxy) clean() error {
	var errs []error
	for _, t := range p.program.tables() {
		_, err := p.node.Command("nft", "add table "+t+"; delete table "+t)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, p.cleanIPVS())...)
}

// cleanIPVS does it in IPVS, where the kernel has it: all virtual servers, and the local addresses, which bear a number.
func (p *proxy) cleanIPVS() error {
	if err := p.node.Do(func() error { _, err := os.Stat("/proc/net/ip_vs"); return err }); err != nil {
		return nil //nolint:nilerr // no IPVS, nothing left in it
	}
	var errs []error
	for _, command := range []string{"ipvsadm -C", "ip -4 route flush table local proto 118", "ip -6 route flush table local proto 118"} {
		words := strings.Fields(command)
		_, err := p.node.Command(words[0], words[1:]...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
