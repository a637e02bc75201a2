package program

import (
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/nft/rule"
)

// SetID is the number of a named set or map. The sets are declared in this order.
type SetID uint8

// The named sets and maps. Maps that grow with the cluster hold data and no verdicts: after a change of a verdict map,
// the kernel validates the whole graph of chains.
const (
	Generation SetID = iota
	Services
	NodePorts
	Pools
	Dispatch
	Endpoints
	StickySlots
	StickyEndpoints
	Affinity
	HashTables
	HashSlots
	TargetPorts
	NodePortAddresses
	ClusterIPs
	ServiceCIDRs
	PodCIDRs
	Hairpin
	MasqueradeAlways
	MasqueradeNode
	MasqueradeAlwaysNodePorts
	MasqueradeNodeNodePorts
	Firewalled
	SourceLengths
	AllowedSources
	NoEndpoints
	NoLocalEndpoints
	NoEndpointsNodePorts
	NoLocalEndpointsNodePorts
	IPVSFrontends
	IPVSNodePorts
	IPVSAddresses
	Unanswered
	Refusing
	HoldsRefusals
	HoldsRefusalsNodePorts
	HeldBack
	JustHeldBack
	Answers
	RangeServices
	RangeMasqueradeAlways
	RangeMasqueradeNode
	RangeFirewalled
	RangeNoEndpoints
	RangeNoLocalEndpoints
	RangeHoldsRefusals
	Addresses
	StickyAddresses
	SetCount
)

// SetNames are the names of the sets, the same in both families.
var SetNames = [SetCount]string{
	Generation:                "generation",
	Services:                  "services",
	NodePorts:                 "nodeports",
	Pools:                     "pools",
	Dispatch:                  "dispatch",
	Endpoints:                 "endpoints",
	StickySlots:               "sticky-slots",
	StickyEndpoints:           "sticky-endpoints",
	Affinity:                  "affinity",
	HashTables:                "hash-tables",
	HashSlots:                 "hash-slots",
	TargetPorts:               "target-ports",
	NodePortAddresses:         "nodeport-addresses",
	ClusterIPs:                "cluster-ips",
	ServiceCIDRs:              "service-cidrs",
	PodCIDRs:                  "pod-cidrs",
	Hairpin:                   "hairpin",
	MasqueradeAlways:          "masquerade-always",
	MasqueradeNode:            "masquerade-node",
	MasqueradeAlwaysNodePorts: "masquerade-always-nodeports",
	MasqueradeNodeNodePorts:   "masquerade-node-nodeports",
	Firewalled:                "firewalled",
	SourceLengths:             "source-lengths",
	AllowedSources:            "allowed-sources",
	NoEndpoints:               "no-endpoints",
	NoLocalEndpoints:          "no-local-endpoints",
	NoEndpointsNodePorts:      "no-endpoints-nodeports",
	NoLocalEndpointsNodePorts: "no-local-endpoints-nodeports",
	IPVSFrontends:             "ipvs-frontends",
	IPVSNodePorts:             "ipvs-nodeports",
	IPVSAddresses:             "ipvs-addresses",
	Unanswered:                "unanswered",
	Refusing:                  "refusing",
	HoldsRefusals:             "holds-refusals",
	HoldsRefusalsNodePorts:    "holds-refusals-nodeports",
	HeldBack:                  "held-back",
	JustHeldBack:              "just-held-back",
	Answers:                   "answers",
	RangeServices:             "range-services",
	RangeMasqueradeAlways:     "range-masquerade-always",
	RangeMasqueradeNode:       "range-masquerade-node",
	RangeFirewalled:           "range-firewalled",
	RangeNoEndpoints:          "range-no-endpoints",
	RangeNoLocalEndpoints:     "range-no-local-endpoints",
	RangeHoldsRefusals:        "range-holds-refusals",
	Addresses:                 "addresses",
	StickyAddresses:           "sticky-addresses",
}

func (id SetID) Name() string { return SetNames[id] }

func (id SetID) String() string { return id.Name() }

// SetNamed is the set of that name. It reports false if the program has none.
func SetNamed(name string) (SetID, bool) {
	i := slices.Index(SetNames[:], name)
	return SetID(max(i, 0)), i >= 0
}

// Says is what a set says about the frontends that are its keys.
type Says uint8

// What sets say.
const (
	Nothing  Says = iota // the keys are no frontends
	Served               // the data lead to its pool
	Balanced             // IPVS serves it
	Rejected             // it has no endpoint
	Dropped              // it has no endpoint on this node
	Limited              // only clients in its source ranges may use it
	MasqueradedAlways
	MasqueradedNode
	HoldingRefusals
)

// Says is what a set says about its keys.
func (id SetID) Says() Says {
	switch id {
	case Services, NodePorts, RangeServices:
		return Served
	case IPVSFrontends, IPVSNodePorts:
		return Balanced
	case NoEndpoints, NoEndpointsNodePorts, RangeNoEndpoints:
		return Rejected
	case NoLocalEndpoints, NoLocalEndpointsNodePorts, RangeNoLocalEndpoints:
		return Dropped
	case Firewalled, RangeFirewalled:
		return Limited
	case MasqueradeAlways, MasqueradeAlwaysNodePorts, RangeMasqueradeAlways:
		return MasqueradedAlways
	case MasqueradeNode, MasqueradeNodeNodePorts, RangeMasqueradeNode:
		return MasqueradedNode
	case HoldsRefusals, HoldsRefusalsNodePorts, RangeHoldsRefusals:
		return HoldingRefusals
	}
	return Nothing
}

// Counted reports whether such sets count the connections to frontends, or packets to them that are refused. IPVS counts
// those that it balances.
func (s Says) Counted() bool { return s >= Served && s <= Dropped }

// HasNodePorts reports whether the keys of a set are frontends without an address. Its name says so.
func (id SetID) HasNodePorts() bool { return strings.HasSuffix(id.Name(), "nodeports") }

// HasPorts reports whether the keys of a set are frontends with ranges of ports.
func (id SetID) HasPorts() bool { return id >= RangeServices && id <= RangeHoldsRefusals }

// HasPorts reports the same for the set of that name.
func HasPorts(name string) bool { return slices.Contains(SetNames[RangeServices:Addresses], name) }

// IsSet reports whether the program has a set of that name.
func IsSet(name string) bool { return slices.Contains(SetNames[:], name) }

// FilledByRules reports whether packets make the entries of the set of that name.
func FilledByRules(name string) bool {
	byRules := []SetID{Affinity, Unanswered, Refusing, HeldBack, JustHeldBack}
	return slices.ContainsFunc(byRules, func(id SetID) bool { return id.Name() == name })
}

// DefaultAffinitySize is the size of the affinity map. When the map is full, clients lose affinity, but no connection.
const DefaultAffinitySize = 1 << 20

// DefaultAffinityShare is the largest number of entries of one service port. The more there are, the fewer clients share
// an entry; the fewer there are, the more service ports must be flooded to fill the map.
const DefaultAffinityShare = DefaultAffinitySize / 64

// Sets are the declarations of one family, indexed by SetID.
func (p Program) Sets() [SetCount]Set {
	addr := addrType(p.Family)
	frontend := []Type{addr, TypeProto, TypePort}
	nodePort := []Type{TypeProto, TypePort}
	number := []Type{TypeClassID}
	toNumber := slotsMap(number, "meta priority", typeofPriority())
	toAddress := slotsMap([]Type{addr}, p.Family.String()+" daddr", typeofDaddr(p.Family))
	defs := [SetCount]Set{
		Generation:      {Key: []Type{typeMark, typeMark}},
		Services:        {Key: frontend, Data: number, Counter: true},
		NodePorts:       {Key: nodePort, Data: number, Counter: true},
		Pools:           {Key: number, Data: number},
		Dispatch:        {Key: number, Data: []Type{TypeVerdict}},
		Endpoints:       slotsMap([]Type{addr, TypePort}, p.Family.String()+" daddr . th dport", typeofDaddr(p.Family), typeofDport()),
		StickySlots:     toNumber,
		StickyEndpoints: {Key: number, Data: []Type{addr, TypePort}},
		Affinity:        toNumber,
		HashTables:      {Key: number, Data: number},
		HashSlots:       toAddress,
		TargetPorts:     {Key: number, Data: []Type{TypePort}},

		NodePortAddresses: {Key: []Type{addr}},
		ClusterIPs:        {Key: []Type{addr}},
		ServiceCIDRs:      {Key: []Type{addr}, Interval: true},
		PodCIDRs:          {Key: []Type{addr}, Interval: true},
		Hairpin:           {Key: []Type{addr, addr}},

		MasqueradeAlways:          {Key: frontend},
		MasqueradeNode:            {Key: frontend},
		MasqueradeAlwaysNodePorts: {Key: nodePort},
		MasqueradeNodeNodePorts:   {Key: nodePort},

		Firewalled:     {Key: frontend, Data: number},
		SourceLengths:  {Key: number},
		AllowedSources: {Key: []Type{TypeClassID, addr}},

		NoEndpoints:               {Key: frontend, Counter: true},
		NoLocalEndpoints:          {Key: frontend, Counter: true},
		NoEndpointsNodePorts:      {Key: nodePort, Counter: true},
		NoLocalEndpointsNodePorts: {Key: nodePort, Counter: true},

		IPVSFrontends: {Key: frontend},
		IPVSNodePorts: {Key: nodePort},
		IPVSAddresses: {Key: []Type{addr}},

		Unanswered: suspectSet(addr),
		Refusing:   suspectSet(addr),

		HoldsRefusals:          {Key: frontend, Counter: true, Rate: HeldBackRate},
		HoldsRefusalsNodePorts: {Key: nodePort, Counter: true, Rate: HeldBackRate},
		HeldBack:               {Key: []Type{addr, TypePort}, Dynamic: true, Size: HeldBackLimit},
		JustHeldBack:           {Key: []Type{addr, TypePort}, Dynamic: true, Size: HeldBackLimit},

		Answers:               {Key: []Type{addr, TypePort}, Data: []Type{addr, TypePort}},
		RangeServices:         {Key: frontend, Data: number, Counter: true},
		RangeMasqueradeAlways: {Key: frontend},
		RangeMasqueradeNode:   {Key: frontend},
		RangeFirewalled:       {Key: frontend, Data: number},
		RangeNoEndpoints:      {Key: frontend, Counter: true},
		RangeNoLocalEndpoints: {Key: frontend, Counter: true},
		RangeHoldsRefusals:    {Key: frontend, Counter: true, Rate: HeldBackRate},
		Addresses:             toAddress,
		StickyAddresses:       {Key: number, Data: []Type{addr}},
	}
	defs[Affinity].Dynamic, defs[Affinity].Size = true, DefaultAffinitySize
	for id := range defs {
		defs[id].Name, defs[id].Ports = SetNames[id], SetID(id).HasPorts()
	}
	return defs
}

// slotsMap has a key of two numbers, and data that the text and the expressions declare. The second number is that of a
// slot or of a client. It is an integer, which only an expression can declare.
func slotsMap(data []Type, text string, exprs ...typeofExpr) Set {
	return Set{Key: []Type{TypeClassID, typeInteger}, Data: data, typeof: &Typeof{
		text: "meta priority . numgen random mod 65536 : " + text,
		key:  []typeofExpr{typeofPriority(), typeofNumgen()}, data: exprs,
	}}
}

// SuspectTimeout is how long an element stays. Readers poll several times a second.
const SuspectTimeout = 5 * time.Second

// SuspectLimit is the size of each of the sets.
const SuspectLimit = 16384

func suspectSet(addr Type) Set {
	return Set{Key: []Type{addr, TypePort}, Dynamic: true, Counter: true, Size: SuspectLimit}
}

// suspect adds an endpoint to a set, and counts the packet there. The rule has made sure that the connection is of TCP.
func suspect(set SetID, endpoint rule.Key) rule.Statement {
	return rule.AddTo(set, endpoint, SuspectTimeout)
}

// HeldBackLimit is the size of the set "held-back", and of "just-held-back". Their elements have no counters, because a counter
// takes 16 bytes for each processor of the node.
const HeldBackLimit = 1 << 18

// HeldBackRate is how many refusals a second a frontend holds back in the long run; after a pause, it holds back four times as
// many at once. So a frontend never has more than a 64th of the set, even if somebody sends it packets of forged clients: they
// are in it for 3 seconds, and the kernel removes them within another one. (Clients of ICMP errors stay longer: a 39th.) Many
// frontends fill the set only if endpoints refuse 65,536 connections a second.
const HeldBackRate = HeldBackLimit / 64 / 8
