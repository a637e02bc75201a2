package convert

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/verdict-proxy/verdict/proxier/source/shortform"
)

// keepalived reads a configuration of keepalived.
type keepalived struct{ *conversion }

func (c keepalived) read(text string) {
	file := c.parse(text)
	c.recognized = len(file.block) == 0
	c.known("file", file)
	groups := map[string]*statement{}
	used := map[string]bool{}
	for _, s := range file.block {
		switch {
		case s.word(0) != "virtual_server_group":
		case groups[s.word(1)] != nil:
			c.note(s.line, "%s: there are two of them; the first one is used", s)
		default:
			groups[s.word(1)] = s
		}
	}
	for _, s := range file.block {
		switch {
		case s.word(0) == "virtual_server" && s.word(1) == "group":
			used[s.word(2)] = true
			c.group(s, groups[s.word(2)])
		case s.word(0) == "virtual_server":
			c.single(s)
		}
	}
	for name, s := range groups {
		if !used[name] {
			c.note(s.line, "virtual_server_group %s: no virtual server uses it; it is left out", name)
		}
	}
}

// single reads a virtual server with an address.
func (c keepalived) single(s *statement) {
	at, err := addrPort(s.word(1), s.word(2))
	if err != nil {
		c.note(s.line, "%s: %s; it is left out", s, err)
		return
	}
	c.virtual(s, frontendName(c.protocol(s), at), at.Port(), []netip.Addr{at.Addr()})
}

// group reads a virtual server with a group of addresses: a balancer for each port.
func (c keepalived) group(s, group *statement) {
	if group == nil {
		c.note(s.line, "virtual_server group %s: there is no such group; it is left out", s.word(2))
		return
	}
	addresses := map[uint16][]netip.Addr{}
	var ports []uint16
	for _, entry := range group.block {
		list, port, err := entryOf(entry)
		if err != nil {
			c.note(entry.line, "%s: %s; it is left out", entry, err)
			continue
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
		addresses[port] = append(addresses[port], list...)
	}
	for _, port := range ports {
		name := s.word(2)
		if len(ports) > 1 {
			name = fmt.Sprintf("%s-%d", name, port)
		}
		c.virtual(s, name, port, addresses[port])
	}
}

// maxRange is how many addresses of a range are written.
const maxRange = 256

// entryOf reads an address or a range of addresses such as 192.0.2.3-10, and a port.
func entryOf(entry *statement) (list []netip.Addr, port uint16, err error) {
	first, last, isRange := strings.Cut(entry.word(0), "-")
	at, err := addrPort(first, entry.word(1))
	switch {
	case err != nil:
		return nil, 0, err
	case !isRange:
		return []netip.Addr{at.Addr()}, at.Port(), nil
	}
	cut, base := strings.LastIndexByte(first, '.')+1, 10
	if at.Addr().Is6() {
		cut, base = strings.LastIndexByte(first, ':')+1, 16
	}
	from, fromErr := strconv.ParseUint("0"+first[cut:], base, 32)
	to, err := strconv.ParseUint(last, base, 32)
	if fromErr != nil || err != nil || to < from || to-from >= maxRange {
		return nil, 0, fmt.Errorf("expected a range of at most %d addresses", maxRange)
	}
	for n := from; n <= to; n++ {
		at, err := addrPort(first[:cut]+strconv.FormatUint(n, base), entry.word(1))
		if err != nil {
			return nil, 0, err
		}
		list = append(list, at.Addr())
	}
	return list, at.Port(), nil
}

// addrPort parses the address of a host and a port. No port is port 0, which is all ports.
func addrPort(address, port string) (netip.AddrPort, error) {
	var a shortform.Address
	if err := a.UnmarshalText([]byte(address)); err != nil {
		return netip.AddrPort{}, err
	}
	n, err := strconv.ParseUint(cmp.Or(port, "0"), 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not a port", port)
	}
	return netip.AddrPortFrom(a.Addr, uint16(n)), nil
}

// protocol returns that of a virtual server. keepalived takes UDP if there is none.
func (c keepalived) protocol(s *statement) string {
	p := strings.ToUpper(value("protocol", s))
	if p != "TCP" && p != "UDP" && p != "SCTP" {
		c.note(s.line, "%s: it has no protocol, or one that keepalived does not know, so it serves UDP", s)
		p = "UDP"
	}
	return p
}

// virtual makes a balancer of a virtual server.
func (c keepalived) virtual(s *statement, name string, port uint16, addresses []netip.Addr) {
	b := c.balancer(s.line, s.String())
	c.named(b, name)
	b.listen(c.protocol(s), port, addresses...)
	b.Spec.Scheduler = "wlc" // of keepalived, if there is no other
	b.Spec.Forwarding = c.forwarding(s, port)
	for _, o := range s.block {
		c.option(b, o)
	}
	if (port == 0 || len(s.all("persistence_granularity")) > 0) && b.Spec.Affinity == 0 {
		c.persist(b, s.line, "") // as keepalived does
	}
	var serving []*statement
	for _, r := range s.all("real_server") {
		at, ok := c.serverAt(r, port)
		if ok && c.endpoint(b, r.line, at, c.way(find("lb_kind", r, s)), c.weight(r.line, value("weight", r, s)), false) {
			serving = append(serving, r)
		}
	}
	c.sorry(b, s, port)
	if len(b.Spec.Endpoints) == 0 {
		c.note(s.line, "%s: none of its real servers can be used, and keepalived ignores it without one; it is left out", s)
		c.balancers = c.balancers[:len(c.balancers)-1]
		return
	}
	c.finish(b)
	c.check(b, s, serving)
}

// option reads a statement of a virtual server.
func (c keepalived) option(b *balancer, o *statement) {
	switch word := o.name(); word {
	case "lb_algo":
		c.schedule(b, o.line, o.word(1))
	case "persistence_timeout":
		c.persist(b, o.line, o.word(1))
	case "persistence_granularity":
		c.note(o.line, "%s: Verdict has no counterpart", o)
	case "sh-port", "mh-port", "sh-fallback", "mh-fallback", "flag-1", "flag-2":
		c.flag(b, o.line, word)
	}
}

// forwarding returns how packets reach the endpoints: as the virtual server has it or, if it holds for none of them, as the
// first one has it.
func (c keepalived) forwarding(s *statement, port uint16) shortform.Forwarding {
	ways := []shortform.Forwarding{}
	for _, r := range s.all("real_server") {
		if _, ok := c.serverAt(r, port); ok {
			ways = append(ways, c.way(find("lb_kind", r, s)))
		}
	}
	way := c.way(find("lb_kind", s))
	if len(ways) == 0 || slices.Contains(ways, way) {
		return way
	}
	return ways[0]
}

// way reads how packets reach a server. "" is nat.
func (c keepalived) way(o *statement) shortform.Forwarding {
	switch o.word(1) {
	case "DR":
		return "route"
	case "TUN":
		return tunnel(o.words[2:]...)
	case "NAT", "":
	default:
		c.note(o.line, "%s: expected NAT, DR or TUN; NAT is written", o)
	}
	return ""
}

// tunnel returns a way of forwarding, whatever the order of the words.
func tunnel(words ...string) shortform.Forwarding {
	way := "tunnel"
	for _, w := range words {
		if !slices.Contains([]string{"", "type", "port", "ipip", "nocsum"}, w) {
			way += "," + w
		}
	}
	return shortform.Forwarding(way)
}

// serverAt parses the address of a server. Without a port, it has that of the virtual server.
func (c keepalived) serverAt(r *statement, port uint16) (netip.AddrPort, bool) {
	at, err := addrPort(r.word(1), r.word(2))
	if err != nil {
		c.note(r.line, "%s: %s; it is left out", r, err)
	}
	return netip.AddrPortFrom(at.Addr(), cmp.Or(at.Port(), port)), err == nil
}

// sorry reads the server of last resort. keepalived asks nobody whether it serves, so it gets connections even if it does
// not pass the check.
func (c keepalived) sorry(b *balancer, s *statement, port uint16) {
	r, way := find("sorry_server", s), find("sorry_server_lvs_method", s)
	if way.line == 0 {
		way = find("lb_kind", s)
	}
	if r.line == 0 {
		return
	}
	if at, ok := c.serverAt(r, port); ok && c.endpoint(b, r.line, at, c.way(way), nil, true) {
		b.Spec.OnAllDown = "backup"
	}
}
