package snapshot

import (
	"cmp"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

// Counts are the connections that each frontend has had, and those that were refused, at one moment.
type Counts struct {
	at        time.Time
	frontends map[counted]totals
	reals     map[EndpointKey]uint64 // of IPVS, which counts for each real server
}

// counted names a frontend in the counters of one engine.
type counted struct {
	engine string
	Place
}

type totals struct {
	service              string // namespace/name:port; "": unknown
	connections, refused uint64
}

// ReadCounts reads the counters of both engines, without endpoints.
func ReadCounts(match func(string) bool) (Counts, error) {
	c := Counts{at: time.Now(), frontends: map[counted]totals{}, reals: map[EndpointKey]uint64{}}
	frontends, err := inspect.Counters(kernel.Options{}, 0, match)
	if err != nil {
		return c, fmt.Errorf("read the counters of nft frontends: %w", err)
	}
	routed := map[Place]string{} // service ports of frontends that IPVS serves
	for i := range frontends {
		fe := describe(&frontends[i])
		c.frontends[counted{NFT, fe.place()}] = totals{fe.Service, frontends[i].Connections, frontends[i].Refused}
		if frontends[i].IPVS {
			routed[fe.place()] = fe.Service
		}
	}
	servers, err := VirtualServers()
	if err != nil {
		return c, fmt.Errorf("read the counters of virtual servers: %w", err)
	}
	c.addServers(servers, routed, match != nil)
	return c, nil
}

// addServers adds the counters of virtual servers. Routed are the service ports that IPVS serves; if they are filtered, others are
// not counted.
func (c *Counts) addServers(servers []ipvsctl.Status, routed map[Place]string, filtered bool) {
	for i := range servers {
		s := &servers[i]
		place := PlaceOf(netip.AddrPortFrom(s.Addr, s.Port), uint8(s.Protocol))
		service, ok := routed[place]
		if !ok {
			service, ok = routed[atNodePort(place)]
		}
		if !ok && filtered {
			continue // of a Service that nobody asks for
		}
		c.frontends[counted{IPVS, place}] = totals{service: service, connections: s.Connections}
		for _, r := range s.RealServers {
			c.reals[EndpointKey{service, r.Addr, IPVS}] += r.Connections
		}
	}
}

// service is the service port of the nft frontend at a place.
func (c *Counts) service(p Place) (string, bool) {
	t, ok := c.frontends[counted{NFT, p}]
	if !ok {
		t, ok = c.frontends[counted{NFT, atNodePort(p)}]
	}
	return t.service, ok
}

// SetRates computes connections per second since the earlier counts. A frontend that is new since then, or whose counter
// began anew, has no rate.
func (t *Table) SetRates(before Counts, now time.Time) {
	seconds := now.Sub(before.at).Seconds()
	for i := range t.Frontends {
		fe := &t.Frontends[i]
		was, ok := before.frontends[counted{fe.Engine, fe.place()}]
		if !ok || fe.Connections < was.connections || fe.Refused < was.refused || seconds <= 0 {
			continue
		}
		rate, refused := float64(fe.Connections-was.connections)/seconds, float64(fe.Refused-was.refused)/seconds
		fe.Rate, fe.RefusedRate = &rate, &refused
	}
}

// Load is what a service port gets.
type Load struct {
	Service string  `json:"service"`              // namespace/name:port
	Rate    float64 `json:"connectionsPerSecond"` // new connections
	Refused float64 `json:"refusedPerSecond"`     // connections that no endpoint can take
	Total   uint64  `json:"connectionsTotal"`     // since the frontends were written
}

// Loads adds up the frontends of each service port. A counter that began anew counts from 0.
func (c *Counts) Loads(before Counts) (rows []Load) {
	seconds := c.at.Sub(before.at).Seconds()
	byName := map[string]*Load{}
	for at, t := range c.frontends {
		row := byName[t.service]
		if row == nil {
			row = &Load{Service: cmp.Or(t.service, "-")}
			byName[t.service] = row
		}
		row.Total += t.connections
		if was := before.frontends[at]; before.frontends != nil && seconds > 0 {
			row.Rate += float64(t.connections-min(was.connections, t.connections)) / seconds
			row.Refused += float64(t.refused-min(was.refused, t.refused)) / seconds
		}
	}
	for _, row := range byName {
		rows = append(rows, *row)
	}
	return rows
}

// EndpointKey is an endpoint of a service port, in one engine.
type EndpointKey struct {
	Service string // namespace/name:port
	At      netip.AddrPort
	Engine  string
}

// EndpointRates returns new connections of endpoints per second between two readings. IPVS has a counter for each real
// server. nft has none, so the kernel's messages about new flows were counted: each has the endpoint that was picked.
func EndpointRates(flows map[conntrack.Route]uint64, before, now Counts) map[EndpointKey]float64 {
	rates, seconds := map[EndpointKey]float64{}, now.at.Sub(before.at).Seconds()
	for way, n := range flows {
		if service, ok := now.service(PlaceOf(way.Dst, way.Protocol)); ok {
			rates[EndpointKey{service, way.Reply, NFT}] += float64(n) / seconds
		}
	}
	for key, n := range now.reals {
		if was, known := before.reals[key]; known && n > was {
			rates[key] += float64(n-was) / seconds
		}
	}
	return rates
}

// Meter measures loads for any number of readers. It reads the counters of the kernel at most once a second, and spends
// at most a twentieth of the time with that. While nobody asks, it reads nothing.
type Meter struct {
	mu     sync.Mutex
	before Counts
	next   time.Time
	last   Reading
	err    error // of the last reading
}

// Reading is the last measurement.
type Reading struct {
	Seconds float64 // over which the rates are; 0: there are no rates yet
	Loads   []Load  // in no order; nobody may change it
}

// meterPause is the least time between two readings; a reading that takes longer than meterShare of it waits longer.
const (
	meterPause = time.Second
	meterShare = 20
	meterStale = 10 * time.Second // rates over a longer time are not live
)

// Read returns the last reading, and reads anew if that is old enough.
func (m *Meter) Read() (Reading, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	began := time.Now()
	if began.Before(m.next) {
		return m.last, m.err
	}
	now, err := ReadCounts(nil)
	took := time.Since(began)
	m.next = began.Add(max(meterPause, meterShare*took))
	if m.err = err; err != nil {
		return m.last, err
	}
	if now.at.Sub(m.before.at) > max(meterStale, 2*meterShare*took) {
		m.before = Counts{at: now.at}
	}
	m.last = Reading{Seconds: now.at.Sub(m.before.at).Seconds(), Loads: now.Loads(m.before)}
	m.before = now
	return m.last, nil
}
