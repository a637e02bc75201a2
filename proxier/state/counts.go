package state

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
	endpointsChanged
	healthChanged // not counted: upstream has nothing like it
)

// ChangeCounts returns the present counts.
func (b *backlog) ChangeCounts() ChangeCounts {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.counts
	for _, p := range b.dirty {
		if p.kinds&serviceChanged != 0 {
			c.PendingServices++
		}
		if p.kinds&endpointsChanged != 0 {
			c.PendingEndpoints++
		}
	}
	return c
}
