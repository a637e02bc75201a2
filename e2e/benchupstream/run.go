package main

import (
	"errors"
	"maps"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// rest is the pause between the first synchronization of a proxy and the measurement of its memory.
const rest = 3 * time.Second

// runProxy measures one proxy. Each proxy has its own node.
func runProxy(o *options, k *proxyKind, p *plane, dir string, services int, out *measure.Lines) (err error) {
	at := suffix(k, services)
	path, err := measure.NewPath("bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, path.Close()) }()
	if err := p.connect(path.Node); err != nil {
		return err
	}
	kubeconfig, err := p.control.KubeProxy()
	if err != nil {
		return err
	}
	kernel, err := measure.SettledKernelMemory()
	if err != nil {
		return err
	}
	r, err := start(k, o, path.Node, dir, kubeconfig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.process.Kill()) }()
	if err := r.firstSync(kernel, out, at); err != nil {
		return err
	}
	rules, err := countRules(path.Node, k.legacy)
	if err != nil {
		return err
	}
	out.Add("Rules"+at, 1, rules)
	c := newChanger(p, services)
	if err := r.changes(o, c, path.Node, out, at); err != nil {
		return err
	}
	if err := r.busy(o, c, out, at); err != nil {
		return err
	}
	return measure.Compare(path, netip.AddrPortFrom(serviceIP(0), 80), out, at)
}

// firstSync waits for the first synchronization and measures its cost.
func (r *running) firstSync(kernelBefore int64, out *measure.Lines, at string) error {
	var largest int64
	took, err := r.waitSynced(func() {
		if _, child, err := r.usage(); err == nil { // an error means that the process is exiting, which waitSynced reports
			largest = max(largest, child)
		}
	})
	if err != nil {
		return err
	}
	sync := measure.Figures{"ns/op": float64(took), "start-ns": float64(time.Since(r.started))}
	used, _, err := r.usage()
	if err != nil {
		return err
	}
	sync["cpu-ns"] = float64(used.CPU + used.ChildrenCPU)
	out.Add("FirstSync"+at, 1, sync)
	time.Sleep(rest)
	used, _, err = r.usage()
	if err != nil {
		return err
	}
	kernel, err := measure.KernelMemory()
	out.Add("Memory"+at, 1, measure.Figures{
		"resident-B": float64(used.RSS), "peak-B": float64(used.Peak),
		"largest-child-B": float64(largest), "kernel-B": float64(kernel - kernelBefore),
	})
	return err
}

// changes measures single changes, then a stream of them.
func (r *running) changes(o *options, c *changer, node *lab.Namespace, out *measure.Lines, at string) (err error) {
	watch := watchNotifications
	if r.kind.legacy {
		watch = watchEntries
	}
	w, err := watch(node)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	change, puts, err := c.isolated(w, o.changes, r.kind.quiet)
	if err != nil {
		return err
	}
	added := change.Figures()
	added["put-p50-ns"] = float64(puts.Median())
	out.Add("EndpointAdded"+at, o.changes, added)
	streamed := w
	if r.kind.legacy {
		streamed = nil // changes of iptables cannot be told apart
	}
	var sample measure.Sample
	stream, err := r.cost(func() (err error) {
		sample, err = c.stream(streamed, streamPerSecond, o.seconds)
		return err
	})
	maps.Copy(stream, sample.Figures())
	out.Add("Stream"+at, o.seconds*streamPerSecond, stream)
	return err
}

// busy measures the cost of a stream of many changes. Nothing watches the kernel during it.
func (r *running) busy(o *options, c *changer, out *measure.Lines, at string) error {
	begin, n := time.Now(), o.seconds*busyPerSecond
	busy, err := r.cost(func() error {
		_, err := c.stream(nil, busyPerSecond, o.seconds)
		return err
	})
	if err != nil {
		return err
	}
	busy["changes/sec"] = float64(n) / time.Since(begin).Seconds()
	out.Add("BusyStream"+at, n, busy)
	return nil
}

// cost does work and returns the CPU time that the proxy and its children used during it, in percent of a core.
func (r *running) cost(work func() error) (measure.Figures, error) {
	before, _, err := r.usage()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := work(); err != nil {
		return nil, err
	}
	elapsed := time.Since(begin)
	after, _, err := r.usage()
	used := after.CPU + after.ChildrenCPU - before.CPU - before.ChildrenCPU
	return measure.Figures{"cpu-%": 100 * used.Seconds() / elapsed.Seconds()}, err
}
