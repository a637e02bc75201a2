package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
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

// AffinityEntries is how many entries an affinity map has, and how many it can have. Entries is -1 if the kernel does
// not count the elements of its sets; Linux 6.16 and newer do.
type AffinityEntries struct {
	Family        program.Family
	Entries, Size int
}

// ReadAffinity asks the kernel for the affinity map of each family that has a table. It does not read the entries. It
// opens its own socket, so any goroutine may call it.
func ReadAffinity(o kernel.Options) (list []AffinityEntries, err error) {
	sets := []frontendSet{{name: program.Affinity.Name()}}
	err = readEach(o, time.Minute, sets, func(c *kernel.Conn, f program.Family, s frontendSet) error {
		a := AffinityEntries{Family: f, Entries: -1}
		err := c.Ask(unix.NFT_MSG_GETSET, unix.NLM_F_ACK, f, func(w *nlmsg.Writer) {
			w.Text(unix.NFTA_SET_TABLE, program.TableName)
			w.Text(unix.NFTA_SET_NAME, s.name)
		}, a.read)
		if err == nil {
			list = append(list, a)
		}
		return err
	})
	return list, err
}

func (s *AffinityEntries) read(a nlmsg.Attributes) {
	s.Size = int(a.Find(unix.NFTA_SET_DESC).Nested().Find(unix.NFTA_SET_DESC_SIZE).Uint32())
	if count := a.Find(kernel.SetCountAttribute); count.Value != nil {
		s.Entries = int(count.Uint32())
	}
}

// Traffic is what the kernel counted at one frontend. The packets to a frontend of IPVS are counted there.
type Traffic struct {
	Family   program.Family
	Set      string     // which map or set has the frontend: services, nodeports, or one of those for refusals and for IPVS
	Addr     netip.Addr // not valid: a node port
	Protocol uint8
	Port     uint16
	Name     string // of the service port
	// Packets are first packets of connections, or packets that were refused.
	Packets uint64
}

// ReadTraffic reads all frontends with their counters. It gives up after the time. It opens its own socket, so any goroutine
// may call it.
func ReadTraffic(o kernel.Options, within time.Duration) (list []Traffic, err error) {
	sets := slices.DeleteFunc(frontendSetsToRead(), func(s frontendSet) bool { return !HasFrontends(s.name) })
	err = readEach(o, within, sets, func(c *kernel.Conn, f program.Family, s frontendSet) error {
		l := lister{family: f}
		return c.DumpElements(f, s.name, func(e kernel.Found) {
			if k, ok := l.frontendKey(e.Key, s.nodePort); ok {
				list = append(list, Traffic{f, s.name, k.addr, k.protocol, k.port, e.Comment, e.Packets})
			}
		})
	})
	return list, err
}

// readEach reads sets of both families over a socket of its own. A set that does not exist is empty. It gives up after the
// time.
func readEach(
	o kernel.Options, within time.Duration, sets []frontendSet, read func(*kernel.Conn, program.Family, frontendSet) error,
) error {
	return kernel.With(o, func(c *kernel.Conn) error {
		c.GiveUpAfter(within)
		for _, f := range program.Families() {
			for _, s := range sets {
				if err := read(c, f, s); err != nil && !errors.Is(err, unix.ENOENT) {
					return fmt.Errorf("read %s %s %s: %w", f, program.TableName, s.name, err)
				}
			}
		}
		return nil
	})
}

// HasFrontends reports whether the elements of a set are frontends whose connections or refused packets are counted.
func HasFrontends(set string) bool {
	switch set {
	case program.Services.Name(), program.NodePorts.Name(), program.RangeServices.Name(), program.IPVSFrontends.Name(), program.IPVSNodePorts.Name():
		return true
	}
	return RefusalOf(set) != program.NoRefusal
}

// RefusalOf returns what happens to packets to the frontends of a set.
func RefusalOf(set string) program.Refusal {
	switch set {
	case program.NoEndpoints.Name(), program.NoEndpointsNodePorts.Name(), program.RangeNoEndpoints.Name():
		return program.Reject
	case program.NoLocalEndpoints.Name(), program.NoLocalEndpointsNodePorts.Name(), program.RangeNoLocalEndpoints.Name():
		return program.Drop
	}
	return program.NoRefusal
}

// Suspect is an endpoint that the kernel noticed within the latest seconds.
type Suspect struct {
	Endpoint netip.AddrPort
	// Refusing: the endpoint answered with resets. Otherwise it did not answer.
	Refusing bool
	// Packets counts its repeated packets, or its resets, since the element was made.
	Packets uint64
}

// ReadSuspects returns the endpoints that the kernel noticed. Sets that do not exist are empty. Refusing is whether to read
// the set of refusing endpoints, too.
func ReadSuspects(c *kernel.Conn, families []program.Family, refusing bool) (list []Suspect, err error) {
	sets := []program.SetID{program.Unanswered, program.Refusing}
	if !refusing {
		sets = sets[:1]
	}
	for _, f := range families {
		for _, set := range sets {
			err := c.DumpElements(f, set.Name(), func(e kernel.Found) {
				if at, ok := program.EndpointOf(f, e.Key); ok {
					list = append(list, Suspect{Endpoint: at, Packets: e.Packets, Refusing: set == program.Refusing})
				}
			})
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return nil, fmt.Errorf("read set %s of table %s %s: %w", set.Name(), f, program.TableName, err)
			}
		}
	}
	return list, nil
}
