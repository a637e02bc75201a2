package nft

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Listing is what both tables say, whichever process wrote them and whether it still runs or not.
type Listing struct {
	Frontends         []FrontendStatus // by family; those with an address first; by address, port, protocol
	NodePortAddresses []netip.Addr
	// Torn says that somebody changed nf_tables whenever we read: the lines may be from different moments.
	Torn bool
}

// FrontendStatus is a frontend as the kernel has it.
type FrontendStatus struct {
	Family   Family
	Name     string // namespace/name:port, cut to the length of a comment
	Protocol uint8
	Addr     netip.Addr // the zero Addr: a node port, reached at every node-port address
	Port     uint16

	Pool       PoolChoice
	Method     Method        // SourceHash and InTurn are how several schedulers are served
	Affinity   time.Duration // 0: none
	Refusal    Refusal
	Firewalled bool
	IPVS       bool // a virtual server takes what the pool does not

	Cluster, Local []EndpointStatus // of the pools that serve the frontend, sorted by address
}

// EndpointStatus is an endpoint with its share of a pool.
type EndpointStatus struct {
	Addr  netip.AddrPort
	Slots int
}

// ErrNoTables means that there is nothing to list.
var ErrNoTables = errors.New("there is neither a table ip verdict nor a table ip6 verdict")

// listTries is how often reading begins anew when the tables change meanwhile.
const listTries = 3

// List reads both tables. It has a socket of its own and may be called from any goroutine, also in another process than
// the engine's. With match, only frontends are read whose name it accepts.
//
// A dump of a set is quadratic in the kernel (it walks the set from its start for each 32 KiB that it hands out), and
// endpoints are ten times as many as frontends. So frontends and pools are dumped, and slots are asked for one by one.
func List(o Options, match func(name string) bool) (Listing, error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return Listing{}, err
	}
	families := o.Families
	if len(families) == 0 {
		both := Families()
		families = both[:]
	}
	out, err := list(c, families, match)
	return out, errors.Join(err, c.close())
}

// readable is what a listing needs of nf_tables: a netlink socket (conn), or a model in memory (memoryKernel).
type readable interface {
	// generation is the number of the latest change of any table.
	generation() (uint32, error)
	// surveySets reads which sets there are.
	surveySets(f Family) (existing, error)
	// dumpElements reads all elements of a map of plain data.
	dumpElements(f Family, set string, each func(key, data []byte, comment string)) error
	// lookupRow asks for several elements and hands over what they hold, up to the first one that does not exist. It
	// returns how many exist.
	lookupRow(f Family, set string, keys [][]byte, each func(data []byte)) (found int, err error)
}

func list(k readable, families []Family, match func(string) bool) (Listing, error) {
	for try := 1; ; try++ {
		before, err := k.generation()
		if err != nil {
			return Listing{}, err
		}
		out, err := listOnce(k, families, match)
		if err != nil {
			return Listing{}, err
		}
		after, err := k.generation()
		if err != nil || before == after || try == listTries {
			out.Torn = before != after
			return out, err
		}
	}
}

func listOnce(k readable, families []Family, match func(string) bool) (Listing, error) {
	var out Listing
	found := false
	for _, f := range families {
		was, err := k.surveySets(f)
		switch {
		case err != nil:
			return out, fmt.Errorf("read table %s %s: %w", f, TableName, err)
		case !was.table:
			continue
		case !was.sameLayout:
			return out, fmt.Errorf("table %s %s is not laid out as %q; list it with the version of Verdict that wrote it",
				f, TableName, layoutComment)
		}
		found = true
		l := newLister(k, f, was, match)
		if err := l.read(&out); err != nil {
			return out, fmt.Errorf("read table %s %s: %w", f, TableName, err)
		}
	}
	if !found {
		return out, ErrNoTables
	}
	return out, nil
}

func (s *FrontendStatus) compare(o *FrontendStatus) int {
	nodePort := func(s *FrontendStatus) int {
		if s.Addr.IsValid() {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(nodePort(s), nodePort(o)), s.Addr.Compare(o.Addr), cmp.Compare(s.Port, o.Port),
		cmp.Compare(s.Protocol, o.Protocol))
}

// countSlots lists the endpoints behind the slots of a pool.
func countSlots(slots []netip.AddrPort) []EndpointStatus {
	slices.SortFunc(slots, netip.AddrPort.Compare)
	var out []EndpointStatus
	for i, addr := range slots {
		if i == 0 || slots[i-1] != addr {
			out = append(out, EndpointStatus{Addr: addr})
		}
		out[len(out)-1].Slots++
	}
	return out
}
