package nft

import (
	"fmt"
	"net/netip"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/mirror"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Inherited reports whether an earlier process served a frontend, with a pool or with IPVS. An address and port may also be
// those of a node port. Inherited asks the kernel for this one frontend, because a dump of all of them is slow. After the
// first Apply the answer is always false.
func (e *Engine) Inherited(f program.Family, protocol uint8, addr netip.Addr, port uint16) (bool, error) {
	if tb := e.tables.In(f); tb == nil || !tb.Want.Ports.Inherit() {
		return false, nil
	}
	fe := contents.Frontend{Addr: addr, Port: port}
	var b program.Builder
	b.Frontend(addr, port, 0, protocol)
	for _, id := range mirror.ServedIn(&fe) {
		_, found, err := e.conn.Lookup(f, program.SetNames[id], b.Arena)
		if err != nil {
			return false, fmt.Errorf("look up frontend %s port %d in table %s %s: %w", addr, port, f, program.TableName, err)
		}
		if found {
			return true, nil
		}
	}
	if !addr.IsValid() {
		return false, nil
	}
	_, isNodes, err := e.conn.Lookup(f, program.NodePortAddresses.Name(), addr.AsSlice())
	if err != nil {
		return false, fmt.Errorf("look up node-port address %s in table %s %s: %w", addr, f, program.TableName, err)
	}
	if !isNodes {
		return false, nil
	}
	return e.Inherited(f, protocol, netip.Addr{}, port)
}
