package snapshot

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
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
	frontends, err := inspect.Counters(kernel.Options{}, match)
	if err != nil && !errors.Is(err, kernel.ErrNoTables) {
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
	for i := range servers {
		s := &servers[i]
		place := PlaceOf(netip.AddrPortFrom(s.Addr, s.Port), uint8(s.Protocol))
		service, ok := routed[place]
		if !ok {
			service = routed[atNodePort(place)]
		}
		c.frontends[counted{IPVS, place}] = totals{service: service, connections: s.Connections}
		for _, r := range s.RealServers {
			c.reals[EndpointKey{service, r.Addr, IPVS}] += r.Connections
		}
	}
	return c, nil
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
