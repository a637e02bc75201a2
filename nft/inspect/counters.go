package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Counters reads the frontends of both tables with their counters, without endpoints. It takes a fraction of the time of
// List. The frontends have no order.
func Counters(o kernel.Options, match func(name string) bool) ([]FrontendStatus, error) {
	return dialed(o, func(c *kernel.Conn) ([]FrontendStatus, error) { return CountersFrom(c, match) })
}

// CountersFrom does the same with any reader.
func CountersFrom(k kernel.Reader, match func(string) bool) (out []FrontendStatus, err error) {
	families := program.Families()
	err = eachTable(k, families[:], k.SurveySets, match, func(l *lister) error {
		err := l.readFrontends()
		for _, fe := range l.frontends {
			out = append(out, fe.FrontendStatus)
		}
		return err
	})
	return out, err
}

// Frontend reads one frontend with its pools, or the range that has the port. Without an address it is a node port. It
// reports false if the table does not have it.
func (t *Tables) Frontend(f program.Family, addr netip.Addr, protocol uint8, port uint16) (FrontendStatus, bool, error) {
	v, err := t.view(f)
	if err != nil {
		return FrontendStatus{}, false, err
	}
	l := newLister(v.kernel, f, kernel.Existing{}, nil)
	for _, s := range frontendSetsToRead() {
		if s.nodePort == addr.IsValid() {
			continue
		}
		var key program.Builder
		key.Frontend(addr, port, 0, protocol)
		e, found, err := v.kernel.Lookup(f, s.name, key.Arena)
		if err != nil {
			return FrontendStatus{}, false, fmt.Errorf("look up an element of @%s: %w", s.name, err)
		}
		if k, ok := l.frontendKey(e.Key, s.nodePort); found && ok {
			s.note(l.frontend(k, e.Comment), &e)
		}
	}
	for _, fe := range l.frontends { // there is one at most: ranges overlap with no other frontend
		err := v.readPoolsOf(l, fe)
		return fe.FrontendStatus, true, err
	}
	return FrontendStatus{}, false, nil
}

// readPoolsOf reads the endpoints of the pools of one frontend.
func (v *view) readPoolsOf(l *lister, fe *listed) error {
	if fe.number == 0 {
		return nil
	}
	number := fe.number & program.PoolMask
	if err := errors.Join(v.readClassOf(l, number), v.readClassOf(l, number|program.LocalBit)); err != nil {
		return err
	}
	return l.readPoolsOf(fe)
}

// readClassOf reads the class of a pool, if there is one.
func (v *view) readClassOf(l *lister, number uint32) error {
	_, data, err := v.has(program.Pools.Name(), func(b *program.Builder) { b.Word(number) })
	if err != nil || len(data) != 4 {
		return err
	}
	class := binary.NativeEndian.Uint32(data) & program.ClassMask
	_, chain, err := v.has(program.Dispatch.Name(), func(b *program.Builder) { b.Word(class) })
	if err != nil {
		return err
	}
	if c, ok := program.ParseClass(string(chain)); ok {
		l.classOf[number], l.classes[class>>program.PoolBits] = class>>program.PoolBits, c
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
func (t *Tables) Pool(f program.Family, number uint32) (PoolStatus, bool, error) {
	v, err := t.view(f)
	if err != nil {
		return PoolStatus{}, false, err
	}
	look, _, err := v.has(program.Pools.Name(), func(b *program.Builder) { b.Word(number) })
	if err != nil || !look.Found {
		return PoolStatus{}, false, err
	}
	l := newLister(v.kernel, f, kernel.Existing{}, nil)
	if err := v.readClassOf(l, number); err != nil {
		return PoolStatus{}, false, err
	}
	out := PoolStatus{Name: look.Label, Chain: l.classes[l.classOf[number]].ChainName()}
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
	if number == 0 || number&^program.PoolMask != 0 || major > 0xffff || minor > 0xffff {
		return 0, fmt.Errorf("pool %q is no number of a pool: these are 0:2 to f:ffff", text)
	}
	return number, nil
}

// NodePortAddresses are the addresses at which node ports answer.
func (t *Tables) NodePortAddresses(f program.Family) (out []netip.Addr, err error) {
	if _, err := t.view(f); err != nil {
		return nil, err
	}
	err = t.kernel.DumpElements(f, program.NodePortAddresses.Name(), func(e kernel.Found) {
		if a, ok := netip.AddrFromSlice(e.Key); ok {
			out = append(out, a)
		}
	})
	slices.SortFunc(out, netip.Addr.Compare)
	return out, err
}
