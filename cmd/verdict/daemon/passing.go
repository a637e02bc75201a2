package daemon

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// passing counts the open connections of Services: where their endpoints are, and who their clients are.
type passing struct {
	store    *state.Store
	settings func() *config.Settings
	ipvs     bool

	reading sync.Mutex // one at a time
	began   time.Time  // of the last reading
	took    time.Duration

	mu   sync.Mutex
	rows []socket.Passing
	err  error
}

// passingShare bounds readings: they take the twentieth part of the time at most. So a large table is
// read less often.
const passingShare = 20

// read returns a reading that is not older than a time, unless the table is large.
func (p *passing) read(within time.Duration) ([]socket.Passing, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	if now := time.Now(); now.Sub(p.began) >= max(within, passingShare*p.took) {
		rows, err := p.count(p.ipvs)
		p.began, p.took = now, time.Since(now)
		p.mu.Lock()
		p.rows, p.err = rows, err
		p.mu.Unlock()
	}
	return p.last()
}

func (p *passing) last() ([]socket.Passing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rows, p.err
}

// latest returns the last reading, and has a new one made if it is old: whoever asks does not wait for a large table.
func (p *passing) latest() ([]socket.Passing, error) {
	go func() { _, _ = p.read(socket.PassingPeriod) }() // it is kept
	return p.last()
}

// Who a client is.
const (
	outside uint8 = iota
	pod
	thisNode
)

// reading is what a table of the kernel had, and what tells whose connections these are.
type reading struct {
	ways   map[conntrack.Way]conntrack.Load
	client func(netip.Addr) uint8
	here   map[netip.Addr]bool // which endpoints are on this node
	served served
}

// count reads the table of the kernel, with what IPVS carries or without.
func (p *passing) count(ipvs bool) ([]socket.Passing, error) {
	r, err := p.look(ipvs)
	if err != nil {
		return nil, err
	}
	return r.sum(), nil
}

func (p *passing) look(ipvs bool) (r reading, err error) {
	s, env := p.settings(), p.store.Environment()
	pods := config.Prefixes(s.ClusterCIDRs)
	if env.Node != nil {
		pods = append(pods, env.Node.PodCIDRs...)
	}
	r.ways, r.client = map[conntrack.Way]conntrack.Load{}, func(a netip.Addr) uint8 {
		switch {
		case slices.Contains(env.HostAddresses, a):
			return thisNode
		case slices.ContainsFunc(pods, func(r netip.Prefix) bool { return r.Contains(a) }):
			return pod
		}
		return outside
	}
	for _, family := range []state.Family{state.IPv4, state.IPv6} {
		some, err := conntrack.CountWays(conntrack.Options{}, family, ipvs, r.client)
		if err != nil {
			return r, err
		}
		maps.Copy(r.ways, some)
	}
	r.here, r.served = p.here(r.ways, s.NodeName, &env), servedAt(p.store)
	return r, nil
}

// end has the TCP connections end that die with this node, and returns how many there are. Those that were not masqueraded would find
// their endpoint again, and IPVS keeps its own.
func (p *passing) end() (n int, err error) {
	r, err := p.look(false)
	if err != nil {
		return 0, err
	}
	for _, family := range []state.Family{state.IPv4, state.IPv6} {
		some, err := conntrack.End(conntrack.Options{}, family, r.client, func(w conntrack.Way) bool {
			row, ok := r.row(w)
			row.Open = 1
			return ok && w.Masqueraded && socket.Stranded([]socket.Passing{row}) > 0
		})
		if n += some; err != nil {
			return n, err
		}
	}
	return n, nil
}

// here says which endpoints are on this node.
func (p *passing) here(ways map[conntrack.Way]conntrack.Load, node string, env *state.Environment) map[netip.Addr]bool {
	here := map[netip.Addr]bool{}
	for w := range ways { // one of no slice, such as one that is gone, is judged by its address
		a := w.Reply.Addr()
		here[a] = slices.Contains(env.HostAddresses, a) ||
			env.Node != nil && slices.ContainsFunc(env.Node.PodCIDRs, func(r netip.Prefix) bool { return r.Contains(a) })
	}
	for _, sl := range p.store.Slices() {
		for i := range sl.Endpoints {
			e := &sl.Endpoints[i]
			if _, asked := here[e.Addr]; asked && e.Node != "" {
				here[e.Addr] = e.Node == node
			}
		}
	}
	return here
}

// row says whose connections are on a way, if they are those of a Service.
func (r *reading) row(w conntrack.Way) (row socket.Passing, ok bool) {
	at, ok := r.served.find(w.Dst, w.Protocol)
	row = socket.Passing{Service: at.name, Client: socket.ClientOutside, Endpoint: socket.EndpointElsewhere}
	switch {
	case w.Client == thisNode:
		row.Client = socket.ClientNode
	case w.Client == pod, at.clusterIP && !w.Masqueraded: // the answers to others come back by masquerading
		row.Client = socket.ClientPod
	}
	if r.here[w.Reply.Addr()] {
		row.Endpoint = socket.EndpointHere
	}
	return row, ok
}

// sum adds up the connections of each service port.
func (r *reading) sum() []socket.Passing {
	sums := map[socket.Passing]conntrack.Load{}
	for w, load := range r.ways {
		if row, ok := r.row(w); ok && load.Active > 0 {
			was := sums[row]
			sums[row] = conntrack.Load{Active: was.Active + load.Active, FastPath: was.FastPath + load.FastPath}
		}
	}
	rows := make([]socket.Passing, 0, len(sums))
	for row, n := range sums {
		row.Open, row.FastPath = n.Active, n.FastPath
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b socket.Passing) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Client, b.Client), cmp.Compare(a.Endpoint, b.Endpoint))
	})
	return rows
}

// served are the places where Services are served; a node port has no address.
type served struct {
	at     map[state.Place]servicePort
	ranges []portRange
}

type servicePort struct {
	name      string // namespace/name:port
	clusterIP bool
}

// portRange is where a range of ports is served.
type portRange struct {
	servicePort
	first state.Place
	last  uint16
}

func servedAt(store *state.Store) served {
	out := served{at: map[state.Place]servicePort{}}
	for _, name := range store.ServiceNames() {
		svc, _ := store.Service(name)
		if svc == nil {
			continue
		}
		for _, p := range svc.Ports {
			of := servicePort{name: name.String() + ":" + cmp.Or(p.Name, strconv.Itoa(int(p.Port)))}
			for i, list := range [][]netip.Addr{svc.ClusterIPs, svc.ExternalIPs, svc.LoadBalancerIPs} {
				of.clusterIP = i == 0
				for _, a := range list {
					at := state.Place{Addr: a, Protocol: p.Protocol, Port: p.Port}
					if out.at[at] = of; p.EndPort != 0 {
						out.ranges = append(out.ranges, portRange{of, at, p.EndPort})
					}
				}
			}
			if of.clusterIP = false; p.NodePort != 0 {
				out.at[state.Place{Protocol: p.Protocol, Port: p.NodePort}] = of
			}
		}
	}
	return out
}

// find returns the service port that is served at an address.
func (s *served) find(dst netip.AddrPort, protocol uint8) (servicePort, bool) {
	at := state.Place{Addr: dst.Addr(), Protocol: state.Protocol(protocol), Port: dst.Port()}
	of, ok := s.at[at]
	if !ok {
		of, ok = s.at[state.Place{Protocol: at.Protocol, Port: at.Port}]
	}
	if i := slices.IndexFunc(s.ranges, func(r portRange) bool {
		return r.first.Port <= at.Port && at.Port <= r.last && r.first.Addr == at.Addr && r.first.Protocol == at.Protocol
	}); !ok && i >= 0 {
		return s.ranges[i].servicePort, true
	}
	return of, ok
}
