package list

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
)

// counts are the connections that each frontend has had, and those that were refused.
type counts struct {
	at    time.Time
	total map[counted]totals
	reals map[endpointKey]uint64 // of IPVS, which counts for each real server
}

// counted names a frontend in the counters of one engine.
type counted struct {
	engine, family, protocol string
	addr                     netip.Addr
	port                     uint16
}

type totals struct {
	service              string // namespace/name:port; "": unknown
	connections, refused uint64
}

func (fe *frontend) counted() counted {
	return counted{fe.Engine, fe.Family, fe.Protocol, fe.Address, fe.Port}
}

// readCounts reads the counters of both engines, without endpoints.
func readCounts(match func(string) bool) (counts, error) {
	c := counts{at: time.Now(), total: map[counted]totals{}, reals: map[endpointKey]uint64{}}
	frontends, err := nft.Counters(nft.Options{}, match)
	if err != nil && !errors.Is(err, nft.ErrNoTables) {
		return c, fmt.Errorf("read the counters of nft frontends: %w", err)
	}
	for i := range frontends {
		fe := describe(&frontends[i])
		fe.Engine = engineNFT
		c.total[fe.counted()] = totals{fe.Service, frontends[i].Connections, frontends[i].Refused}
	}
	servers, err := VirtualServers()
	if err != nil {
		return c, fmt.Errorf("read the counters of virtual servers: %w", err)
	}
	names := routedNames(frontends)
	for i := range servers {
		c.addServer(&servers[i], names)
	}
	return c, nil
}

// routedNames are the service ports of frontends that IPVS serves, by address and for node ports without it.
func routedNames(frontends []nft.FrontendStatus) map[frontendKey]string {
	names := map[frontendKey]string{}
	for i := range frontends {
		if fe := &frontends[i]; fe.IPVS {
			names[frontendKey{family: fe.Family, addr: fe.Addr, protocol: fe.Protocol, port: fe.Port}] = fe.Name
		}
	}
	return names
}

func (c *counts) addServer(s *ipvsctl.Status, names map[frontendKey]string) {
	at := counted{engineIPVS, familyName(nft.FamilyOf(s.Addr)), protocolName(uint8(s.Protocol)), s.Addr, s.Port}
	key := frontendKey{family: nft.FamilyOf(s.Addr), addr: s.Addr, protocol: uint8(s.Protocol), port: s.Port}
	service, ok := names[key]
	if !ok {
		key.addr = netip.Addr{}
		service = names[key]
	}
	c.total[at] = totals{service: service, connections: s.Connections}
	for i := range s.RealServers {
		r := &s.RealServers[i]
		c.reals[endpointKey{service, r.Addr, engineIPVS}] += r.Connections
	}
}

// setRates computes connections per second since the earlier counts. A frontend that is new since then, or whose counter
// began anew, has no rate.
func (t *table) setRates(before counts, now time.Time) {
	seconds := now.Sub(before.at).Seconds()
	for i := range t.Frontends {
		fe := &t.Frontends[i]
		was, ok := before.total[fe.counted()]
		if !ok || fe.Connections < was.connections || fe.Refused < was.refused || seconds <= 0 {
			continue
		}
		rate, refused := float64(fe.Connections-was.connections)/seconds, float64(fe.Refused-was.refused)/seconds
		fe.Rate, fe.RefusedRate = &rate, &refused
	}
}
