package main

import (
	"fmt"

	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/proxier/state"
)

const (
	bigEndpoints  = 5000
	sliceSize     = 100 // endpoints; what the endpoint slice controller puts into one
	nodePortCount = 1000
	firstNodePort = 30_000
	manyServices  = 5000
	manyEach      = 50 // endpoints: 250,000 in total
	largeRounds   = 100
)

// measureLarge measures Services that are large themselves, or many on node ports, or large together.
func measureLarge(progress *measure.Progress) (out largeResult, err error) {
	progress.Stage("one service with %s endpoints", measure.Count(bigEndpoints))
	if out.BigService, err = measureBig(); err != nil {
		return out, err
	}
	progress.Stage("%s services on node ports", measure.Count(nodePortCount))
	if out.NodePorts, err = measureNodePorts(); err != nil {
		return out, err
	}
	progress.Stage("first sync with %s endpoints", measure.Count(manyServices*manyEach))
	out.ManyServices = manyServices
	out.ManyPods, err = measureMany()
	return out, err
}

// newBigCluster is a single Service that has thousands of endpoints, in slices of a hundred.
func newBigCluster() *cluster {
	c := newCluster(1, 0)
	c.slices = nil
	for i := range bigEndpoints / sliceSize {
		sl := c.slice(0, sliceSize)
		sl.Name.Name = fmt.Sprintf("%s-%03d", sl.Name.Name, i)
		c.slices = append(c.slices, sl)
	}
	return c
}

// measureBig changes one endpoint of a large Service.
func measureBig() (out bigService, err error) {
	c := newBigCluster()
	t, err := syncOnce(c, true, func(w *world) error {
		out.Change, err = replaceEndpoints(w, c)
		return err
	})
	out.FirstSync = t.result()
	return out, err
}

func replaceEndpoints(w *world, c *cluster) (changeResult, error) {
	var r recorder
	for range largeRounds {
		sl := c.replaceOne(c.pick())
		if err := r.record(w, func() { w.store.SetSlice(sl, nil) }); err != nil {
			return changeResult{}, err
		}
	}
	return r.result(), nil
}

// measureNodePorts gives every Service a node port of its own out of one range.
func measureNodePorts() (out nodePorts, err error) {
	c := newCluster(nodePortCount, perService)
	for i, svc := range c.services {
		svc.Ports = []state.ServicePort{{Name: "http", Protocol: state.TCP, Port: 80, NodePort: uint16(firstNodePort + i)}}
	}
	t, err := syncOnce(c, true, func(w *world) error {
		out.Change, err = replaceEndpoints(w, c)
		return err
	})
	out.FirstSync = t.result()
	return out, err
}

// measureMany starts with many endpoints in fewer Services.
func measureMany() (syncResult, error) {
	c := newCluster(manyServices, manyEach)
	var out syncResult
	totals, kernels := measure.Sample{}, measure.Sample{}
	for range 3 {
		t, err := syncOnce(c, true, nothing)
		if err != nil {
			return out, err
		}
		totals, kernels = append(totals, t.total), append(kernels, t.kernel)
		out.Elements, out.Bytes = t.elements, t.bytes
	}
	out.Median, out.Kernel = measure.Milliseconds(totals.Median()), measure.Milliseconds(kernels.Median())
	out.N = len(totals)
	return out, nil
}
