//go:build ipvs

package ipvsctl

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// testSchedulers sends connections through several schedulers and counts which pods answer. Each connection ends before
// the next one. IPVS may hear of its end later, so schedulers that count connections are in testHeldConnections.
func (d *director) testSchedulers(t *testing.T) {
	for _, tt := range []struct {
		scheduler string
		weights   []uint16
		n         int
		want      [podCount]int
	}{
		{"rr", []uint16{1, 1, 1}, 30, [podCount]int{10, 10, 10}},
		{"rr", []uint16{3, 1}, 20, [podCount]int{10, 10}}, // ignores weights
		{"wrr", []uint16{3, 1}, 40, [podCount]int{30, 10}},
		{"wrr", []uint16{2, 0, 1}, 30, [podCount]int{20, 0, 10}},
		{"fo", []uint16{1, 5, 2}, 10, [podCount]int{0, 10, 0}},
		{"ovf", []uint16{1, 5, 2}, 10, [podCount]int{0, 10, 0}},
	} {
		t.Run(fmt.Sprintf("%s/%v", tt.scheduler, tt.weights), func(t *testing.T) {
			v := d.frontend(lab.IPv4, TCP, tt.scheduler, tt.weights...)
			d.apply(t, v)
			if got := d.spread(t, &v, tt.n); got != tt.want {
				t.Errorf("pods answered %v times, want %v", got, tt.want)
			}
		})
	}
}

// testHeldConnections tests the schedulers that count connections. All connections stay open.
func (d *director) testHeldConnections(t *testing.T) {
	for _, tt := range []struct {
		scheduler string
		weights   []uint16
		n         int
		want      [podCount]int
		first     []int // the pods that get the first connections, in order
	}{
		{scheduler: "lc", weights: []uint16{1, 1, 1}, n: 9, want: [podCount]int{3, 3, 3}},
		{scheduler: "wlc", weights: []uint16{3, 1}, n: 8, want: [podCount]int{6, 2}},
		{scheduler: "sed", weights: []uint16{3, 1}, n: 8, want: [podCount]int{6, 2}},
		{scheduler: "sed", weights: []uint16{9, 1}, n: 8, want: [podCount]int{8, 0}},
		// never queue: an idle server comes before a faster one
		{scheduler: "nq", weights: []uint16{9, 1}, n: 8, want: [podCount]int{7, 1}, first: []int{1, 0, 0}},
		// overflow: the heaviest until it has more connections than its weight, then the next
		{scheduler: "ovf", weights: []uint16{2, 3, 1}, n: 9, want: [podCount]int{3, 4, 2}, first: []int{1, 1, 1, 1, 0, 0, 0, 2, 2}},
		{scheduler: "fo", weights: []uint16{2, 3, 1}, n: 6, want: [podCount]int{0, 6, 0}},
	} {
		t.Run(fmt.Sprintf("%s/%v", tt.scheduler, tt.weights), func(t *testing.T) {
			v := d.frontend(lab.IPv4, TCP, tt.scheduler, tt.weights...)
			d.apply(t, v)
			var got [podCount]int
			var order []int
			for range tt.n {
				_, i := d.held(t, client(lab.IPv4, 0), &v)
				got[i]++
				order = append(order, i)
			}
			if got != tt.want || !slices.Equal(order[:len(tt.first)], tt.first) {
				t.Errorf("pods answered %v times, in the order %v; want %v, beginning with %v", got, order, tt.want, tt.first)
			}
		})
	}
}

// testSlowPod checks that a pod that does not finish its connections gets no new ones while the other pod does.
func (d *director) testSlowPod(t *testing.T) {
	for _, scheduler := range []string{"lc", "wlc", "sed", "nq"} {
		t.Run(scheduler, func(t *testing.T) {
			v := d.frontend(lab.IPv4, TCP, scheduler, 1, 1)
			d.apply(t, v)
			slow := 0
			for range 30 {
				c, i := d.held(t, client(lab.IPv4, 0), &v)
				if i == 0 {
					slow++ // keeps its connection
				} else {
					c.Close()
				}
			}
			if slow > 2 {
				t.Errorf("the slow pod got %d of 30 connections", slow)
			}
		})
	}
}

// testTwos checks that the scheduler twos (power of two choices) spreads connections.
func (d *director) testTwos(t *testing.T) {
	v := d.frontend(lab.IPv4, TCP, "twos", 1, 1, 1)
	d.apply(t, v)
	got := d.spread(t, &v, 150)
	for i := range 3 {
		if got[i] < 10 { // 50 on average: fewer than 10 by chance once in 10^14 times
			t.Errorf("pods answered %v of 150 connections", got)
			break
		}
	}
}

// testByDestination checks that the schedulers that hash the frontend's address choose the same pod for every client.
func (d *director) testByDestination(t *testing.T) {
	for _, scheduler := range []string{"dh", "lblc", "lblcr"} {
		t.Run(scheduler, func(t *testing.T) {
			v := d.frontend(lab.IPv4, TCP, scheduler, 1, 1, 1)
			d.apply(t, v)
			got := d.byClient(t, &v)
			if slices.Min(got[:]) != slices.Max(got[:]) {
				t.Errorf("clients got the pods %v", got)
			}
		})
	}
}

// testBySource checks that the schedulers that hash the client's address give each client one pod, and use all pods.
// With the port in the hash they spread the connections of one client.
func (d *director) testBySource(t *testing.T) {
	for _, scheduler := range []string{"sh", "mh"} {
		for _, family := range lab.Families() {
			t.Run(scheduler+"/"+family.String(), func(t *testing.T) {
				v := d.frontend(family, TCP, scheduler, 1, 1, 1, 1)
				d.apply(t, v)
				first := d.byClient(t, &v)
				if again := d.byClient(t, &v); again != first {
					t.Errorf("clients got the pods\n%v, then\n%v", first, again)
				}
				if used := slices.Compact(slices.Sorted(slices.Values(first[:]))); len(used) != podCount {
					t.Errorf("%d clients got only the pods %v", clientCount, used)
				}
			})
		}
		t.Run(scheduler+"-port", func(t *testing.T) {
			v := d.frontend(lab.IPv4, TCP, scheduler, 1, 1)
			v.Flags = wire.HashPort
			d.apply(t, v)
			if got := d.spread(t, &v, 80); got[0] < 5 || got[1] < 5 {
				t.Errorf("80 connections of one client got %v", got)
			}
		})
	}
}

// testMaglevIsStable checks that mh (Maglev) moves hardly any client of the other pods when a pod goes. sh moves most.
func (d *director) testMaglevIsStable(t *testing.T) {
	v := d.frontend(lab.IPv4, TCP, "mh", 1, 1, 1, 1)
	d.apply(t, v)
	before := d.byClient(t, &v)
	v.RealServers = v.RealServers[:3]
	d.apply(t, v)
	d.endDrains(t)
	moved := 0
	for i, now := range d.byClient(t, &v) {
		if now == 3 {
			t.Errorf("client %d still gets the pod that is gone", i)
		}
		if before[i] != 3 && now != before[i] {
			moved++
		}
	}
	if moved > 2 {
		t.Errorf("%d of %d clients were moved", moved, clientCount)
	}
}

// testNobodyIsRefusedWhileAPodDrains checks that no client is refused while a pod drains, with any scheduler. The
// tables of dh, and of sh without sh-fallback, still select real servers of weight 0.
func (d *director) testNobodyIsRefusedWhileAPodDrains(t *testing.T) {
	for _, scheduler := range Schedulers() {
		t.Run(scheduler, func(t *testing.T) {
			for gone := range 3 {
				v := d.frontend(lab.IPv4, TCP, scheduler, 1, 1, 1)
				d.apply(t, v)
				v.RealServers = slices.Delete(slices.Clone(v.RealServers), gone, gone+1)
				d.apply(t, v)
				for i, got := range d.byClient(t, &v) {
					if got == gone {
						t.Errorf("client %d gets the pod that drains", i)
					}
				}
			}
		})
	}
}

// testProtocols tests every protocol in both families, from clients and from the node itself.
func (d *director) testProtocols(t *testing.T) {
	for _, p := range []Protocol{TCP, UDP, SCTP} {
		for _, family := range lab.Families() {
			t.Run(p.String()+"/"+family.String(), func(t *testing.T) {
				v := d.frontend(family, p, "rr", 1, 1, 1, 1)
				d.apply(t, v)
				if got := d.spread(t, &v, 20); got != [podCount]int{5, 5, 5, 5} {
					t.Errorf("from a client: pods answered %v times", got)
				}
				for range 4 {
					d.world.Node.Once(t, question(netip.Addr{}, &v))
				}
			})
		}
	}
}

// testPersistence checks that each client stays with its pod, and that the clients are spread over all pods.
func (d *director) testPersistence(t *testing.T) {
	for _, p := range []Protocol{TCP, UDP, SCTP} {
		for _, family := range lab.Families() {
			t.Run(p.String()+"/"+family.String(), func(t *testing.T) {
				v := d.frontend(family, p, "rr", 1, 1, 1, 1)
				v.Persistence = 10800e9
				d.apply(t, v)
				first := d.byClient(t, &v)
				if again := d.byClient(t, &v); again != first {
					t.Errorf("clients got the pods\n%v, then\n%v", first, again)
				}
				for i := range podCount {
					if n := count(first[:], i); n != clientCount/podCount {
						t.Errorf("pod %d has %d of %d clients", i, n, clientCount)
					}
				}
			})
		}
	}
}

func count(list []int, value int) int {
	n := 0
	for _, v := range list {
		if v == value {
			n++
		}
	}
	return n
}

// testPersistenceWithoutItsPod checks that a client whose pod drains gets another pod for its next connection, and that
// the other clients stay.
func (d *director) testPersistenceWithoutItsPod(t *testing.T) {
	v := d.frontend(lab.IPv4, TCP, "rr", 1, 1, 1, 1)
	v.Persistence = 10800e9
	d.apply(t, v)
	before := d.byClient(t, &v)
	v.RealServers = v.RealServers[1:]
	d.apply(t, v)
	for i, now := range d.byClient(t, &v) {
		if before[i] != 0 && now != before[i] {
			t.Errorf("client %d was moved from pod %d to %d", i, before[i], now)
		}
		if now == 0 {
			t.Errorf("client %d still gets the pod that drains", i)
		}
	}
}
