package program

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"
	"github.com/verdict-proxy/verdict/nft/rule"
	"golang.org/x/sys/unix"
)

// A trace sets nftrace for the packets of one flow, and follows what the kernel says about them. Its rules are in a table
// of its own. The table belongs to the socket (OwnerFlag), so the kernel removes it however the process ends.

// TraceTableName is the name of the table of a trace.
const TraceTableName = "verdict-trace"

// Flow is what the packets of one direction of a connection have in common.
type Flow struct {
	Src, Dst         netip.Addr
	Protocol         uint8
	SrcPort, DstPort uint16 // a source port of 0 stands for any
}

// tracePriority is before all chains but those that see packets before defragmentation.
const tracePriority = -390

// TraceChains set nftrace for the packets of a flow, wherever they come from. Each has one rule.
func TraceChains(flow Flow) []Chain {
	rules := []rule.Rule{traceRule(flow)}
	text := fmt.Sprint(tracePriority)
	return []Chain{
		{Name: "prerouting", Base: filterBase(unix.NF_INET_PRE_ROUTING, "prerouting", tracePriority, text), Rules: rules},
		{Name: "output", Base: filterBase(unix.NF_INET_LOCAL_OUT, "output", tracePriority, text), Rules: rules},
	}
}

func traceRule(flow Flow) rule.Rule {
	prog := Program{Family: FamilyOf(flow.Dst)}
	header := func(name string, offset uint32, value []byte) rule.Statement {
		load := &expr.Payload{
			DestRegister: rule.FirstRegister, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(value)),
		}
		return rule.Compare(name, load, nil, expr.CmpOpEq, value)
	}
	port := func(name string, offset uint32, number uint16) rule.Statement {
		load := &expr.Payload{DestRegister: rule.FirstRegister, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2}
		return rule.Compare(name, load, nil, expr.CmpOpEq, binary.BigEndian.AppendUint16(nil, number))
	}
	r := rule.Rule{
		rule.IsProtocol(flow.Protocol),
		header("saddr "+flow.Src.String(), rule.SourceOffset(prog.Family), flow.Src.AsSlice()),
		header("daddr "+flow.Dst.String(), rule.DestinationOffset(prog.Family), flow.Dst.AsSlice()),
		port("dport", 2, flow.DstPort),
	}
	if flow.SrcPort != 0 {
		r = append(r, port("sport", 0, flow.SrcPort))
	}
	return append(r, rule.Statement{Text: "meta nftrace set 1", Exprs: []expr.Any{
		&expr.Immediate{Register: rule.FirstRegister, Data: []byte{1}},
		&expr.Meta{Key: unix.NFT_META_NFTRACE, SourceRegister: true, Register: rule.FirstRegister},
	}})
}
