package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// rest is the pause between the first synchronization of a proxy and the measurement of its memory.
const rest = 3 * time.Second

// runProxy measures one proxy. Each proxy has its own node.
func runProxy(o *options, k *proxyKind, p *plane, dir string, services int, progress *measure.Progress) (out run, err error) {
	out = run{Proxy: k.name, Services: services}
	name := fmt.Sprintf("%s services, %s", measure.Count(services), k.name)
	path, err := measure.NewPath("bench")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, path.Close()) }()
	if err := p.connect(path.Node); err != nil {
		return out, err
	}
	kubeconfig, err := p.control.KubeProxy()
	if err != nil {
		return out, err
	}
	progress.Stage("%s: first sync", name)
	kernel, err := measure.SettledKernelMemory()
	if err != nil {
		return out, err
	}
	r, err := start(k, o, path.Node, dir, kubeconfig)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, r.process.Kill()) }()
	if err := out.firstSync(r, kernel); err != nil {
		return out, err
	}
	if out.ruleCounts, err = countRules(path.Node, k.legacy); err != nil {
		return out, err
	}
	progress.Stage("%s: changes", name)
	c := newChanger(p, services)
	if err := out.changes(o, r, c, path.Node, progress); err != nil {
		return out, err
	}
	progress.Stage("%s: %d changes per second", name, busyPerSecond)
	if err := out.busy(o, r, c); err != nil {
		return out, err
	}
	progress.Stage("%s: connections", name)
	out.Paths, err = measure.Compare(path, netip.AddrPortFrom(serviceIP(0), 80), func(done int) { progress.Step(done, measure.Rounds) })
	return out, err
}

// firstSync waits for the first synchronization and measures its cost.
func (out *run) firstSync(r *running, kernelBefore int64) error {
	took, err := r.waitSynced(func() {
		if _, child, err := r.usage(); err == nil { // an error means that the process is exiting, which waitSynced reports
			out.LargestChild = max(out.LargestChild, child)
		}
	})
	if err != nil {
		return err
	}
	out.FirstSync, out.Start = measure.Milliseconds(took), measure.Milliseconds(time.Since(r.started))
	used, _, err := r.usage()
	if err != nil {
		return err
	}
	out.SyncCPU = (used.CPU + used.ChildrenCPU).Seconds()
	time.Sleep(rest)
	used, _, err = r.usage()
	if err != nil {
		return err
	}
	kernel, err := measure.KernelMemory()
	out.Resident, out.Peak, out.Kernel = used.RSS, used.Peak, kernel-kernelBefore
	return err
}

// changes measures single changes, then a stream of them.
func (out *run) changes(o *options, r *running, c *changer, node *lab.Namespace, progress *measure.Progress) (err error) {
	watch := watchNotifications
	if r.kind.legacy {
		watch = watchEntries
	}
	w, err := watch(node)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	change, puts, err := c.isolated(w, o.changes, r.kind.quiet, func(done int) { progress.Step(done, o.changes) })
	if err != nil {
		return err
	}
	out.Change, out.Put = change.Quantiles(), puts.Quantiles()
	streamed := w
	if r.kind.legacy {
		streamed = nil // changes of iptables cannot be told apart
	}
	out.StreamCPU, err = r.cost(func() error {
		sample, err := c.stream(streamed, streamPerSecond, o.seconds)
		out.Stream = sample.Quantiles()
		return err
	})
	return err
}

// busy measures the cost of a stream of many changes. Nothing watches the kernel meanwhile.
func (out *run) busy(o *options, r *running, c *changer) (err error) {
	begin := time.Now()
	out.BusyCPU, err = r.cost(func() error {
		_, err := c.stream(nil, busyPerSecond, o.seconds)
		return err
	})
	out.BusyRate = float64(o.seconds*busyPerSecond) / time.Since(begin).Seconds()
	return err
}

// cost does work and returns the CPU time of the proxy and its children meanwhile, in percent of a core.
func (r *running) cost(work func() error) (float64, error) {
	before, _, err := r.usage()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := work(); err != nil {
		return 0, err
	}
	elapsed := time.Since(begin)
	after, _, err := r.usage()
	return 100 * (after.CPU + after.ChildrenCPU - before.CPU - before.ChildrenCPU).Seconds() / elapsed.Seconds(), err
}
