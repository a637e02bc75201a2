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

// changed counts a change of a Service that had changes of some kinds before.
func (c *ChangeCounts) changed(before, kind changeKinds) {
	switch kind {
	case serviceChanged:
		c.Services++
	case endpointsChanged:
		c.Endpoints++
	}
	c.pending(kind&^before, 1)
}

// applied takes the changes of a Service out, because the kernel has them.
func (c *ChangeCounts) applied(kinds changeKinds) { c.pending(kinds, -1) }

func (c *ChangeCounts) pending(kinds changeKinds, sign int) {
	if kinds&serviceChanged != 0 {
		c.PendingServices += sign
	}
	if kinds&endpointsChanged != 0 {
		c.PendingEndpoints += sign
	}
}
