package list

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

// endpointKey is an endpoint of a service port.
type endpointKey struct {
	service string // namespace/name:port
	at      netip.AddrPort
	engine  string
}

// endpointLoad is a row: one endpoint.
type endpointLoad struct {
	endpointKey
	rate float64
}

// endpointMeter counts new connections of endpoints. IPVS has a counter for each real server. nft has none, so the
// kernel's messages about new flows are counted: each has the endpoint that was picked.
type endpointMeter struct {
	opened *conntrack.Opened
	lost   bool // in the latest interval
}

func openEndpointMeter() (*endpointMeter, error) {
	opened, err := conntrack.WatchOpened(conntrack.Options{})
	if err != nil {
		return nil, fmt.Errorf("count new connections of endpoints: %w", err)
	}
	return &endpointMeter{opened: opened}, nil
}

func (m *endpointMeter) close() { _ = m.opened.Close() } // it was only read from

// take returns the rates since the latest call, which was at the time of before.
func (m *endpointMeter) take(before, now counts) ([]endpointLoad, error) {
	flows, lost, err := m.opened.Take()
	if err != nil {
		return nil, err
	}
	m.lost = lost
	number := map[endpointKey]uint64{}
	for way, n := range flows {
		if service, ok := now.serviceAt(way.Protocol, way.Dst); ok {
			number[endpointKey{service, way.Reply, engineNFT}] += n
		}
	}
	for key, n := range now.reals {
		if was, known := before.reals[key]; known && n > was {
			number[key] += n - was
		}
	}
	seconds := now.at.Sub(before.at).Seconds()
	var rows []endpointLoad
	for key, n := range number {
		rows = append(rows, endpointLoad{key, float64(n) / seconds})
	}
	return rows, nil
}

// serviceAt is the service port of the nft frontend at a destination.
func (c *counts) serviceAt(protocol uint8, at netip.AddrPort) (string, bool) {
	key := counted{engineNFT, familyName(nft.FamilyOf(at.Addr())), protocolName(protocol), at.Addr(), at.Port()}
	t, ok := c.total[key]
	if !ok {
		key.addr = netip.Addr{}
		t, ok = c.total[key]
	}
	return t.service, ok
}

func sortEndpoints(rows []endpointLoad, column string) {
	slices.SortFunc(rows, func(a, b endpointLoad) int {
		first := 0
		if column != "name" { // the other columns are of service ports
			first = cmp.Compare(b.rate, a.rate)
		}
		return cmp.Or(first, cmp.Compare(a.service, b.service), a.at.Compare(b.at))
	})
}

// writeEndpoints writes the table, cut to a size; 0: not cut.
func writeEndpoints(w io.Writer, rows []endpointLoad, width, height int) {
	if height > 1 && len(rows) > height-1 {
		rows = rows[:height-1]
	}
	name, end := len("Service"), len("Endpoint")
	for i := range rows {
		name, end = max(name, len(rows[i].service)), max(end, len(rows[i].at.String()))
	}
	if width > 0 {
		name = min(name, max(width-end-23, 10))
	}
	fmt.Fprintf(w, "%-*s %-*s %10s %s\n", name, "Service", end, "Endpoint", "Conn/s", "Counted by")
	for i := range rows {
		r := &rows[i]
		source := "conntrack"
		if r.engine == engineIPVS {
			source = engineIPVS
		}
		fmt.Fprintf(w, "%-*s %-*s %10.1f %s\n", name, cut(dash(r.service), name), end, r.at, r.rate, source)
	}
}

// cut shortens a text, and marks that.
func cut(text string, most int) string {
	if len(text) > most {
		return text[:most-1] + "~"
	}
	return text
}
