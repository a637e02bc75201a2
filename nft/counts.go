package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// counts are the numbers of elements that the latest transaction left in each set. The affinity map is not counted,
// because rules fill it.
type counts [2][setCount]atomic.Int64

// note counts what an applied transaction changed in a table. If it wrote the whole table, it has all elements.
func (c *counts) note(t *Transaction, f Family, whole bool) {
	for id := range t.elements[f.index()] {
		changes, n := &t.elements[f.index()][id], &c[f.index()][id]
		if whole {
			n.Store(int64(len(changes.add)))
		} else if more := len(changes.add) - len(changes.del); more != 0 {
			n.Add(int64(more))
		}
	}
}

// store counts what a table has after a difference to what was there.
func (c *counts) store(f Family, totals *[setCount]int) {
	for id, n := range totals {
		c[f.index()][id].Store(int64(n))
	}
}

// SetElements is how many elements a set or map has. A range counts as two.
type SetElements struct {
	Family   Family
	Set      string
	Elements int
	Limit    int // below so many elements, nothing is left out for lack of room; 0: only memory bounds them
}

// mapLimit is the Limit of a map. A service port has up to two pools, and pools share hash tables, so a map may have more
// elements.
func mapLimit(set string) int {
	switch set {
	case mapPools:
		return maxPorts - 1
	case mapHashTables:
		return maxTables
	}
	return 0
}

// Elements counts the elements of each set and map, except the affinity map. Any goroutine may call it.
func (e *Engine) Elements() []SetElements {
	list := make([]SetElements, 0, len(e.active)*int(setCount))
	for _, tb := range e.active {
		for id := range tb.defs {
			if d := &tb.defs[id]; !d.dynamic {
				n := int(e.counts[tb.family.index()][id].Load())
				list = append(list, SetElements{Family: tb.family, Set: d.name, Elements: n, Limit: mapLimit(d.name)})
			}
		}
	}
	return list
}

// AffinityEntries is how many entries an affinity map has, and how many it can have. Entries is -1 if the kernel does
// not count the elements of its sets; Linux 6.16 and newer do.
type AffinityEntries struct {
	Family        Family
	Entries, Size int
}

// ReadAffinity asks the kernel for the affinity map of each family that has a table. It does not read the entries. It
// opens its own socket, so any goroutine may call it.
func ReadAffinity(o Options) (list []AffinityEntries, err error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for _, f := range Families() {
		a := AffinityEntries{Family: f, Entries: -1}
		err := c.ask(unix.NFT_MSG_GETSET, unix.NLM_F_ACK, f, func(w *wire) {
			w.Text(unix.NFTA_SET_TABLE, TableName)
			w.Text(unix.NFTA_SET_NAME, mapAffinity)
		}, a.read)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return list, fmt.Errorf("read %s %s %s: %w", f, TableName, mapAffinity, err)
		}
		list = append(list, a)
	}
	return list, nil
}

// setCountAttribute is NFTA_SET_COUNT of Linux 6.16, which package unix does not have.
const setCountAttribute = 20

func (s *AffinityEntries) read(a nlmsg.Attributes) {
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_SET_DESC:
			for d := a.Nested(); d.Next(); {
				if d.Kind == unix.NFTA_SET_DESC_SIZE {
					s.Size = int(d.Uint32())
				}
			}
		case setCountAttribute:
			s.Entries = int(a.Uint32())
		}
	}
}

// Traffic is what the kernel counted at one frontend.
type Traffic struct {
	Family Family
	Set    string // which map or set has the frontend: services, nodeports, or one of those for refusals
	Key    string // of the frontend; only good for comparisons
	Name   string // of the service port
	// Packets are first packets of connections, or packets that were refused.
	Packets uint64
}

// ReadTraffic reads the counters of all frontends. It gives up after the time. It opens its own socket, so any goroutine
// may call it.
func ReadTraffic(o Options, within time.Duration) (list []Traffic, err error) {
	err = readEach(o, within, func(c *conn, f Family) error {
		for id, d := range (program{family: f}).sets() {
			if !d.counter {
				continue
			}
			err := c.dumpElements(f, d.name, func(e foundElement) {
				list = append(list, Traffic{Family: f, Set: setNames[id], Key: string(e.key), Name: e.comment, Packets: e.packets})
			})
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("read the counters of %s %s %s: %w", f, TableName, d.name, err)
			}
		}
		return nil
	})
	return list, err
}

// readEach reads the tables of both families over a socket of its own. It gives up after the time.
func readEach(o Options, within time.Duration, read func(*conn, Family) error) (err error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	c.deadline = time.Now().Add(within)
	for _, f := range Families() {
		if err := read(c, f); err != nil {
			return err
		}
	}
	return nil
}

// IPVSFrontend is a frontend that IPVS serves.
type IPVSFrontend struct {
	Family   Family
	Protocol uint8
	Addr     netip.Addr // not valid: a node port
	Port     uint16
	Name     string // of the service port
}

// ReadIPVSFrontends lists the frontends that IPVS serves, without an order. It gives up after the time. It opens its own
// socket, so any goroutine may call it.
func ReadIPVSFrontends(o Options, within time.Duration) (list []IPVSFrontend, err error) {
	err = readEach(o, within, func(c *conn, f Family) error {
		l := newLister(c, f, existing{}, nil)
		for _, set := range []string{setIPVSFrontends, setIPVSNodePorts} {
			err := c.dumpElements(f, set, func(e foundElement) {
				if k, ok := l.frontendKey(e.key, set == setIPVSNodePorts); ok {
					list = append(list, IPVSFrontend{Family: f, Protocol: k.protocol, Addr: k.addr, Port: k.port, Name: e.comment})
				}
			})
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("read %s %s %s: %w", f, TableName, set, err)
			}
		}
		return nil
	})
	return list, err
}

// HasFrontends reports whether the elements of a set are frontends whose connections or refused packets are counted.
func HasFrontends(set string) bool {
	switch set {
	case mapServices, mapNodePorts, setIPVSFrontends, setIPVSNodePorts:
		return true
	}
	return RefusalOf(set) != NoRefusal
}

// RefusalOf returns what happens to packets to the frontends of a set.
func RefusalOf(set string) Refusal {
	switch set {
	case setNoEndpoints, setNoEndpointsNodePorts:
		return Reject
	case setNoLocalEndpoints, setNoLocalEndpointsNodePorts:
		return Drop
	}
	return NoRefusal
}
