package program

import (
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/nft/rule"
	"github.com/verdict-proxy/verdict/nft/serviceport"
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
	ExternalIPs
	ServiceCIDRs
	PodCIDRs
	NodePodCIDRs
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
	FastPath
	FastPathNodePorts
	FastPathDevices
	Answers
	RangeServices
	RangeMasqueradeAlways
	RangeMasqueradeNode
	RangeFirewalled
	RangeNoEndpoints
	RangeNoLocalEndpoints
	RangeHoldsRefusals
	RangeFastPath
	Addresses
	StickyAddresses
	SetCount
)

// declared are the sets of one family. Names, and what sets say, are the same in both.
var declared = Program{Family: IPv4}.Sets()

func (id SetID) Name() string { return declared[id].Name }

func (id SetID) String() string { return id.Name() }

// SetNamed is the set of that name. It reports false if the program has none.
func SetNamed(name string) (SetID, bool) {
	for id := range declared {
		if declared[id].Name == name {
			return SetID(id), true
		}
	}
	return 0, false
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
	Offered // its connections may take the fast path
)

// Says is what a set says about its keys.
func (id SetID) Says() Says { return declared[id].Says }

// Counted reports whether such sets count the connections to frontends, or packets to them that are refused. IPVS counts
// those that it balances.
func (s Says) Counted() bool { return s >= Served && s <= Dropped }

// HasNodePorts reports whether the keys of a set are frontends without an address. Its name says so.
func (id SetID) HasNodePorts() bool { return strings.HasSuffix(id.Name(), "nodeports") }

// HasPorts reports whether the keys of a set are frontends with ranges of ports.
func (id SetID) HasPorts() bool { return id >= RangeServices && id <= RangeFastPath }

// Kind is the kind of changes of its elements. The keys of slots are numbers, and come in their order.
func (id SetID) Kind() serviceport.Kind {
	switch id {
	case Endpoints, StickySlots, HashSlots, Addresses, StickyEndpoints, StickyAddresses:
		return serviceport.Slot
	}
	if id.HasPorts() {
		return serviceport.Range
	}
	return serviceport.Key
}

// FilledByRules reports whether packets make the entries of a set.
func (id SetID) FilledByRules() bool { return declared[id].Dynamic }

// DefaultAffinitySize is the size of the affinity map. When the map is full, clients lose affinity, but no connection.
const DefaultAffinitySize = 1 << 20

// DefaultAffinityShare is the largest number of entries of one service port. The more there are, the fewer clients share
// an entry; the fewer there are, the more service ports must be flooded to fill the map.
const DefaultAffinityShare = DefaultAffinitySize / 64

// Sets are the declarations of one family, indexed by SetID.
func (p Program) Sets() [SetCount]Set {
	addr := rule.Choose(p.Family, typeIPv4, typeIPv6)
	frontend := []Type{addr, TypeProto, TypePort}
	nodePort := []Type{TypeProto, TypePort}
	number := []Type{TypeClassID}
	toNumber := func(name string) Set { return slotsMap(name, number, "meta priority", typeofPriority()) }
	toAddress := func(name string) Set {
		return slotsMap(name, []Type{addr}, p.Family.String()+" daddr", typeofDaddr(p.Family))
	}
	defs := [SetCount]Set{
		Generation:      {Name: "generation", Key: []Type{typeMark, typeMark}},
		Services:        {Name: "services", Says: Served, Key: frontend, Data: number, Counter: true},
		NodePorts:       {Name: "nodeports", Says: Served, Key: nodePort, Data: number, Counter: true},
		Pools:           {Name: "pools", Key: number, Data: number},
		Dispatch:        {Name: "dispatch", Key: number, Data: []Type{TypeVerdict}},
		Endpoints:       slotsMap("endpoints", []Type{addr, TypePort}, p.Family.String()+" daddr . th dport", typeofDaddr(p.Family), typeofDport()),
		StickySlots:     toNumber("sticky-slots"),
		StickyEndpoints: {Name: "sticky-endpoints", Key: number, Data: []Type{addr, TypePort}},
		Affinity:        toNumber("affinity"),
		HashTables:      {Name: "hash-tables", Key: number, Data: number},
		HashSlots:       toAddress("hash-slots"),
		TargetPorts:     {Name: "target-ports", Key: number, Data: []Type{TypePort}},

		NodePortAddresses: {Name: "nodeport-addresses", Key: []Type{addr}},
		ClusterIPs:        {Name: "cluster-ips", Key: []Type{addr}},
		ExternalIPs:       {Name: "external-ips", Key: []Type{addr}},
		ServiceCIDRs:      {Name: "service-cidrs", Key: []Type{addr}, Interval: true},
		PodCIDRs:          {Name: "pod-cidrs", Key: []Type{addr}, Interval: true},
		NodePodCIDRs:      {Name: "node-pod-cidrs", Key: []Type{addr}, Interval: true},
		Hairpin:           {Name: "hairpin", Key: []Type{addr, addr}},

		MasqueradeAlways:          {Name: "masquerade-always", Says: MasqueradedAlways, Key: frontend},
		MasqueradeNode:            {Name: "masquerade-node", Says: MasqueradedNode, Key: frontend},
		MasqueradeAlwaysNodePorts: {Name: "masquerade-always-nodeports", Says: MasqueradedAlways, Key: nodePort},
		MasqueradeNodeNodePorts:   {Name: "masquerade-node-nodeports", Says: MasqueradedNode, Key: nodePort},

		Firewalled:     {Name: "firewalled", Says: Limited, Key: frontend, Data: number},
		SourceLengths:  {Name: "source-lengths", Key: number},
		AllowedSources: {Name: "allowed-sources", Key: []Type{TypeClassID, addr}},

		NoEndpoints:               {Name: "no-endpoints", Says: Rejected, Key: frontend, Counter: true},
		NoLocalEndpoints:          {Name: "no-local-endpoints", Says: Dropped, Key: frontend, Counter: true},
		NoEndpointsNodePorts:      {Name: "no-endpoints-nodeports", Says: Rejected, Key: nodePort, Counter: true},
		NoLocalEndpointsNodePorts: {Name: "no-local-endpoints-nodeports", Says: Dropped, Key: nodePort, Counter: true},

		IPVSFrontends: {Name: "ipvs-frontends", Says: Balanced, Key: frontend},
		IPVSNodePorts: {Name: "ipvs-nodeports", Says: Balanced, Key: nodePort},
		IPVSAddresses: {Name: "ipvs-addresses", Key: []Type{addr}},

		Unanswered: suspectSet("unanswered", addr),
		Refusing:   suspectSet("refusing", addr),

		HoldsRefusals:          {Name: "holds-refusals", Says: HoldingRefusals, Key: frontend, Counter: true, Rate: HeldBackRate},
		HoldsRefusalsNodePorts: {Name: "holds-refusals-nodeports", Says: HoldingRefusals, Key: nodePort, Counter: true, Rate: HeldBackRate},
		HeldBack:               {Name: "held-back", Key: []Type{addr, TypePort}, Dynamic: true, Size: HeldBackLimit},
		JustHeldBack:           {Name: "just-held-back", Key: []Type{addr, TypePort}, Dynamic: true, Size: HeldBackLimit},

		FastPath:          {Name: "fast-path", Says: Offered, Key: frontend},
		FastPathNodePorts: {Name: "fast-path-nodeports", Says: Offered, Key: nodePort},
		FastPathDevices:   {Name: "fast-path-devices", Key: []Type{typeIfname}},

		Answers:               {Name: "answers", Key: []Type{addr, TypePort}, Data: []Type{addr, TypePort}},
		RangeServices:         {Name: "range-services", Says: Served, Key: frontend, Data: number, Counter: true},
		RangeMasqueradeAlways: {Name: "range-masquerade-always", Says: MasqueradedAlways, Key: frontend},
		RangeMasqueradeNode:   {Name: "range-masquerade-node", Says: MasqueradedNode, Key: frontend},
		RangeFirewalled:       {Name: "range-firewalled", Says: Limited, Key: frontend, Data: number},
		RangeNoEndpoints:      {Name: "range-no-endpoints", Says: Rejected, Key: frontend, Counter: true},
		RangeNoLocalEndpoints: {Name: "range-no-local-endpoints", Says: Dropped, Key: frontend, Counter: true},
		RangeHoldsRefusals:    {Name: "range-holds-refusals", Says: HoldingRefusals, Key: frontend, Counter: true, Rate: HeldBackRate},
		RangeFastPath:         {Name: "range-fast-path", Says: Offered, Key: frontend},
		Addresses:             toAddress("addresses"),
		StickyAddresses:       {Name: "sticky-addresses", Key: number, Data: []Type{addr}},
	}
	defs[Affinity].Dynamic, defs[Affinity].Size = true, DefaultAffinitySize
	for id := range defs {
		defs[id].Ports = SetID(id).HasPorts()
	}
	return defs
}

// slotsMap has a key of two numbers, and data that the text and the expressions declare. The second number is that of a
// slot or of a client. It is an integer, which only an expression can declare.
func slotsMap(name string, data []Type, text string, exprs ...typeofExpr) Set {
	return Set{Name: name, Key: []Type{TypeClassID, typeInteger}, Data: data, typeof: &Typeof{
		text: "meta priority . numgen random mod 65536 : " + text,
		key:  []typeofExpr{typeofPriority(), typeofNumgen()}, data: exprs,
	}}
}

// SuspectTimeout is how long an element stays. Readers poll several times a second.
const SuspectTimeout = 5 * time.Second

// SuspectLimit is the size of each of the sets.
const SuspectLimit = 16384

func suspectSet(name string, addr Type) Set {
	return Set{Name: name, Key: []Type{addr, TypePort}, Dynamic: true, Counter: true, Size: SuspectLimit}
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
