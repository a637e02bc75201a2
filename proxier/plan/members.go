package plan

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// flags are the properties by which an endpoint is chosen for a pool. A pool holds the endpoints that have all flags of
// a mask.
type flags uint16

const (
	ready    flags = 1 << iota
	draining       // terminating but still serving: used when no endpoint is ready
	flowing        // still serves the flows that it has
	local          // on this node
	terminating
	nodeHinted  // has the hint forNodes
	forThisNode // the hint forNodes names this node
	zoneHinted  // has the hint forZones
	forThisZone // the hint forZones names the zone of this node
	pooled      // in a pool of the current port
	backup      // gets connections only when no other endpoint is good
	failed      // Planner.Health has it
	bad         // failed, and counts as such: no more than a share of a pool counts
	accepts     // failed, and accepts connections
	misplaced   // in a range of cluster IPs, where nobody takes connections
	remote      // on another node
)

// member is an endpoint address of one slice. The address is kept as two numbers, because they sort fast.
type member struct {
	hi, lo uint64
	slice  uint32
	weight uint16
	flags  flags
}

// members are the endpoint addresses of a Service in one family.
type members struct {
	list  []member
	spare []member // the second buffer of the radix sort
}

func (env *Environment) flagsOf(e *state.Endpoint, sl *state.Slice, weight uint16) (f flags) {
	if slices.ContainsFunc(env.ServiceCIDRs, func(r netip.Prefix) bool { return r.Contains(e.Addr) }) {
		return misplaced
	}
	if e.Ready || e.Serving {
		// With publishNotReadyAddresses, endpoints are ready but not serving. They get connections, so they keep their
		// flows.
		f |= flowing
	}
	if weight > 0 && !env.Draining {
		// An endpoint of weight 0 gets no new connections, not even as a fallback.
		switch {
		case e.Ready:
			f |= ready
		case e.Serving && e.Terminating:
			f |= draining
		}
	}
	if e.Terminating {
		f |= terminating
	}
	if sl.Backup {
		f |= backup
	}
	switch e.Node {
	case "":
	case env.NodeName:
		f |= local
	default:
		f |= remote
	}
	if e.Hints != nil {
		f |= env.hints(e.Hints)
	}
	return f
}

// hints turns the hints of an endpoint into flags.
func (env *Environment) hints(h *state.Hints) (f flags) {
	if len(h.Nodes) > 0 {
		f |= nodeHinted
		if env.NodeName != "" && slices.Contains(h.Nodes, env.NodeName) {
			f |= forThisNode
		}
	}
	if len(h.Zones) > 0 {
		f |= zoneHinted
		if env.Zone != "" && slices.Contains(h.Zones, env.Zone) {
			f |= forThisZone
		}
	}
	return f
}

func numbers(a netip.Addr) (hi, lo uint64) {
	if a.Is4() {
		b := a.As4()
		return 0, uint64(binary.BigEndian.Uint32(b[:]))
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

func address(family state.Family, hi, lo uint64) netip.Addr {
	if family == state.IPv4 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(lo))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	return netip.AddrFrom16(b)
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// radixFrom is the size from which a radix sort is faster despite its fixed cost. A Service with thousands of endpoints
// is sorted again after every change of one of them, and a sort by comparison would cost more than the rest of its
// plan.
const radixFrom = 256

// sort sorts by address, and members with the same address by slice.
func (m *members) sort() {
	if len(m.list) >= radixFrom {
		m.radixSort()
		return
	}
	slices.SortFunc(m.list, func(a, b member) int {
		if a.hi != b.hi {
			return cmp.Compare(a.hi, b.hi)
		}
		if a.lo != b.lo {
			return cmp.Compare(a.lo, b.lo)
		}
		return cmp.Compare(a.slice, b.slice)
	})
}

// radixSort sorts byte by byte, beginning with the last byte. It skips bytes that are equal in all addresses, so a Pod
// network takes two or three rounds. The sort is stable, so equal addresses stay in the order of their slices.
func (m *members) radixSort() {
	from, to := m.list, slices.Grow(m.spare[:0], len(m.list))[:len(m.list)]
	var hi, lo uint64
	for i := range from {
		hi |= from[i].hi ^ from[0].hi
		lo |= from[i].lo ^ from[0].lo
	}
	for shift := uint(0); shift < 128; shift += 8 {
		varies := lo >> shift
		if shift >= 64 {
			varies = hi >> (shift - 64)
		}
		if varies&0xff != 0 {
			sortByte(from, to, shift)
			from, to = to, from
		}
	}
	m.list, m.spare = from, to
}

// sortByte copies the members of from into to, ordered by one byte of the address.
func sortByte(from, to []member, shift uint) {
	var next [256]uint32
	for i := range from {
		next[from[i].byteAt(shift)]++
	}
	sum := uint32(0)
	for i, n := range next {
		next[i] = sum
		sum += n
	}
	for i := range from {
		k := from[i].byteAt(shift)
		to[next[k]] = from[i]
		next[k]++
	}
}

func (m *member) byteAt(shift uint) uint8 {
	if shift < 64 {
		return uint8(m.lo >> shift)
	}
	return uint8(m.hi >> (shift - 64))
}

// givenNames are the names of the ports of one Service.
type givenNames struct {
	list   []string // the second family reuses them; "": not asked for yet
	prefix string
	alike  bool // two ports may be shown by the same name
	given  map[string]bool
}

// of returns the human-readable name of a port, which is its identity, too: no two ports of all Services have the
// same. It is called for the ports in their order. The second family reuses the string of the first.
func (n *givenNames) of(svc *state.Service, index int) string {
	if len(n.list) == 0 {
		n.open(svc)
	}
	if n.list[index] != "" {
		return n.list[index]
	}
	port := &svc.Ports[index]
	name := n.prefix + escaped(cmp.Or(port.Name, strconv.Itoa(int(port.Port))))
	if n.alike {
		if n.given[name] {
			name += "/" + port.Protocol.String()
		}
		if n.given[name] {
			name += "/" + strconv.Itoa(int(port.Port))
		}
		n.given[name] = true
	}
	n.list[index] = name
	return name
}

// open begins with a Service. The API server rejects equal and missing names. In manifests, DNS may have two ports that are both
// shown as 53.
func (n *givenNames) open(svc *state.Service) {
	n.list = append(n.list, make([]string, len(svc.Ports))...)
	n.prefix = escaped(svc.Namespace) + "/" + escaped(svc.Name.Name) + ":"
	n.alike = len(svc.Ports) > 1 && slices.ContainsFunc(svc.Ports, func(p state.ServicePort) bool {
		return p.Name == "" || p.Protocol != svc.Ports[0].Protocol // names of one protocol differ
	})
	if n.alike && n.given == nil {
		n.given = map[string]bool{}
	}
}

// forget leaves nothing but memory for the next Service. A map never shrinks, so a large one goes.
func (n *givenNames) forget() {
	clear(n.list)
	n.list = n.list[:0]
	if len(n.given) > few {
		n.given = nil
	}
	clear(n.given)
}

// escaped returns a part of a name as it is shown. The names of the API have letters, digits, "-" and "." only, and nft.Label
// has a tilde. Other characters could end the part, or what the name is printed in. They are shown by their codes.
func escaped(part string) string { return strings.ReplaceAll(url.QueryEscape(part), "+", "%20") } // "+" stands for a space
