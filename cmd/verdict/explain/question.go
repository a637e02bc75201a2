package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// question is one connection.
type question struct {
	src      netip.Addr
	srcPort  uint16 // 0: any
	dst      netip.AddrPort
	protocol uint8
	// link is the interface by which packets come in, if the source does not tell: for clients outside.
	link string
}

func (q *question) family() program.Family { return program.FamilyOf(q.dst.Addr()) }

func (q *question) String() string {
	return fmt.Sprintf("%s from %s to %s", strings.ToUpper(protocolName(q.protocol)), q.client(), q.dst)
}

func (q *question) client() string {
	if q.srcPort != 0 {
		return netip.AddrPortFrom(q.src, q.srcPort).String()
	}
	return q.src.String()
}

const sourceForm = "an address (also ADDRESS:PORT), node, outside or pod/NAMESPACE/NAME"

func protocolName(p uint8) string { return state.Protocol(p).String() }
