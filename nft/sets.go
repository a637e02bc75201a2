package nft

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// setID is the number of a named set or map. The sets are declared in this order.
type setID uint8

// The named sets and maps. Maps that grow with the cluster hold data and no verdicts: after a change of a verdict map,
// the kernel validates the whole graph of chains.
const (
	idGeneration setID = iota
	idServices
	idNodePorts
	idPools
	idDispatch
	idEndpoints
	idStickySlots
	idStickyEndpoints
	idAffinity
	idHashTables
	idHashSlots
	idTargetPorts
	idNodePortAddresses
	idClusterIPs
	idServiceCIDRs
	idPodCIDRs
	idHairpin
	idMasqueradeAlways
	idMasqueradeNode
	idMasqueradeAlwaysNodePorts
	idMasqueradeNodeNodePorts
	idFirewalled
	idSourceLengths
	idAllowedSources
	idNoEndpoints
	idNoLocalEndpoints
	idNoEndpointsNodePorts
	idNoLocalEndpointsNodePorts
	idIPVSFrontends
	idIPVSNodePorts
	idIPVSAddresses
	idUnanswered
	idRefusing
	idHoldsRefusals
	idHoldsRefusalsNodePorts
	idHeldBack
	setCount
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
)

// setNames are the names of the sets, the same in both families.
var setNames = [setCount]string{
	idGeneration:                setGeneration,
	idServices:                  mapServices,
	idNodePorts:                 mapNodePorts,
	idPools:                     mapPools,
	idDispatch:                  mapDispatch,
	idEndpoints:                 mapEndpoints,
	idStickySlots:               mapStickySlots,
	idStickyEndpoints:           mapStickyEndpoints,
	idAffinity:                  mapAffinity,
	idHashTables:                mapHashTables,
	idHashSlots:                 mapHashSlots,
	idTargetPorts:               mapTargetPorts,
	idNodePortAddresses:         setNodePortAddresses,
	idClusterIPs:                setClusterIPs,
	idServiceCIDRs:              setServiceCIDRs,
	idPodCIDRs:                  setPodCIDRs,
	idHairpin:                   setHairpin,
	idMasqueradeAlways:          setMasqueradeAlways,
	idMasqueradeNode:            setMasqueradeNode,
	idMasqueradeAlwaysNodePorts: setMasqueradeAlwaysNodePorts,
	idMasqueradeNodeNodePorts:   setMasqueradeNodeNodePorts,
	idFirewalled:                mapFirewalled,
	idSourceLengths:             setSourceLengths,
	idAllowedSources:            setAllowedSources,
	idNoEndpoints:               setNoEndpoints,
	idNoLocalEndpoints:          setNoLocalEndpoints,
	idNoEndpointsNodePorts:      setNoEndpointsNodePorts,
	idNoLocalEndpointsNodePorts: setNoLocalEndpointsNodePorts,
	idIPVSFrontends:             setIPVSFrontends,
	idIPVSNodePorts:             setIPVSNodePorts,
	idIPVSAddresses:             setIPVSAddresses,
	idUnanswered:                setUnanswered,
	idRefusing:                  setRefusing,
	idHoldsRefusals:             setHoldsRefusals,
	idHoldsRefusalsNodePorts:    setHoldsRefusalsNodePorts,
	idHeldBack:                  setHeldBack,
}

// defaultAffinitySize is the size of the affinity map. When the map is full, clients lose affinity, but no connection.
const defaultAffinitySize = 1 << 20

// defaultAffinityShare is the largest number of entries of one service port. The more there are, the fewer clients share
// an entry; the fewer there are, the more service ports must be flooded to fill the map.
const defaultAffinityShare = defaultAffinitySize / 64

// setDef declares a set (no data) or a map.
type setDef struct {
	name     string
	key      []dataType
	data     []dataType
	typeof   *typeofDef // the declaration names expressions instead of types
	counter  bool       // each element counts its packets
	interval bool       // the key is a range of addresses
	dynamic  bool       // rules add elements, with timeouts
	size     uint32     // of a dynamic set: the largest number of elements
}

// typeofDef declares key and data by expressions. A component of a key can be an integer only in this way.
type typeofDef struct {
	key, data []typeofExpr
	text      string
}

func (d *setDef) isMap() bool { return len(d.data) > 0 }

// flags are the kernel's NFT_SET_* bits.
func (d *setDef) flags() uint32 {
	var flags uint32
	if d.isMap() {
		flags |= unix.NFT_SET_MAP
	}
	if d.interval {
		flags |= unix.NFT_SET_INTERVAL
	}
	if d.dynamic {
		flags |= unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL
	}
	return flags
}

func concatMagic(types []dataType) uint32 {
	var m uint32
	for _, t := range types {
		m = m<<6 | t.magic
	}
	return m
}

func concatLen(types []dataType) int {
	if len(types) == 1 {
		return types[0].bytes
	}
	n := 0
	for _, t := range types {
		n += t.padded()
	}
	return n
}

func concatText(types []dataType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.name
	}
	return strings.Join(names, " . ")
}

// declaration is the body of the set in nft syntax, without elements.
func (d *setDef) declaration() []string {
	var lines []string
	if d.typeof != nil {
		lines = append(lines, "typeof "+d.typeof.text)
	} else {
		line := "type " + concatText(d.key)
		if d.isMap() {
			line += " : " + concatText(d.data)
		}
		lines = append(lines, line)
	}
	switch {
	case d.dynamic:
		lines = append(lines, fmt.Sprintf("size %d", d.size), "flags dynamic,timeout")
	case d.interval:
		lines = append(lines, "flags interval")
	}
	if d.counter {
		lines = append(lines, "counter")
	}
	return lines
}

// sets are the declarations of one family, indexed by setID.
func (p program) sets() [setCount]setDef {
	addr := p.addrType()
	frontend := []dataType{addr, typeProto, typeService}
	nodePort := []dataType{typeProto, typeService}
	number := []dataType{typeClassID}
	defs := [setCount]setDef{
		idGeneration:      {key: []dataType{typeMark, typeMark}},
		idServices:        {key: frontend, data: number, counter: true},
		idNodePorts:       {key: nodePort, data: number, counter: true},
		idPools:           {key: number, data: number},
		idDispatch:        {key: number, data: []dataType{typeVerdict}},
		idEndpoints:       p.endpointsMap(),
		idStickySlots:     p.stickySlotsMap(),
		idStickyEndpoints: {key: number, data: []dataType{addr, typeService}},
		idAffinity:        p.affinityMap(),
		idHashTables:      {key: number, data: number},
		idHashSlots:       p.hashSlotsMap(),
		idTargetPorts:     {key: number, data: []dataType{typeService}},

		idNodePortAddresses: {key: []dataType{addr}},
		idClusterIPs:        {key: []dataType{addr}},
		idServiceCIDRs:      {key: []dataType{addr}, interval: true},
		idPodCIDRs:          {key: []dataType{addr}, interval: true},
		idHairpin:           {key: []dataType{addr, addr}},

		idMasqueradeAlways:          {key: frontend},
		idMasqueradeNode:            {key: frontend},
		idMasqueradeAlwaysNodePorts: {key: nodePort},
		idMasqueradeNodeNodePorts:   {key: nodePort},

		idFirewalled:     {key: frontend, data: number},
		idSourceLengths:  {key: number},
		idAllowedSources: {key: []dataType{typeClassID, addr}},

		idNoEndpoints:               {key: frontend, counter: true},
		idNoLocalEndpoints:          {key: frontend, counter: true},
		idNoEndpointsNodePorts:      {key: nodePort, counter: true},
		idNoLocalEndpointsNodePorts: {key: nodePort, counter: true},

		idIPVSFrontends: {key: frontend},
		idIPVSNodePorts: {key: nodePort},
		idIPVSAddresses: {key: []dataType{addr}},

		idUnanswered: suspectSet(addr),
		idRefusing:   suspectSet(addr),

		idHoldsRefusals:          {key: frontend, counter: true},
		idHoldsRefusalsNodePorts: {key: nodePort, counter: true},
		idHeldBack:               {key: []dataType{addr, typeService}, dynamic: true, counter: true, size: HeldBackLimit},
	}
	for id := range defs {
		defs[id].name = setNames[id]
	}
	return defs
}

func (p program) endpointsMap() setDef {
	return setDef{
		key: []dataType{typeClassID, typeInteger}, data: []dataType{p.addrType(), typeService},
		typeof: &typeofDef{
			text: "meta priority . numgen random mod 65536 : " + p.family.String() + " daddr . th dport",
			key:  []typeofExpr{typeofPriority(), typeofNumgen()}, data: []typeofExpr{p.typeofDaddr(), typeofDport()},
		},
	}
}

func (p program) stickySlotsMap() setDef {
	return setDef{
		key: []dataType{typeClassID, typeInteger}, data: []dataType{typeClassID},
		typeof: &typeofDef{
			text: "meta priority . numgen random mod 65536 : meta priority",
			key:  []typeofExpr{typeofPriority(), typeofNumgen()}, data: []typeofExpr{typeofPriority()},
		},
	}
}

func (p program) affinityMap() setDef {
	return setDef{
		key: []dataType{typeClassID, typeInteger}, data: []dataType{typeClassID},
		dynamic: true, size: defaultAffinitySize,
		typeof: &typeofDef{ // a client number is an integer, like the number of a slot
			text: "meta priority . numgen random mod 65536 : meta priority",
			key:  []typeofExpr{typeofPriority(), typeofNumgen()}, data: []typeofExpr{typeofPriority()},
		},
	}
}
