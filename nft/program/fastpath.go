package program

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/rule"
)

// FastPathTable is the name of the flowtable that each table has if Program.FastPath is set. A packet of one of its connections is
// translated and sent on as soon as it arrives at one of the flowtable's devices: no chain of any table sees it. Its devices come and
// go in transactions of their own (nft/fastpath.go).
const FastPathTable = "fast-path"

// FastPathChain is there if the program has the flowtable.
const FastPathChain = "to-fast-path"

// Flowtable is what a flowtable is, apart from its devices.
type Flowtable struct{ Hook, Priority, Flags uint32 }

// OurFlowtable is the shape of FastPathTable: connections keep their counters. The zero value of Hook is ingress, that of Priority is "filter".
func OurFlowtable() Flowtable { return Flowtable{Flags: 2} } // NFT_FLOWTABLE_COUNTER

// flowtableHeader and flowtableFlags are OurFlowtable in nft syntax.
const (
	flowtableHeader = "hook ingress priority filter"
	flowtableFlags  = "counter"
)

func (o *Operation) flowtableText(where string) string {
	text := where + " " + o.Name
	switch {
	case len(o.Devices) > 0:
		text += fmt.Sprintf(" { %s; devices = { %s }; }", flowtableHeader, strings.Join(o.Devices, ", "))
	case o.Kind == AddFlowtable:
		text += fmt.Sprintf(" { %s; %s; }", flowtableHeader, flowtableFlags)
	}
	return map[operationKind]string{AddFlowtable: "add", DeleteFlowtable: "delete"}[o.Kind] + " flowtable " + text
}

// offer is the rule by which packets of established connections go to the chain. Only answers do: the endpoint has answered by then, and
// the first packets have passed everything that looks for refusals. Most packets fail the cheapest test, which is first.
//
// A bridge that calls iptables has connection tracking see and translate packets before the flowtable of the bridge does. A reset would
// not take the connection from there, so its entry would stay as long as that of an established one.
func (p Program) offer() rule.Rule {
	r := rule.Rule{rule.IsTranslated(), rule.IsReply(), rule.HasMorePackets(p.FastPath)}
	if p.BridgesStay {
		r = append(r, rule.NotBy("bridge"), rule.NotTo("bridge"))
	}
	return append(r, rule.GoTo(FastPathChain))
}

// toFastPath offers connections of Services to the kernel, which takes those that it can serve there. What another table has translated
// is in none of the sets. If the endpoint is routed through another device than the one by which its answer came, the
// connection stays: the flowtable would send the client's packets back to where the answer came from. It stays as well unless both its
// devices are the flowtable's: a reset that comes by another one would not take it from there, and its entry would stay for days.
func toFastPath(f Family) Chain {
	original := rule.Key{rule.OriginalDaddr(f), rule.L4Proto(), rule.OriginalDport()}
	atNode := rule.In(NodePortAddresses, original[0])
	add := []rule.Statement{rule.In(FastPathDevices, rule.IIFName()), rule.In(FastPathDevices, rule.OIFName()), rule.CameFromRoute(), rule.AddFlow(FastPathTable)}
	c := Chain{Name: FastPathChain}
	for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} { // the kernel takes no others
		is := rule.IsProtocol(proto)
		c.Rules = append(c.Rules,
			append(rule.Rule{is, rule.In(FastPath, original...)}, add...),
			append(rule.Rule{is, atNode, rule.In(FastPathNodePorts, original[1:]...)}, add...),
			append(rule.Rule{is, rule.In(RangeFastPath, original...)}, add...))
	}
	return c
}

// Offering is what the fast path needs beside GoingBack.
func Offering() Feature {
	return Feature{Name: "flowtables", Module: "nf_flow_table, nf_flow_table_inet, nft_flow_offload",
		Base: filterBase(unix.NF_INET_FORWARD, "forward", 0, "filter"),
		Rules: one(func(Program) rule.Rule {
			return rule.Rule{rule.CameFromRoute(), rule.HasMorePackets(1), rule.AddFlow(FastPathTable)}
		})}
}
