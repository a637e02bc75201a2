//go:build !nokernel

package nft

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/program"
)

// underLoad calls do while clients in both families connect to a cluster IP as fast as they can, again and again until
// there were enough connections. No connection may fail.
func (top *topology) underLoad(t *testing.T, do func()) {
	t.Helper()
	client := top.At(t, lab.Outside)
	var stop atomic.Bool
	var counts [2]atomic.Int64
	failures := make(chan error, len(counts))
	for _, f := range program.Families() {
		go func() {
			failures <- client.Do(func() error {
				q := question(tcp, netip.AddrPortFrom(serviceIP(f, 1), 80))
				for n := &counts[f.Index()]; !stop.Load(); n.Add(1) {
					if r := lab.Ask(q); r.Outcome != lab.Answered {
						return fmt.Errorf("connection %d (%s): %s", n.Load(), f, r)
					}
				}
				return nil
			})
		}()
	}
	const enough = 100
	made := func() int64 { return min(counts[0].Load(), counts[1].Load()) }
	for end := time.Now().Add(lab.Limit); ; {
		if do(); made() >= enough || time.Now().After(end) {
			break
		}
	}
	stop.Store(true)
	for range len(counts) {
		if err := <-failures; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d and %d connections", counts[0].Load(), counts[1].Load())
	if made() < enough && !t.Failed() {
		t.Errorf("too few connections to tell")
	}
}

func TestTakeoverUnderLoad(t *testing.T) {
	top := newTopology(t)
	start := func(restart int) {
		e := top.node.engine(t)
		e.SetGlobals(packetGlobals())
		for _, f := range program.Families() {
			mustSet(t, e, manyPorts(f, restart, 20)...)
			mustSet(t, e, packetPorts(f, tcp)...)
		}
		mustApply(t, e)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	start(0)
	top.underLoad(t, func() {
		for i := range 50 {
			start(i)
		}
	})
}

// TestChurnUnderLoad has endpoints come and go all the time. A packet that was given the class of the old number of
// slots may look up a slot that has just gone.
func TestChurnUnderLoad(t *testing.T) {
	for _, affinity := range []time.Duration{0, time.Hour} {
		t.Run(fmt.Sprintf("affinity %v", affinity), func(t *testing.T) {
			top := newTopology(t)
			e := top.node.engine(t)
			e.SetGlobals(packetGlobals())
			set := func(pods ...string) {
				for _, f := range program.Families() {
					port := packetPorts(f, tcp)[0]
					port.Affinity, port.Cluster = affinity, podEndpoints(f, pods...)
					mustSet(t, e, port)
				}
				mustApply(t, e)
				time.Sleep(500 * time.Microsecond) // no cluster is faster
			}
			set(podNames[:]...)
			top.underLoad(t, func() {
				for range 500 {
					set(podNames[0])
					set(podNames[:2]...)
					set(podNames[1:]...)
				}
			})
		})
	}
}

// TestClassesUnderLoad has a port change the way in which its endpoints are picked. A packet that was given
// the class before the change looks into maps of the time after it.
func TestClassesUnderLoad(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	e.SetGlobals(packetGlobals())
	ways := []struct {
		affinity time.Duration
		method   program.Method
		slots    uint16
	}{
		{0, program.Random, 0}, {time.Hour, program.Random, 0}, {0, program.InTurn, 0}, {2 * time.Hour, program.InTurn, 0}, {0, program.Random, 20}, {time.Hour, program.Random, 20},
		{0, program.SourceHash, 0}, {time.Hour, program.Random, 0},
	}
	n := 0
	set := func() {
		way := ways[n%len(ways)]
		n++
		for _, f := range program.Families() {
			port := packetPorts(f, tcp)[0]
			port.Affinity, port.Method, port.Cluster = way.affinity, way.method, podEndpoints(f, podNames[:]...)
			port.Cluster[0].Slots = way.slots
			mustSet(t, e, port)
		}
		mustApply(t, e)
	}
	set()
	top.underLoad(t, func() {
		for range 150 * len(ways) {
			set()
		}
	})
}

// TestRenamesUnderLoad has a port get another name all the time. A packet that was given the pool before the change finds
// it after the change, and all clients keep their endpoints.
func TestRenamesUnderLoad(t *testing.T) {
	for _, tt := range []struct {
		affinity time.Duration
		method   program.Method
	}{{0, program.Random}, {time.Hour, program.Random}, {0, program.SourceHash}} {
		t.Run(fmt.Sprintf("affinity %v, %v", tt.affinity, tt.method), func(t *testing.T) {
			top := newTopology(t)
			e := top.node.engine(t)
			e.SetGlobals(packetGlobals())
			names := [...]string{"test/cluster:http", "test/cluster:web"}
			n := 0
			set := func() {
				for _, f := range program.Families() {
					port := packetPorts(f, tcp)[0]
					port.Name, port.Formerly = names[n%2], names[1-n%2]
					port.Affinity, port.Method, port.Cluster = tt.affinity, tt.method, podEndpoints(f, podNames[:]...)
					mustSet(t, e, port)
				}
				mustApply(t, e)
				n++
			}
			set()
			before := [2]seats{}
			for _, f := range program.Families() {
				before[f.Index()] = top.askAll(t, f, tcp, netip.AddrPortFrom(serviceIP(f, 1), 80))
			}
			top.underLoad(t, func() {
				for range 4000 {
					set()
				}
			})
			for _, f := range program.Families() {
				if after := top.askAll(t, f, tcp, netip.AddrPortFrom(serviceIP(f, 1), 80)); tt.method == program.SourceHash || tt.affinity > 0 {
					before[f.Index()].expectSame(t, after, "after renames")
				}
			}
		})
	}
}
