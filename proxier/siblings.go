package proxier

import (
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/proxier/outlier"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// When a node dies, its endpoints die together, but the kernel notices each of them only when one of its own clients
// repeats a packet. Where connections are few, that takes too long: after 3 seconds without an answer of the node's
// hardware address, the kernel tells all clients "no route to host". So the first silent endpoint of a node puts the
// other endpoints of that node under suspicion, in the Services that eject. They are asked as well, and only their own
// answers count. Two bad answers take 1.3 seconds, and clients repeat a packet after one: there is no time to wait for an
// answer of the first endpoint before.

const (
	// maxSiblings is how many endpoints come under suspicion with the first one of a node. Namespaces have turns: a tenant
	// may write the name of any node into thousands of endpoints.
	maxSiblings = 256
	// siblingPeriod is how often the endpoints of one node are looked for.
	siblingPeriod = 10 * time.Second
)

// siblingsOf is a node of which an endpoint gave no answer: to clients, and then to a question. The two do not share their
// period, so that a client that loses packets does not keep a dead node from being noticed.
type siblingsOf struct {
	node  string
	asked bool
}

type siblings struct {
	wanted map[siblingsOf]bool
	looked map[siblingsOf]time.Time
}

func newSiblings() siblings {
	return siblings{wanted: map[siblingsOf]bool{}, looked: map[siblingsOf]time.Time{}}
}

// want notes that an endpoint of a node gave no answer.
func (s *siblings) want(node siblingsOf, now time.Time) {
	for n, at := range s.looked {
		if now.Sub(at) >= siblingPeriod {
			delete(s.looked, n)
		}
	}
	if _, done := s.looked[node]; !done {
		s.wanted[node] = true
	}
}

// suspectSiblings puts the endpoints of such nodes under suspicion. Like suspect, it walks over all slices, and its walks
// take a twentieth of the time at most.
func (o *Outliers) suspectSiblings() {
	began := time.Now()
	if len(o.siblings.wanted) == 0 || began.Before(o.nextScan) {
		return
	}
	nodes := map[string]bool{}
	for of := range o.siblings.wanted {
		nodes[of.node] = true
	}
	found := o.findSiblings(nodes)
	o.findMembers(found)
	o.nextScan = began.Add(20 * time.Since(began))
	for of := range o.siblings.wanted {
		o.siblings.looked[of] = began
	}
	clear(o.siblings.wanted)
	o.mu.Lock()
	defer o.mu.Unlock()
	for at, members := range found {
		o.detector.Suspect(at, outlier.SameNode, members, began)
	}
}

// findSiblings finds the endpoints on some nodes in the Services that eject.
func (o *Outliers) findSiblings(nodes map[string]bool) map[netip.AddrPort][]outlier.Member {
	found := state.NewTurns[netip.AddrPort]()
	for _, sl := range o.Store.Slices() {
		ejects, known := false, false
		for i := range sl.Endpoints {
			e := &sl.Endpoints[i]
			if !nodes[e.Node] || e.Node == o.Settings.NodeName {
				continue
			}
			if !known {
				svc, _ := o.Store.Service(sl.Service)
				ejects, known = svc != nil && o.modeOf(svc.Name, svc.Outliers.Mode) == state.OutlierEject, true
			}
			if ejects {
				addSibling(&found, sl, e)
			}
		}
	}
	chosen := map[netip.AddrPort][]outlier.Member{}
	for _, at, more := found.Pop(); more && len(chosen) < maxSiblings; _, at, more = found.Pop() {
		chosen[at] = nil
	}
	return chosen
}

// addSibling adds the TCP ports of an endpoint. An endpoint may be found more than once.
func addSibling(found *state.Turns[netip.AddrPort], sl *state.Slice, e *state.Endpoint) {
	namespace := sl.Service.Namespace
	for _, p := range sl.Ports {
		if p.Protocol == state.TCP && found.Waiting(namespace) < maxSiblings {
			found.Push(namespace, netip.AddrPortFrom(e.Addr, p.Port))
		}
	}
}
