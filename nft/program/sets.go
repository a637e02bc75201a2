package program

import (
	"slices"
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

const (
	mapServices  = "services"
	mapNodePorts = "nodeports"
	mapPools     = "pools"
	mapDispatch  = "dispatch"
	mapEndpoints = "endpoints"
	mapAffinity  = "affinity"

	mapFirewalled = "firewalled"

	mapStickySlots     = "sticky-slots"
	mapStickyEndpoints = "sticky-endpoints"

	mapHashTables  = "hash-tables"
	mapHashSlots   = "hash-slots"
	mapTargetPorts = "target-ports"

	setGeneration                = "generation"
	setNodePortAddresses         = "nodeport-addresses"
	setClusterIPs                = "cluster-ips"
	setServiceCIDRs              = "service-cidrs"
	setPodCIDRs                  = "pod-cidrs"
	setHairpin                   = "hairpin"
	setMasqueradeAlways          = "masquerade-always"
	setMasqueradeNode            = "masquerade-node"
	setMasqueradeAlwaysNodePorts = "masquerade-always-nodeports"
	setMasqueradeNodeNodePorts   = "masquerade-node-nodeports"
	setSourceLengths             = "source-lengths"
	setAllowedSources            = "allowed-sources"
	setNoEndpoints               = "no-endpoints"
	setNoLocalEndpoints          = "no-local-endpoints"
	setNoEndpointsNodePorts      = "no-endpoints-nodeports"
	setNoLocalEndpointsNodePorts = "no-local-endpoints-nodeports"
	setIPVSFrontends             = "ipvs-frontends"
	setIPVSNodePorts             = "ipvs-nodeports"
	setIPVSAddresses             = "ipvs-addresses"
	setUnanswered                = "unanswered"
	setRefusing                  = "refusing"
	setHoldsRefusals             = "holds-refusals"
	setHoldsRefusalsNodePorts    = "holds-refusals-nodeports"
	setHeldBack                  = "held-back"
	setJustHeldBack              = "just-held-back"

	mapAnswers               = "answers"
	mapRangeServices         = "range-services"
	setRangeMasqueradeAlways = "range-masquerade-always"
	setRangeMasqueradeNode   = "range-masquerade-node"
	mapRangeFirewalled       = "range-firewalled"
	setRangeNoEndpoints      = "range-no-endpoints"
	setRangeNoLocalEndpoints = "range-no-local-endpoints"
	setRangeHoldsRefusals    = "range-holds-refusals"
	mapAddresses             = "addresses"
	mapStickyAddresses       = "sticky-addresses"
)

// SetNames are the names of the sets, the same in both families.
var SetNames = [SetCount]string{
	Generation:                setGeneration,
	Services:                  mapServices,
	NodePorts:                 mapNodePorts,
	Pools:                     mapPools,
	Dispatch:                  mapDispatch,
	Endpoints:                 mapEndpoints,
	StickySlots:               mapStickySlots,
	StickyEndpoints:           mapStickyEndpoints,
	Affinity:                  mapAffinity,
	HashTables:                mapHashTables,
	HashSlots:                 mapHashSlots,
	TargetPorts:               mapTargetPorts,
	NodePortAddresses:         setNodePortAddresses,
	ClusterIPs:                setClusterIPs,
	ServiceCIDRs:              setServiceCIDRs,
	PodCIDRs:                  setPodCIDRs,
	Hairpin:                   setHairpin,
	MasqueradeAlways:          setMasqueradeAlways,
	MasqueradeNode:            setMasqueradeNode,
	MasqueradeAlwaysNodePorts: setMasqueradeAlwaysNodePorts,
	MasqueradeNodeNodePorts:   setMasqueradeNodeNodePorts,
	Firewalled:                mapFirewalled,
	SourceLengths:             setSourceLengths,
	AllowedSources:            setAllowedSources,
	NoEndpoints:               setNoEndpoints,
	NoLocalEndpoints:          setNoLocalEndpoints,
	NoEndpointsNodePorts:      setNoEndpointsNodePorts,
	NoLocalEndpointsNodePorts: setNoLocalEndpointsNodePorts,
	IPVSFrontends:             setIPVSFrontends,
	IPVSNodePorts:             setIPVSNodePorts,
	IPVSAddresses:             setIPVSAddresses,
	Unanswered:                setUnanswered,
	Refusing:                  setRefusing,
	HoldsRefusals:             setHoldsRefusals,
	HoldsRefusalsNodePorts:    setHoldsRefusalsNodePorts,
	HeldBack:                  setHeldBack,
	JustHeldBack:              setJustHeldBack,
	Answers:                   mapAnswers,
	RangeServices:             mapRangeServices,
	RangeMasqueradeAlways:     setRangeMasqueradeAlways,
	RangeMasqueradeNode:       setRangeMasqueradeNode,
	RangeFirewalled:           mapRangeFirewalled,
	RangeNoEndpoints:          setRangeNoEndpoints,
	RangeNoLocalEndpoints:     setRangeNoLocalEndpoints,
	RangeHoldsRefusals:        setRangeHoldsRefusals,
	Addresses:                 mapAddresses,
	StickyAddresses:           mapStickyAddresses,
}

func (id SetID) Name() string { return SetNames[id] }

// HasPorts reports whether the keys of a set are frontends with ranges of ports.
func (id SetID) HasPorts() bool { return id >= RangeServices && id <= RangeHoldsRefusals }

// HasPorts reports the same for the set of that name.
func HasPorts(name string) bool { return slices.Contains(SetNames[RangeServices:Addresses], name) }

// IsSet reports whether the program has a set of that name.
func IsSet(name string) bool { return slices.Contains(SetNames[:], name) }

// FilledByRules reports whether packets make the entries of the set of that name.
func FilledByRules(name string) bool {
	return slices.Contains([]string{mapAffinity, setUnanswered, setRefusing, setHeldBack, setJustHeldBack}, name)
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
	defs := [SetCount]Set{
		Generation:      {Key: []Type{typeMark, typeMark}},
		Services:        {Key: frontend, Data: number, Counter: true},
		NodePorts:       {Key: nodePort, Data: number, Counter: true},
		Pools:           {Key: number, Data: number},
		Dispatch:        {Key: number, Data: []Type{TypeVerdict}},
		Endpoints:       endpointsMap(p.Family),
		StickySlots:     stickySlotsMap(),
		StickyEndpoints: {Key: number, Data: []Type{addr, TypePort}},
		Affinity:        affinityMap(),
		HashTables:      {Key: number, Data: number},
		HashSlots:       hashSlotsMap(p.Family),
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

		HoldsRefusals:          {Key: frontend, Counter: true},
		HoldsRefusalsNodePorts: {Key: nodePort, Counter: true},
		HeldBack:               {Key: []Type{addr, TypePort}, Dynamic: true, Counter: true, Size: HeldBackLimit},
		JustHeldBack:           {Key: []Type{addr, TypePort}, Dynamic: true, Counter: true, Size: HeldBackLimit},

		Answers:               {Key: []Type{addr, TypePort}, Data: []Type{addr, TypePort}},
		RangeServices:         {Key: frontend, Data: number, Counter: true},
		RangeMasqueradeAlways: {Key: frontend},
		RangeMasqueradeNode:   {Key: frontend},
		RangeFirewalled:       {Key: frontend, Data: number},
		RangeNoEndpoints:      {Key: frontend, Counter: true},
		RangeNoLocalEndpoints: {Key: frontend, Counter: true},
		RangeHoldsRefusals:    {Key: frontend, Counter: true},
		Addresses:             hashSlotsMap(p.Family),
		StickyAddresses:       {Key: number, Data: []Type{addr}},
	}
	for id := range defs {
		defs[id].Name, defs[id].Ports = SetNames[id], SetID(id).HasPorts()
	}
	return defs
}

func endpointsMap(f Family) Set {
	return Set{
		Key: []Type{TypeClassID, typeInteger}, Data: []Type{addrType(f), TypePort},
		typeof: &Typeof{
			text: "meta priority . numgen random mod 65536 : " + f.String() + " daddr . th dport",
			key:  []typeofExpr{typeofPriority(), typeofNumgen()}, data: []typeofExpr{typeofDaddr(f), typeofDport()},
		},
	}
}

func stickySlotsMap() Set {
	return Set{
		Key: []Type{TypeClassID, typeInteger}, Data: []Type{TypeClassID},
		typeof: &Typeof{
			text: "meta priority . numgen random mod 65536 : meta priority",
			key:  []typeofExpr{typeofPriority(), typeofNumgen()}, data: []typeofExpr{typeofPriority()},
		},
	}
}

func affinityMap() Set {
	return Set{
		Key: []Type{TypeClassID, typeInteger}, Data: []Type{TypeClassID},
		Dynamic: true, Size: DefaultAffinitySize,
		typeof: &Typeof{ // a client number is an integer, like the number of a slot
			text: "meta priority . numgen random mod 65536 : meta priority",
			key:  []typeofExpr{typeofPriority(), typeofNumgen()}, data: []typeofExpr{typeofPriority()},
		},
	}
}

func hashSlotsMap(f Family) Set {
	return Set{
		Key: []Type{TypeClassID, typeInteger}, Data: []Type{addrType(f)},
		typeof: &Typeof{
			text: "meta priority . numgen random mod 65536 : " + f.String() + " daddr",
			key:  []typeofExpr{typeofPriority(), typeofNumgen()}, data: []typeofExpr{typeofDaddr(f)},
		},
	}
}

// SuspectTimeout is how long an element stays. Readers poll several times a second.
const SuspectTimeout = 5 * time.Second

// SuspectLimit is the size of each of the sets.
const SuspectLimit = 16384

func suspectSet(addr Type) Set {
	return Set{Key: []Type{addr, TypePort}, Dynamic: true, Counter: true, Size: SuspectLimit}
}

// suspect adds an endpoint to a set, and counts the packet there. The rule has made sure that the connection is of TCP.
func suspect(set string, endpoint rule.Key) rule.Statement {
	return rule.AddTo(set, endpoint, SuspectTimeout)
}

// HeldBackLimit is the size of the set "held-back".
const HeldBackLimit = 65536
