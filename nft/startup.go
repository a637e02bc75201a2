package nft

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/mirror"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Mend undoes what another process did to the rules of the tables while no Verdict ran. It does not wait for the objects
// of the cluster, because a rule that drops packets may be what keeps them away: the first Apply would never come. It
// touches no elements, and only tables that this version wrote with the rules of their fixed chains. Everything else is
// up to the first Apply. Call it before the first Set. It names the chains that it changed, and tables that slept.
func (e *Engine) Mend() (chains []string, err error) {
	t := &program.Transaction{}
	for _, tb := range e.tables {
		changed, err := tb.Mend(t.For(tb.Family), e.conn)
		if err != nil {
			return nil, fmt.Errorf("read table %s %s: %w", tb.Family, program.TableName, err)
		}
		for _, name := range changed {
			chains = append(chains, fmt.Sprintf("%s %s %s", tb.Family, program.TableName, name))
		}
	}
	if !t.Empty() {
		err = e.sendApart(t)
	}
	if err == nil {
		err = e.tables.setFlags(&e.sender, &Result{})
	}
	if err != nil {
		return nil, fmt.Errorf("undo changes of the chains %s: %w", strings.Join(chains, ", "), err)
	}
	return chains, nil
}

// Inherited reports whether an earlier process served a frontend, with a pool or with IPVS. An address and port may also be
// those of a node port. Inherited asks the kernel for this one frontend, because a dump of all of them is slow. After the
// first Apply the answer is always false.
func (e *Engine) Inherited(f program.Family, protocol uint8, addr netip.Addr, port uint16) (bool, error) {
	if tb := e.tables.in(f); tb == nil || !tb.Want.Ports.Inherit() {
		return false, nil
	}
	fe := contents.Frontend{Addr: addr, Port: port}
	var b program.Builder
	b.Frontend(addr, port, protocol)
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
