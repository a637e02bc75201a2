// Package kernelmetrics shows to Prometheus what the kernel counts. It reads on each scrape, and only as much as a limit
// allows: a node with more frontends shows no connections. It reads with sockets of its own, so a scrape never waits for the
// loop, nor the loop for a scrape.
package kernelmetrics

import (
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/report"
)

// Options configure a Collector. The functions read from the kernel.
type Options struct {
	Elements func() []nft.SetElements // of the engine, without the kernel
	Affinity func() ([]inspect.AffinityEntries, error)
	Traffic  func(within time.Duration) ([]inspect.FrontendStatus, error)
	Servers  func(within time.Duration) ([]ipvsctl.Status, error) // the virtual servers of Verdict; nil: there are none
	Room     func() (conntrack.Room, error)                       // of the table of connections
	Passing  func() ([]socket.Passing, error)                     // open connections, as of a while ago
	FastPath func() socket.FastPath                               // without the ports that stay on the rules
	// Most is how many frontends the node may have; with more, Traffic and Servers are not called. 0: never call them.
	Most int
	Log  *slog.Logger
	Now  func() time.Time
}

// Collector implements prometheus.Collector.
type Collector struct {
	options Options

	mu       sync.Mutex
	read     time.Time           // when the kernel was read
	found    []prometheus.Metric // then
	ports    ports
	virtual  []ipvsctl.Status   // the virtual servers at their latest reading
	failures map[string]float64 // by what could not be read
	said     report.Lately      // the failures that were logged
}

// The limits of a scrape. Scrapes that follow at once get the values of the one before.
const (
	atMostEvery = time.Second
	within      = 250 * time.Millisecond
	sayAgain    = 10 * time.Minute
)

// New returns a Collector that has read nothing yet.
func New(o Options) *Collector {
	return &Collector{options: o, failures: map[string]float64{}, said: report.Lately{}}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// The metrics of a Collector.
var (
	elementsDesc = describe("verdict_map_elements",
		"Elements of maps and sets in the kernel, as Verdict wrote them. A range counts as two.", "ip_family", "map")
	roomDesc = describe("verdict_map_limit",
		"Elements of a map below which nothing is left out for lack of room. The other maps are bounded by memory only.", "ip_family", "map")
	entriesDesc = describe("verdict_affinity_entries",
		"Clients with session affinity in the kernel (Linux 6.16 and newer).", "ip_family")
	sizeDesc        = describe("verdict_affinity_size", "Clients for which the affinity map has room.", "ip_family")
	connectionsDesc = describe("verdict_service_connections_total",
		"Connections to a service port that nft or IPVS balanced, since Verdict started.", "ip_family", "namespace", "service", "port")
	refusedDesc = describe("verdict_service_refused_packets_total",
		"Packets to a service port that were refused, since Verdict started: there are no endpoints, or the policy leaves none.",
		"ip_family", "namespace", "service", "port", "reason")
	openDesc = describe("verdict_service_open_connections",
		"Open connections of a service port through this node, by who the client is (outside, pod, node) and where the endpoint is (here, elsewhere).",
		"namespace", "service", "port", "client", "endpoint")
	fastDesc = describe("verdict_fast_path",
		"1: connections of Services may take the fast path. 0: --fast-path=services has no effect, for a reason. Missing: --fast-path is off.", "reason")
	onFastDesc = describe("verdict_service_fast_path_connections",
		"Those of the open connections whose packets skip the rules of this node. Missing: --fast-path is off.",
		"namespace", "service", "port", "client", "endpoint")
	countedDesc = describe("verdict_service_connections_shown",
		"1: connections of service ports are shown. 0: the node has more frontends than --max-counted-frontends, or reading failed.")
	serversDesc = describe("verdict_ipvs_virtual_servers", "Virtual servers of Verdict in IPVS.")
	activeDesc  = describe("verdict_ipvs_connections", "Connections in IPVS to real servers of Verdict.", "state")
	trackedDesc = describe("verdict_conntrack_entries", "Connections in the table of the kernel.")
	limitDesc   = describe("verdict_conntrack_limit", "Connections for which the table of the kernel has room.")
	droppedDesc = describe("verdict_conntrack_full_total",
		"New connections that found the table full. evicted: another one without an answer made room; dropped: the connection failed.",
		"outcome")
	failuresDesc = describe("verdict_scrape_failures_total", "Readings of the kernel that failed during a scrape.", "source")
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, each := range []*prometheus.Desc{
		elementsDesc, roomDesc, entriesDesc, sizeDesc, connectionsDesc, refusedDesc, openDesc, countedDesc, serversDesc, activeDesc, failuresDesc,
		trackedDesc, limitDesc, droppedDesc, fastDesc, onFastDesc,
	} {
		to <- each
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.options.Now(); c.found == nil || now.Sub(c.read) >= atMostEvery {
		c.found, c.read = c.scrape(now), now
	}
	for _, m := range c.found {
		to <- m
	}
}

// scrape reads everything.
func (c *Collector) scrape(now time.Time) []prometheus.Metric {
	s := &scrape{}
	frontends := c.elements(s)
	c.affinity(s, now)
	c.room(s, now)
	c.passing(s, now, frontends <= c.options.Most)
	shown := 0.0
	if frontends <= c.options.Most {
		all := c.servers(s, now)
		if c.connections(s, now) && all {
			shown = 1
		}
	}
	s.gauge(countedDesc, shown)
	for _, source := range []string{"affinity", "connections", "conntrack", "ipvs", "open connections"} {
		s.counter(failuresDesc, c.failures[source], source)
	}
	return s.found
}

// scrape collects metrics.
type scrape struct{ found []prometheus.Metric }

func (s *scrape) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.found = append(s.found, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...))
}

func (s *scrape) counter(d *prometheus.Desc, v float64, labels ...string) {
	s.found = append(s.found, prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...))
}

// elements shows the size of each map, and returns how many frontends there are.
func (c *Collector) elements(s *scrape) (frontends int) {
	for _, e := range c.options.Elements() {
		s.gauge(elementsDesc, float64(e.Elements), e.Family.Version(), e.Set.Name())
		if e.Limit > 0 {
			s.gauge(roomDesc, float64(e.Limit), e.Family.Version(), e.Set.Name())
		}
		if e.Set.Says().Counted() {
			frontends += e.Elements
		}
	}
	return frontends
}

func (c *Collector) affinity(s *scrape, now time.Time) {
	list, err := c.options.Affinity()
	if err != nil {
		c.failed("affinity", now, err)
		return
	}
	for _, a := range list {
		s.gauge(sizeDesc, float64(a.Size), a.Family.Version())
		if a.Entries >= 0 {
			s.gauge(entriesDesc, float64(a.Entries), a.Family.Version())
		}
	}
}

// room shows how full the table of connections is.
func (c *Collector) room(s *scrape, now time.Time) {
	r, err := c.options.Room()
	if err != nil {
		c.failed("conntrack", now, err)
		return
	}
	s.gauge(trackedDesc, float64(r.Entries))
	s.gauge(limitDesc, float64(r.Limit))
	s.counter(droppedDesc, float64(r.Evicted), "evicted")
	s.counter(droppedDesc, float64(r.Dropped), "dropped")
}

// passing shows the open connections and those on the fast path: of each service port, or of all together if there are too many.
func (c *Collector) passing(s *scrape, now time.Time, each bool) {
	fast := c.options.FastPath()
	if fast.After > 0 {
		on := 0.0
		if fast.On() {
			on = 1
		}
		s.gauge(fastDesc, on, fast.NoEffect)
	}
	rows, err := c.options.Passing()
	if err != nil {
		c.failed("open connections", now, err)
		return
	}
	sums := map[socket.Passing]socket.Passing{}
	for _, row := range rows {
		of := socket.Passing{Service: row.Service, Client: row.Client, Endpoint: row.Endpoint}
		if !each {
			of.Service = ""
		}
		was := sums[of]
		sums[of] = socket.Passing{Open: was.Open + row.Open, FastPath: was.FastPath + row.FastPath}
	}
	for row, n := range sums {
		namespace, service, port := splitName(row.Service)
		s.gauge(openDesc, float64(n.Open), namespace, service, port, row.Client, row.Endpoint)
		if fast.On() {
			s.gauge(onFastDesc, float64(n.FastPath), namespace, service, port, row.Client, row.Endpoint)
		}
	}
}

// servers shows the virtual servers, notes them, and reports whether it could. After a failure, what was noted stays, so that
// no counter falls.
func (c *Collector) servers(s *scrape, now time.Time) bool {
	if c.options.Servers == nil || c.options.Most == 0 {
		return true
	}
	list, err := c.options.Servers(within)
	if err != nil {
		c.failed("ipvs", now, err)
		return false
	}
	active, inactive := 0, 0
	for i := range list {
		for _, r := range list[i].RealServers {
			active, inactive = active+r.Active, inactive+r.Inactive
		}
	}
	s.gauge(serversDesc, float64(len(list)))
	s.gauge(activeDesc, float64(active), "active")
	s.gauge(activeDesc, float64(inactive), "inactive")
	c.virtual = list
	return true
}

// failed counts a reading that failed, and logs it from time to time.
func (c *Collector) failed(source string, now time.Time, err error) {
	c.failures[source]++
	if !c.said.Due(source, sayAgain, now) {
		return
	}
	c.options.Log.Warn("cannot read from the kernel for the metrics; this scrape lacks them, the next one tries again",
		"source", source, "error", err)
}

// splitName returns the parts of the name of a service port, namespace/name:port. A name that was truncated may lack
// some; then all of it is the name of the Service.
func splitName(name string) (namespace, service, port string) {
	name = strings.ToValidUTF8(name, "")
	namespace, rest, ok := strings.Cut(name, "/")
	colon := strings.LastIndexByte(rest, ':')
	if !ok || colon < 0 {
		return "", name, ""
	}
	return namespace, rest[:colon], rest[colon+1:]
}

// ports add up what the kernel counted, by service port. The kernel's counter of a frontend starts again when the
// element is replaced, and a service port has several frontends. Their plain sum could fall by a part, and Prometheus
// would take the rest for new connections.
type ports struct {
	latest map[counter]uint64 // at the latest reading
	totals map[port]uint64
}

// port is a service port, and what was counted: "" for connections, or why packets were refused.
type port struct {
	family       program.Family
	name, reason string
}

// place is where a frontend answers. A node port has no address.
type place struct {
	family   program.Family
	addr     netip.Addr
	protocol uint8
	port     uint16
}

// counter is a counter of the kernel: at a frontend of a service port, or of a virtual server. That one goes on when it becomes
// that of another service port.
type counter struct {
	place
	port // the zero value: it is of a virtual server
}

// add takes a reading of the rules and of the virtual servers over. It forgets frontends and service ports that are gone.
// What a virtual server balanced counts for the service port that the rules name for it. A virtual server that drains has
// none. That of a node port has an address of the node.
func (p *ports) add(list []inspect.FrontendStatus, servers []ipvsctl.Status) {
	before := *p
	p.latest, p.totals = make(map[counter]uint64, len(list)), make(map[port]uint64, len(before.totals))
	count := func(c counter, of port, packets uint64) {
		p.latest[c] = packets
		if of.name == "" && c.port == (port{}) {
			return
		}
		if _, ok := p.totals[of]; !ok {
			p.totals[of] = before.totals[of]
		}
		if was := before.latest[c]; was <= packets {
			packets -= was
		}
		p.totals[of] += packets
	}
	names := map[place]string{} // of what IPVS serves
	for i := range list {
		fe := &list[i]
		at, of := place{fe.Family, fe.Addr, fe.Protocol, fe.Port}, port{fe.Family, fe.Name, ""}
		if fe.IPVS {
			names[at] = fe.Name
		}
		if fe.Pool != program.NoPool {
			count(counter{at, of}, of, fe.Connections)
		}
		if of.reason = reason(fe.Refusal); of.reason != "" {
			count(counter{at, of}, of, fe.Refused)
		}
	}
	for i := range servers {
		v := &servers[i]
		at := place{program.FamilyOf(v.Addr), v.Addr, uint8(v.Protocol), v.Port}
		name, ok := names[at]
		if !ok {
			name = names[place{at.family, netip.Addr{}, at.protocol, at.port}]
		}
		count(counter{place: at}, port{at.family, name, ""}, v.Connections)
	}
}

// reason says why the packets that a frontend counts were refused; "": they were not.
func reason(r program.Refusal) string {
	switch r {
	case program.Reject:
		return "no_endpoints"
	case program.Drop:
		return "no_local_endpoints"
	}
	return ""
}

// connections shows what service ports have, and reports whether it could.
func (c *Collector) connections(s *scrape, now time.Time) bool {
	if c.options.Most == 0 {
		return false
	}
	list, err := c.options.Traffic(within)
	if err != nil {
		c.failed("connections", now, err)
		return false
	}
	c.ports.add(list, c.virtual)
	for of, n := range c.ports.totals {
		namespace, service, name := splitName(of.name)
		if of.reason == "" {
			s.counter(connectionsDesc, float64(n), of.family.Version(), namespace, service, name)
		} else {
			s.counter(refusedDesc, float64(n), of.family.Version(), namespace, service, name, of.reason)
		}
	}
	return true
}
