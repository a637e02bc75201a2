package state

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// backlog has the changes that the kernel does not have. Its locks are those of the whole Store, so that a change and its
// record here are one step.
type backlog struct {
	whole    sync.RWMutex // Together holds it; Take and Service wait for its end
	mu       sync.Mutex
	revision uint64
	dirty    map[Name]pending // the Services with changes that the kernel does not have
	counts   ChangeCounts
	queue    Turns[string] // the names of those that no pass has taken since
	first    Turns[string] // the same for Services of the cluster itself, which wait for no tenant
	envDirty uint64        // revision of the latest change of node, ranges or host addresses; 0: no change
	synced   bool
	wake     chan struct{}
}

// pending is a change of a Service that the kernel does not have.
type pending struct {
	latest uint64      // revision of the latest change
	queued bool        // no pass has taken the latest change
	kinds  changeKinds // what changed
	taken  changeKinds // what of that passes have taken
	// since is when the oldest of its changes came, and later the same for what came after a pass took the others. Zero:
	// none came after MarkSynced.
	since, later time.Time
}

// ChangeCounts count changes as the metrics of upstream kube-proxy do. An update that changes nothing for the proxy
// never reaches the store, so it does not count.
type ChangeCounts struct {
	Services, Endpoints               uint64 // since the start: changes of Services, and of EndpointSlices
	PendingServices, PendingEndpoints int    // Services with such changes that the kernel does not have
}

// changeKinds say what of a Service changed.
type changeKinds uint8

const (
	serviceChanged changeKinds = 1 << iota
	endpointAdded
	endpointRemoved
	healthChanged // not counted: upstream has nothing like it

	endpointsChanged = endpointAdded | endpointRemoved
)

// Latency is how long a change of some kind took from when the store had it until the kernel had it.
type Latency struct {
	Change string // one of Changed
	Took   time.Duration
}

// Changed are the kinds of changes that Applied knows, by the place of their bit.
func Changed() [3]string { return [...]string{"service", "endpoint_added", "endpoint_removed"} }

// pend adds n Services for which changes of some kinds wait. A scrape walks over no Services, so writers do not wait for it.
func (c *ChangeCounts) pend(kinds changeKinds, n int) {
	if kinds&serviceChanged != 0 {
		c.PendingServices += n
	}
	if kinds&endpointsChanged != 0 {
		c.PendingEndpoints += n
	}
}

// ChangeCounts returns the present counts.
func (b *backlog) ChangeCounts() ChangeCounts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts
}

// Wake delivers a value after a change. Several changes may share one value.
func (b *backlog) Wake() <-chan struct{} { return b.wake }

func (b *backlog) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// touch marks a Service as changed. The caller holds mu.
func (b *backlog) touch(n Name, kind changeKinds) {
	b.revision++
	before := b.dirty[n]
	if !before.queued {
		queue := &b.queue
		if n.OfCluster() {
			queue = &b.first
		}
		queue.Push(n.Namespace, n.Name)
	}
	fresh := kind &^ before.kinds
	if before.kinds&endpointsChanged != 0 {
		fresh &^= endpointsChanged
	}
	switch {
	case kind == serviceChanged:
		b.counts.Services++
	case kind&endpointsChanged != 0:
		b.counts.Endpoints++
	}
	b.counts.pend(fresh, 1)
	now := pending{latest: b.revision, queued: true, kinds: before.kinds | kind, taken: before.taken, since: before.since, later: before.later}
	if b.synced {
		switch {
		case now.since.IsZero():
			now.since = time.Now()
		case !before.queued && now.later.IsZero():
			now.later = time.Now()
		}
	}
	b.dirty[n] = now
	b.signal()
}

// PlanAgain has a Service planned again, although nothing of it has changed.
func (b *backlog) PlanAgain(n Name) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.touch(n, healthChanged)
}

// changeEnv changes the Environment.
func (b *backlog) changeEnv(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	b.touchEnv()
}

// touchEnv marks the Environment as changed. The caller holds mu.
func (b *backlog) touchEnv() {
	b.revision++
	b.envDirty = b.revision
	b.signal()
}

// Synced reports whether MarkSynced was called.
func (b *backlog) Synced() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.synced
}

// Together calls a function that makes several changes. Take and Service see all of them or none.
func (b *backlog) Together(change func()) {
	b.whole.Lock()
	defer b.whole.Unlock()
	change()
}

// Changes are changes up to Revision that Applied has not confirmed.
type Changes struct {
	Revision    uint64
	Services    []Name
	Environment bool
}

// Pending returns all changes that no successful pass has covered yet, in no particular order. It takes none, and
// returns false before MarkSynced.
func (b *backlog) Pending() (c Changes, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.synced {
		return Changes{}, false
	}
	return Changes{
		Revision:    b.revision,
		Services:    slices.Collect(maps.Keys(b.dirty)),
		Environment: b.envDirty != 0,
	}, true
}

// Take returns at most n Services that have changed and that no pass has taken since. Namespaces have turns, so that a
// tenant with many or expensive changes does not keep the others waiting. Services of the cluster itself come first. In a namespace, the change that waits longest comes first.
// What was taken stays pending until Applied. Take returns false before MarkSynced.
func (b *backlog) Take(n int) (c Changes, ok bool) {
	b.whole.RLock()
	defer b.whole.RUnlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.synced {
		return Changes{}, false
	}
	c = Changes{Revision: b.revision, Environment: b.envDirty != 0}
	for len(c.Services) < n {
		namespace, own, some := b.first.Pop()
		if !some {
			if namespace, own, some = b.queue.Pop(); !some {
				break
			}
		}
		name := Name{Namespace: namespace, Name: own}
		if p := b.dirty[name]; p.queued {
			p.queued, p.taken = false, p.kinds
			b.dirty[name] = p
			c.Services = append(c.Services, name)
		}
	}
	return c, true
}

// Turn is how much processor time a turn of a namespace costs: a small change takes about as long.
const Turn = 100 * time.Microsecond

// Charge notes what the turn of a namespace cost. If that is much, the namespace misses turns while others wait, until they have
// had as much.
func (b *backlog) Charge(namespace string, cost time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue.Charge(namespace, int(cost/Turn)-1)
}

// Hold keeps Take from returning Services of a namespace for some time. Their changes stay pending.
func (b *backlog) Hold(namespace string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue.Hold(namespace)
	time.AfterFunc(d, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.queue.Release(namespace)
		b.signal()
	})
}

// Rest reports whether Services wait to be taken.
func (b *backlog) Rest() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.synced && (!b.first.Empty() || !b.queue.Empty())
}

// Fresh reports whether the Service that Take returns next need not wait for others: its namespace had no turn yet, or it belongs
// to the cluster itself.
func (b *backlog) Fresh() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.synced && (!b.first.Empty() || len(b.queue.fresh) > 0)
}

// Applied forgets some changes up to their revision, because the kernel has them, and returns how long they took. Later changes
// stay pending.
func (b *backlog) Applied(c Changes) (took []Latency) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range c.Services {
		p := b.dirty[n]
		for i, kind := range Changed() {
			if p.taken&(1<<i) != 0 && !p.since.IsZero() {
				took = append(took, Latency{Change: kind, Took: time.Since(p.since)})
			}
		}
		if p.latest <= c.Revision {
			b.counts.pend(p.kinds, -1)
			delete(b.dirty, n)
		} else {
			p.since, p.later = p.later, time.Time{}
			b.dirty[n] = p
		}
	}
	if len(b.dirty) == 0 {
		// A map keeps the size that it once had, and walking it costs that size.
		b.dirty = map[Name]pending{}
	}
	if c.Environment && b.envDirty <= c.Revision {
		b.envDirty = 0
	}
	return took
}
