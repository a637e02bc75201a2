package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Counters reads the frontends of both tables with their counters, without endpoints. It takes a fraction of the time of
// List. The frontends have no order.
func Counters(o Options, match func(name string) bool) ([]FrontendStatus, error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	out, err := counters(c, match)
	return out, errors.Join(err, c.close())
}

func counters(k readable, match func(string) bool) (out []FrontendStatus, err error) {
	tables := 0
	for _, f := range Families() {
		was, err := k.surveySets(f)
		if err != nil {
			return nil, fmt.Errorf("read table %s %s: %w", f, TableName, err)
		}
		if !was.table {
			continue
		}
		tables++
		l := newLister(k, f, was, match)
		if err := l.readFrontends(); err != nil {
			return nil, fmt.Errorf("read table %s %s: %w", f, TableName, err)
		}
		for _, fe := range l.frontends {
			out = append(out, fe.FrontendStatus)
		}
	}
	if tables == 0 {
		return nil, ErrNoTables
	}
	return out, nil
}

// Frontend reads one frontend with its pools. Without an address it is a node port. It reports false if the table does
// not have it.
func (t *Tables) Frontend(f Family, addr netip.Addr, protocol uint8, port uint16) (FrontendStatus, bool, error) {
	v, err := t.view(f)
	if err != nil {
		return FrontendStatus{}, false, err
	}
	l := newLister(v.kernel, f, existing{}, nil)
	at := Frontend{Addr: addr, Port: port}
	for _, s := range frontendSetsToRead() {
		if s.nodePort == addr.IsValid() {
			continue
		}
		var key builder
		key.frontend(&at, protocol)
		e, found, err := v.kernel.lookup(f, s.name, key.arena)
		if err != nil {
			return FrontendStatus{}, false, fmt.Errorf("look up an element of @%s: %w", s.name, err)
		}
		if found {
			s.note(l.frontend(frontendKey{addr, protocol, port}, e.comment), &e)
		}
	}
	fe := l.frontends[frontendKey{addr, protocol, port}]
	if fe == nil {
		return FrontendStatus{}, false, nil
	}
	return fe.FrontendStatus, true, v.readPoolsOf(l, fe)
}

// readPoolsOf reads the endpoints of the pools of one frontend.
func (v *view) readPoolsOf(l *lister, fe *listed) (err error) {
	if fe.number == 0 {
		return nil
	}
	number := fe.number & poolMask
	if err := errors.Join(v.readClassOf(l, number), v.readClassOf(l, number|localBit)); err != nil {
		return err
	}
	if fe.Pool != LocalPool {
		fe.Cluster, err = l.pool(fe, number)
	}
	if fe.Pool != ClusterPool && err == nil {
		fe.Local, err = l.pool(fe, number|localBit)
	}
	return err
}

// readClassOf reads the class of a pool, if there is one.
func (v *view) readClassOf(l *lister, number uint32) error {
	_, data, err := v.has(mapPools, func(b *builder) { b.word(number) })
	if err != nil || len(data) != 4 {
		return err
	}
	class := binary.NativeEndian.Uint32(data) & classMask
	_, chain, err := v.has(mapDispatch, func(b *builder) { b.word(class) })
	if err != nil {
		return err
	}
	if c, ok := parseClass(string(chain)); ok {
		l.classOf[number], l.classes[class>>poolBits] = class>>poolBits, c
	}
	return nil
}

// PoolStatus is one pool as the kernel has it.
type PoolStatus struct {
	Name      string // namespace/name:port, with " local" for a local pool
	Chain     string // of its class
	Endpoints []EndpointStatus
}

// Pool reads one pool. It reports false if the table does not have it.
func (t *Tables) Pool(f Family, number uint32) (PoolStatus, bool, error) {
	v, err := t.view(f)
	if err != nil {
		return PoolStatus{}, false, err
	}
	look, _, err := v.has(mapPools, func(b *builder) { b.word(number) })
	if err != nil || !look.Found {
		return PoolStatus{}, false, err
	}
	l := newLister(v.kernel, f, existing{}, nil)
	if err := v.readClassOf(l, number); err != nil {
		return PoolStatus{}, false, err
	}
	out := PoolStatus{Name: look.Label, Chain: l.classes[l.classOf[number]].chain()}
	out.Endpoints, err = l.pool(&listed{}, number)
	return out, true, err
}

// ParsePool reads the number of a pool in nft syntax, such as 0:2.
func ParsePool(text string) (uint32, error) {
	var major, minor uint32
	if n, err := fmt.Sscanf(text+"\n", "%x:%x\n", &major, &minor); n != 2 || err != nil {
		return 0, fmt.Errorf("pool %q must be a number as nft prints it, such as 0:2", text)
	}
	number := major<<16 | minor
	if number == 0 || number&^poolMask != 0 || major > 0xffff || minor > 0xffff {
		return 0, fmt.Errorf("pool %q is no number of a pool: these are 0:2 to f:ffff", text)
	}
	return number, nil
}

// NodePortAddresses are the addresses at which node ports answer.
func (t *Tables) NodePortAddresses(f Family) (out []netip.Addr, err error) {
	if _, err := t.view(f); err != nil {
		return nil, err
	}
	err = t.kernel.dumpElements(f, setNodePortAddresses, func(e foundElement) {
		if a, ok := netip.AddrFromSlice(e.key); ok {
			out = append(out, a)
		}
	})
	slices.SortFunc(out, netip.Addr.Compare)
	return out, err
}
