package main

import (
	"fmt"

	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/proxier/state"
)

const (
	bigEndpoints  = 5000
	sliceSize     = 100 // endpoints, as the endpoint slice controller puts into one slice
	nodePortCount = 1000
	firstNodePort = 30_000
	manyEach      = 50 // endpoints of each Service
)

// The names of the clusters with large Services in benchmarks.
const (
	bigCase      = "case=one-service"
	nodePortCase = "case=node-ports"
	manyCase     = "case=many-endpoints"
)

// measureLarge measures one large Service, many Services on node ports, and many endpoints in total.
func measureLarge(e effort, out *measure.Lines, progress *measure.Progress) error {
	progress.Stage("one service with %s endpoints", measure.Count(bigEndpoints))
	if err := measureCase(newBigCluster(), e, out, "/"+bigCase); err != nil {
		return err
	}
	progress.Stage("%s services on node ports", measure.Count(nodePortCount))
	if err := measureCase(newNodePortCluster(), e, out, "/"+nodePortCase); err != nil {
		return err
	}
	progress.Stage("first sync with %s endpoints", measure.Count(e.manyServices*manyEach))
	c := newCluster(e.manyServices, manyEach)
	for range e.largeSyncs {
		if err := runBenchmark(out, "FirstSync/"+manyCase, 1, firstSyncs(c)); err != nil {
			return err
		}
	}
	return nil
}

// measureCase replaces endpoints of a cluster, one after the other.
func measureCase(c *cluster, e effort, out *measure.Lines, at string) error {
	var sync syncTimes
	if err := runBenchmark(out, "EndpointReplaced"+at, e.largeChanges, pausedChanges(c, &sync)); err != nil {
		return err
	}
	out.Add("FirstSync"+at, 1, sync.figures())
	return nil
}

// newBigCluster is a single Service with thousands of endpoints in many slices.
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

// newNodePortCluster gives every Service a node port of its own.
func newNodePortCluster() *cluster {
	c := newCluster(nodePortCount, perService)
	for i, svc := range c.services {
		port := state.ServicePort{Name: "http", Protocol: state.TCP, Port: 80, NodePort: uint16(firstNodePort + i)}
		svc.Ports = []state.ServicePort{port}
	}
	return c
}
