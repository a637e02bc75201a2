package runner

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Kind says which proxy is under test. Its tables in the kernel have the same name.
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
	// IPVS makes Verdict serve all Services with IPVS.
	IPVS bool
}

// command is the command line of the program. Settings that are not here have the program's defaults.
func (p Proxy) command(arguments []string) []string {
	common := []string{
		"--hostname-override=" + lab.NodeName, "--cluster-cidr=" + strings.Join(lab.Both("PODS"), ","),
		"--healthz-bind-address=[::]:10256", "--metrics-bind-address=127.0.0.1:10249", "-v=4",
	}
	// A scenario's flag replaces ours. If both were given, the values of lists would add up.
	common = slices.DeleteFunc(common, func(flag string) bool {
		name, _, _ := strings.Cut(flag, "=")
		return slices.ContainsFunc(arguments, func(own string) bool { return strings.HasPrefix(own, name+"=") })
	})
	// A scenario's flag without a value only removes ours.
	arguments = slices.DeleteFunc(slices.Clone(arguments), func(flag string) bool { return strings.HasSuffix(flag, "=") })
	if p.Kind == Verdict {
		if p.IPVS {
			// The node keeps the addresses of deleted Services while connections drain. Scenarios wait for the end of
			// that.
			common = append(common, "--backend=ipvs", "--ipvs-fallback=false", "--ipvs-graceful-period=5s",
				"--ipvs-external-cidrs=0.0.0.0/0,::/0")
		}
		return slices.Concat([]string{p.Binary, "run"}, common, arguments)
	}
	upstream := []string{
		"--proxy-mode=nftables",
		"--iptables-min-sync-period=10ms", // also applies to nftables; by default each change takes 1 s
		"--conntrack-max-per-core=0", "--conntrack-min=0",
		"--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
	}
	return slices.Concat([]string{p.Binary}, common, upstream, arguments)
}

// proxy is the running program.
type proxy struct {
	program   Proxy
	node      *lab.Namespace
	dir       string
	arguments []string

	mu      sync.Mutex
	process *lab.Process
	failure error // of an attempt to start kube-proxy again
}

// start starts the program.
func (p *proxy) start(arguments []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arguments, p.failure = arguments, nil
	return p.launch()
}

func (p *proxy) launch() (err error) {
	p.process, err = lab.NewProcess(lab.ProcessOptions{
		Name: string(p.program.Kind), Namespace: p.node, Dir: p.dir, Command: p.program.command(p.arguments),
	})
	if err == nil && p.program.Kind == KubeProxy {
		go p.startAgain(p.process, time.Now())
	}
	return err
}

// shortLife is longer than kube-proxy runs when it does not understand its arguments. Starting it again would not help.
const shortLife = 300 * time.Millisecond

// startAgain starts kube-proxy again after its end, as the kubelet would: it exits when something changes that it cannot
// follow. Verdict must not exit.
func (p *proxy) startAgain(process *lab.Process, started time.Time) {
	<-process.Exited()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process != process {
		return
	}
	if p.failure = process.EndedByItself(); p.failure != nil && time.Since(started) > shortLife {
		p.failure = p.launch()
	}
}

// err says why the program does not run although it should; nil means that it runs or was stopped.
func (p *proxy) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.program.Kind == KubeProxy {
		return p.failure
	}
	return p.process.EndedByItself()
}

// running returns the process; nil: there is none.
func (p *proxy) running() *lab.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process
}

// end ends the process, if there is one. From then on, there is none.
func (p *proxy) end(how func(*lab.Process) error) error {
	p.mu.Lock()
	process := p.process
	p.process = nil
	p.mu.Unlock()
	if process == nil {
		return nil
	}
	return how(process)
}

// stop ends the program with SIGTERM. kube-proxy has no handler for that signal, so its exit code is ignored.
func (p *proxy) stop() error {
	err := p.end((*lab.Process).Stop)
	if p.program.Kind == KubeProxy {
		return nil
	}
	return err
}

// kill ends the program with SIGKILL.
func (p *proxy) kill() error { return p.end((*lab.Process).Kill) }

// clean removes everything that the program left in the kernel. It does not use the program's own cleanup.
func (p *proxy) clean() error {
	// "add table ...; delete table ..." would fail: nobody may add a table that persists again without its flags.
	there, err := p.node.Command("nft", "list", "tables")
	errs := []error{err}
	for _, family := range []string{"ip", "ip6"} {
		if t := family + " " + string(p.program.Kind); strings.Contains(there, "table "+t+"\n") {
			_, err := p.node.Command("nft", "delete table "+t)
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, p.cleanIPVS())...)
}

// cleanIPVS removes all virtual servers, and the local routes that Verdict made for them, which have protocol 118. It
// does nothing on a kernel without IPVS.
func (p *proxy) cleanIPVS() error {
	if err := p.node.Do(func() error { _, err := os.Stat("/proc/net/ip_vs"); return err }); err != nil {
		return nil //nolint:nilerr // the kernel has no IPVS, so there is nothing to remove
	}
	var errs []error
	const flush = " route flush table local proto 118"
	for _, command := range []string{"ipvsadm -C", "ip -4" + flush, "ip -6" + flush} {
		words := strings.Fields(command)
		_, err := p.node.Command(words[0], words[1:]...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
