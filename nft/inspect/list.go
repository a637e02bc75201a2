package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Listing is the content of both tables. It does not matter which process wrote them, and whether it still runs.
type Listing struct {
	Frontends         []FrontendStatus // by family; those with an address first; by address, port, protocol
	NodePortAddresses []netip.Addr
	// Torn means that nf_tables changed during each attempt to read it: the lines may be from different moments.
	Torn bool
}

// FrontendStatus is a frontend as the kernel has it.
type FrontendStatus struct {
	Family   program.Family
	Name     string // namespace/name:port, as Label shows it
	Protocol uint8
	Addr     netip.Addr // the zero Addr: a node port, reached at every node-port address
	Port     uint16
	LastPort uint16 // of a range; 0: the frontend has one port

	Pool       program.PoolChoice
	Method     program.Method // several schedulers are SourceHash here, and several are InTurn
	Affinity   time.Duration  // 0: none
	Refusal    program.Refusal
	Firewalled bool
	IPVS       bool // a virtual server serves the packets that the pool does not take
	// Connections is how many connections got a pool, Refused how many were refused or dropped because no endpoint can
	// take them. Both count from when the element was written.
	Connections, Refused uint64

	Cluster, Local []EndpointStatus // the pools that serve the frontend, each sorted by address
}

// EndpointStatus is an endpoint and its share of a pool.
type EndpointStatus struct {
	Addr  netip.AddrPort
	Slots int
}

// Serving reports whether the kernel has frontends, of whichever process.
func Serving() (bool, error) {
	found, err := List(kernel.Options{}, nil)
	if errors.Is(err, kernel.ErrNoTables) {
		return false, nil
	}
	return len(found.Frontends) > 0, err
}

// tries is how often the tables are read if they change during the reading.
const tries = 3

// List reads both tables. It opens a socket of its own. Any goroutine may call it, also in another process than that of
// the engine. If match is not nil, List reads only frontends whose name match accepts.
//
// A dump of a set takes quadratic time in the kernel, which walks the set from its start for each 32 KiB of the answer.
// There may be ten times as many endpoints as frontends. So List dumps frontends and pools, and asks for the slots of
// each pool by their keys.
func List(o kernel.Options, match func(name string) bool) (Listing, error) {
	return dialed(o, func(c *kernel.Conn) (Listing, error) { return ListFrom(c, o.Served(), match) })
}

// dialed reads over a socket of its own.
func dialed[T any](o kernel.Options, read func(*kernel.Conn) (T, error)) (out T, err error) {
	err = kernel.With(o, func(c *kernel.Conn) (err error) {
		out, err = read(c)
		return err
	})
	return out, err
}

// ListFrom does the same with any reader.
func ListFrom(k kernel.Reader, families []program.Family, match func(string) bool) (out Listing, err error) {
	torn, err := Whole(k, func() error {
		out = Listing{}
		return eachTable(k, families, func(t *table, was kernel.Existing) error {
			if !was.SameLayout {
				return fmt.Errorf("it does not have the layout %q; list it with the version of Verdict that wrote it", program.LayoutComment)
			}
			return t.list(&out, match)
		})
	})
	out.Torn = torn
	return out, err
}

// list reads one table.
func (t *table) list(out *Listing, match func(string) bool) error {
	addresses, err := t.addresses(program.NodePortAddresses)
	frontends, frontendsErr := t.frontends(nil, match)
	if err := errors.Join(err, frontendsErr, t.load(program.Pools, program.Dispatch)); err != nil {
		return err
	}
	first := len(out.Frontends)
	for _, fe := range frontends {
		if err := t.readPools(fe); err != nil {
			return err
		}
		out.Frontends = append(out.Frontends, fe.FrontendStatus)
	}
	out.NodePortAddresses = append(out.NodePortAddresses, addresses...)
	slices.SortFunc(out.Frontends[first:], func(a, b FrontendStatus) int { return a.Compare(&b) })
	return nil
}

// Counters reads the frontends of both tables with their counters, without endpoints. It takes a fraction of the time of
// List. The frontends have no order. Without tables there are none. If there is a time, it gives up after that, reads each set only
// once (see table.dump), and does not put together what several sets have of a frontend.
func Counters(o kernel.Options, within time.Duration, match func(name string) bool) ([]FrontendStatus, error) {
	list, err := dialed(o, func(c *kernel.Conn) ([]FrontendStatus, error) {
		if within != 0 {
			c.Deadline = time.Now().Add(within)
		}
		return CountersFrom(c, within != 0, match)
	})
	if errors.Is(err, kernel.ErrNoTables) {
		err = nil
	}
	return list, err
}

// CountersFrom does the same with any reader: once, or until nothing changes meanwhile.
func CountersFrom(k kernel.Reader, once bool, match func(string) bool) (out []FrontendStatus, err error) {
	families := program.Families()
	err = eachTable(k, families[:], func(t *table, _ kernel.Existing) error {
		t.once = once
		frontends, err := t.frontends(nil, match)
		out = slices.Grow(out, len(frontends))
		for _, fe := range frontends {
			out = append(out, fe.FrontendStatus)
		}
		return err
	})
	return out, err
}

// Whole reads until nf_tables does not change during the reading, or until the tries are over. It reports whether it changed
// each time.
func Whole(k kernel.Reader, read func() error) (torn bool, err error) {
	for range tries {
		before, err := k.Generation()
		if err != nil {
			return false, err
		}
		if err := read(); err != nil {
			return false, err
		}
		after, err := k.Generation()
		if err != nil || before == after {
			return false, err
		}
	}
	return true, nil
}

// eachTable reads the tables of some families. The error is ErrNoTables if there is none.
func eachTable(k kernel.Reader, families []program.Family, read func(*table, kernel.Existing) error) error {
	found := false
	for _, f := range families {
		was, err := k.SurveyTable(f)
		if err == nil && was.Table {
			found = true
			err = read(newTable(k, f), was)
		}
		if err != nil {
			return fmt.Errorf("read table %s %s: %w", f, program.TableName, err)
		}
	}
	if !found {
		return kernel.ErrNoTables
	}
	return nil
}

// Compare orders frontends of one family: those with an address come first.
func (s *FrontendStatus) Compare(o *FrontendStatus) int {
	nodePort := func(s *FrontendStatus) int {
		if s.Addr.IsValid() {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(nodePort(s), nodePort(o)), s.Addr.Compare(o.Addr), cmp.Compare(s.Port, o.Port),
		cmp.Compare(s.Protocol, o.Protocol))
}

// countSlots lists the endpoints in the slots of a pool.
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
