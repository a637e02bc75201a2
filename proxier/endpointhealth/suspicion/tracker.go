package suspicion

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
	"github.com/verdict-proxy/verdict/proxier/state"
)

const (
	// MaxTracked is how many endpoints can be under suspicion. One namespace can have a quarter of what others leave.
	MaxTracked  = 4096
	maxOfTenant = MaxTracked / 4
	// maxMembers is how many Services all of them can be in, and MaxMembersOfTenant how many of those can belong to one
	// namespace: work grows with them.
	maxMembers         = 4 * MaxTracked
	MaxMembersOfTenant = maxMembers / 4
)

// tracker remembers which endpoints are under suspicion, and which Services have them.
type tracker struct {
	tracked  map[netip.AddrPort]*endpoint
	addrs    map[netip.Addr]int // how many of the tracked endpoints have an address
	services map[state.Name]*suspects
	room     *schedule.Room // for endpoints
	members  *schedule.Room
	left     int // suspicions that found no room
}

// suspects are the tracked endpoints of a Service.
type suspects struct {
	endpoints map[netip.AddrPort]*endpoint
	doubtful  bool // no silent endpoint is added to the failures until others have answered
	fallen    bool // too many endpoints fell at once
}

func newTracker() tracker {
	return tracker{
		tracked: map[netip.AddrPort]*endpoint{}, addrs: map[netip.Addr]int{}, services: map[state.Name]*suspects{},
		room: schedule.NewRoom(MaxTracked, MaxTracked/maxOfTenant), members: schedule.NewRoom(maxMembers, maxMembers/MaxMembersOfTenant),
	}
}

// Idle reports whether no endpoint is under suspicion, so that Due has nothing to say.
func (t *tracker) Idle() bool { return len(t.tracked) == 0 }

// Knows reports whether a suspicion of the endpoint needs no members, because the detector has them.
func (t *tracker) Knows(at netip.AddrPort) bool { return t.tracked[at] != nil }

// Has reports whether an endpoint with an address is under suspicion.
func (t *tracker) Has(a netip.Addr) bool { return t.addrs[a] > 0 }

// payer returns the namespace with the fewest endpoints under suspicion. An endpoint counts for it, and it asks: a tenant who
// writes the endpoints of another into his slices takes none of his room, and none of his questions.
func (t *tracker) payer(members []Member) string {
	return slices.MinFunc(members, func(a, b Member) int {
		_, ofA := t.room.Used(a.Service.Namespace)
		_, ofB := t.room.Used(b.Service.Namespace)
		return cmp.Compare(ofA, ofB)
	}).Service.Namespace
}

// track begins to track an endpoint of some Services; nil: there is no room.
func (t *tracker) track(at netip.AddrPort, members []Member) *endpoint {
	e := &endpoint{Record: Record{At: at}, owner: t.payer(members)}
	e.due.Value = e
	if t.room.Full(e.owner) {
		t.left++
		return nil
	}
	for i := range members {
		t.link(e, members[i])
	}
	if len(e.Members) == 0 {
		return nil
	}
	t.tracked[at] = e
	t.addrs[at.Addr()]++
	t.room.Add(e.owner)
	return e
}

// link makes an endpoint known to a Service; false: there is no room.
func (t *tracker) link(e *endpoint, m Member) bool {
	if !t.members.Take(m.Service.Namespace) {
		t.left++
		return false
	}
	of := t.services[m.Service]
	if of == nil {
		of = &suspects{endpoints: map[netip.AddrPort]*endpoint{}}
		t.services[m.Service] = of
	}
	of.endpoints[e.At] = e
	e.Members = append(e.Members, m)
	return true
}

func (t *tracker) unlink(e *endpoint, service state.Name) {
	t.members.Leave(service.Namespace)
	of := t.services[service]
	if delete(of.endpoints, e.At); len(of.endpoints) == 0 {
		delete(t.services, service)
	}
}

// forget ends the tracking of an endpoint.
func (t *tracker) forget(e *endpoint) {
	for i := range e.Members {
		t.unlink(e, e.Members[i].Service)
	}
	delete(t.tracked, e.At)
	if t.addrs[e.At.Addr()]--; t.addrs[e.At.Addr()] == 0 {
		delete(t.addrs, e.At.Addr())
	}
	e.due.Leave()
	t.room.Leave(e.owner)
}

// Records returns what is known of the endpoints of a Service that are suspected or failed, sorted by address.
func (t *tracker) Records(service state.Name) []Record {
	if of := t.services[service]; of != nil {
		return t.records(of.endpoints)
	}
	return nil
}

// AllRecords is Records of all Services.
func (t *tracker) AllRecords() []Record { return t.records(t.tracked) }

func (t *tracker) records(endpoints map[netip.AddrPort]*endpoint) (list []Record) {
	for _, at := range slices.SortedFunc(maps.Keys(endpoints), netip.AddrPort.Compare) {
		if e := endpoints[at]; e.Phase != Calm {
			list = append(list, e.record())
		}
	}
	return list
}

// Withheld returns why a failed endpoint is not among the failures that it belongs to.
func (t *tracker) Withheld(r *Record) Hold {
	for i := range r.Members {
		switch of := t.services[r.Members[i].Service]; {
		case of.fallen:
			return Mass
		case of.doubtful:
			return Doubtful
		}
	}
	return None
}

// askWitnesses asks others than the endpoints under suspicion, on other nodes.
func (t *tracker) askWitnesses() *Inquiry {
	q := &Inquiry{Witnesses: true, Suspects: map[netip.Addr]bool{}}
	for at, e := range t.tracked {
		if q.Suspects[at.Addr()] = true; e.Phase != Calm {
			q.Nodes = append(q.Nodes, e.nodes()...)
		}
	}
	slices.Sort(q.Nodes)
	q.Nodes = slices.Compact(q.Nodes)
	return q
}

// Left returns how many suspicions found no room since the last call.
func (t *tracker) Left() int {
	n := t.left
	t.left = 0
	return n
}
