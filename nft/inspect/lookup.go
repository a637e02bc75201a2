package inspect

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Tables answers questions about single elements of both tables. It never lists a set that grows with the cluster. It
// does not matter which process wrote the tables, and whether it still runs. Only one goroutine may use it.
type Tables struct {
	kernel kernel.Reader
	close  func() error
	views  map[program.Family]*view
}

// view is one table with its program.
type view struct {
	*table
	program program.Program
	order   []program.Chain // of the program
	chains  map[string]program.Chain
}

// OpenTables opens a socket of its own. The caller closes it.
func OpenTables(o kernel.Options) (*Tables, error) {
	c, err := kernel.Dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	return NewTables(c, c.Close), nil
}

func NewTables(k kernel.Reader, closer func() error) *Tables {
	return &Tables{kernel: k, close: closer, views: map[program.Family]*view{}}
}

// Close closes the socket.
func (t *Tables) Close() error { return t.close() }

// view finds out which program a table has. The error is ErrNoTables if there is no table of the family.
func (t *Tables) view(f program.Family) (*view, error) {
	if v := t.views[f]; v != nil {
		return v, nil
	}
	was, err := t.kernel.SurveyTable(f)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read table %s %s: %w", f, program.TableName, err)
	case !was.Table:
		return nil, kernel.ErrNoTables
	case !was.SameLayout:
		return nil, fmt.Errorf("read table %s %s: %w", f, program.TableName, kernel.ErrUnknownProgram)
	}
	p, err := kernel.Identify(t.kernel, f)
	if err != nil {
		return nil, fmt.Errorf("read table %s %s: %w", f, program.TableName, err)
	}
	p.Lengths = program.AllLengths(f) // a group without a chain has no elements either
	v := &view{table: newTable(t.kernel, f), program: p, order: p.Chains(), chains: map[string]program.Chain{}}
	for _, c := range v.order {
		v.chains[c.Name] = c
	}
	t.views[f] = v
	return v, nil
}

// Related finds what the tables have about the destination of a packet that is no frontend: frontends of all protocols
// at its address and port, node ports of its number, and the address itself.
func (t *Tables) Related(p Packet) ([]Look, error) {
	v, err := t.view(program.FamilyOf(p.Dst))
	if err != nil {
		return nil, err
	}
	return v.noting(func() error {
		for _, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
			for _, addr := range []netip.Addr{p.Dst, {}} {
				if _, err := v.frontends(&place{addr: addr, protocol: protocol, port: p.DstPort}, nil); err != nil {
					return err
				}
			}
		}
		for _, set := range []program.SetID{program.NodePortAddresses, program.ClusterIPs, program.ExternalIPs} {
			if _, _, err := v.find(set, p.Dst.AsSlice()); err != nil {
				return err
			}
		}
		return nil
	})
}

// Frontend reads one frontend with its pools, or the range that has the port. Without an address it is a node port. It
// reports false if the table does not have it.
func (t *Tables) Frontend(f program.Family, addr netip.Addr, protocol uint8, port uint16) (FrontendStatus, bool, error) {
	v, err := t.view(f)
	if err != nil {
		return FrontendStatus{}, false, err
	}
	list, err := v.frontends(&place{addr: addr, protocol: protocol, port: port}, nil)
	if err != nil || len(list) == 0 {
		return FrontendStatus{}, false, err
	}
	err = v.readPools(list[0]) // there is one at most: ranges overlap with no other frontend
	return list[0].FrontendStatus, true, err
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
	c, name, err := v.class(number)
	if err != nil || name == "" {
		return PoolStatus{}, false, err
	}
	endpoints, err := v.pool(number, c)
	return PoolStatus{Name: name, Chain: c.ChainName(), Endpoints: endpoints}, true, err
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
func (t *Tables) NodePortAddresses(f program.Family) ([]netip.Addr, error) {
	v, err := t.view(f)
	if err != nil {
		return nil, err
	}
	return v.addresses(program.NodePortAddresses)
}

// Offered says after how many packets connections are offered to the fast path, 0: none are, and whether those to a frontend are. A node
// port has no address. The look-up is of the frontend. A device is one of those by which the connection goes that the flowtable lacks.
func (t *Tables) Offered(p Packet, nodePort bool, out string) (after uint32, by Look, device string, err error) {
	v, err := t.view(program.FamilyOf(p.Dst))
	if err != nil || v.program.FastPath == 0 {
		return 0, by, "", err
	}
	at := place{addr: p.Dst, protocol: p.Protocol, port: p.DstPort}
	if nodePort {
		at.addr = netip.Addr{}
	}
	for set := range program.SetCount {
		if set.Says() == program.Offered && set.HasNodePorts() == nodePort && !by.Found && err == nil {
			by, _, err = v.look(set, at.key())
		}
	}
	for _, name := range []string{p.Interface, out} {
		var b program.Builder
		if b.Device(name); name == "" || err != nil {
			continue
		}
		var has Look
		if has, _, err = v.look(program.FastPathDevices, b.Arena); !has.Found {
			device = name
		}
	}
	return v.program.FastPath, by, device, err
}
