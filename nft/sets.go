package nft

import (
	"strings"

	"golang.org/x/sys/unix"
)

// setID numbers the named sets and maps of a table; it is also the order in which they are declared.
type setID uint8

// The named sets and maps. Those that grow with the cluster are plain data (never verdict maps: for a change of a
// verdict map the kernel validates the whole graph of chains, for a change of data it does not).
const (
	idServices setID = iota
	idNodePorts
	idPools
	idDispatch
	idEndpoints
	idStickySlots
	idStickyEndpoints
	idAffinity
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
	idAllowedSources
	idNoEndpoints
	idNoLocalEndpoints
	idNoEndpointsNodePorts
	idNoLocalEndpointsNodePorts
	setCount
)

const (
	mapServices  = "services"
	mapNodePorts = "nodeports"
	mapPools     = "pools"
	mapDispatch  = "dispatch"
	mapEndpoints = "endpoints"
	mapAffinity  = "affinity"

	mapStickySlots     = "sticky-slots"
	mapStickyEndpoints = "sticky-endpoints"

	setNodePortAddresses         = "nodeport-addresses"
	setClusterIPs                = "cluster-ips"
	setServiceCIDRs              = "service-cidrs"
	setPodCIDRs                  = "pod-cidrs"
	setHairpin                   = "hairpin"
	setMasqueradeAlways          = "masquerade-always"
	setMasqueradeNode            = "masquerade-node"
	setMasqueradeAlwaysNodePorts = "masquerade-always-nodeports"
	setMasqueradeNodeNodePorts   = "masquerade-node-nodeports"
	setFirewalled                = "firewalled"
	setAllowedSources            = "allowed-sources"
	setNoEndpoints               = "no-endpoints"
	setNoLocalEndpoints          = "no-local-endpoints"
	setNoEndpointsNodePorts      = "no-endpoints-nodeports"
	setNoLocalEndpointsNodePorts = "no-local-endpoints-nodeports"
)

// affinitySize bounds the affinity map; a full map costs stickiness, never a connection.
const affinitySize = 1 << 20

// setDef declares a set (no data) or a map.
type setDef struct {
	name     string
	key      []dataType
	data     []dataType
	typeof   *typeofDef // declared by expressions instead of types
	counter  bool       // a lookup that hits counts
	interval bool
	dynamic  bool // the kernel adds elements, with timeouts
}

// typeofDef declares key and data by expressions: the only way to give a key component the type "integer".
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
		if len(d.key) > 1 {
			flags |= setConcat
		}
	}
	if d.dynamic {
		flags |= unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL
	}
	return flags
}

// setConcat is NFT_SET_CONCAT (kernel 5.6), which x/sys does not have.
const setConcat = 0x80

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
		lines = append(lines, "size 1048576", "flags dynamic,timeout")
	case d.interval:
		lines = append(lines, "flags interval")
	}
	if d.counter {
		lines = append(lines, "counter")
	}
	return lines
}

// sets are the declarations of one family, indexed by setID.
func (f Family) sets() [setCount]setDef {
	addr := f.addrType()
	frontend := []dataType{addr, typeProto, typeService}
	nodePort := []dataType{typeProto, typeService}
	number := []dataType{typeClassID}
	return [setCount]setDef{
		idServices:        {name: mapServices, key: frontend, data: number, counter: true},
		idNodePorts:       {name: mapNodePorts, key: nodePort, data: number, counter: true},
		idPools:           {name: mapPools, key: number, data: number},
		idDispatch:        {name: mapDispatch, key: number, data: []dataType{typeVerdict}},
		idEndpoints:       f.endpointsMap(),
		idStickySlots:     f.stickySlotsMap(),
		idStickyEndpoints: {name: mapStickyEndpoints, key: number, data: []dataType{addr, typeService}},
		idAffinity:        f.affinityMap(),

		idNodePortAddresses: {name: setNodePortAddresses, key: []dataType{addr}},
		idClusterIPs:        {name: setClusterIPs, key: []dataType{addr}},
		idServiceCIDRs:      {name: setServiceCIDRs, key: []dataType{addr}, interval: true},
		idPodCIDRs:          {name: setPodCIDRs, key: []dataType{addr}, interval: true},
		idHairpin:           {name: setHairpin, key: []dataType{addr, addr}},

		idMasqueradeAlways:          {name: setMasqueradeAlways, key: frontend},
		idMasqueradeNode:            {name: setMasqueradeNode, key: frontend},
		idMasqueradeAlwaysNodePorts: {name: setMasqueradeAlwaysNodePorts, key: nodePort},
		idMasqueradeNodeNodePorts:   {name: setMasqueradeNodeNodePorts, key: nodePort},

		idFirewalled:     {name: setFirewalled, key: frontend},
		idAllowedSources: {name: setAllowedSources, key: append(frontend[:3:3], addr), interval: true},

		idNoEndpoints:               {name: setNoEndpoints, key: frontend, counter: true},
		idNoLocalEndpoints:          {name: setNoLocalEndpoints, key: frontend, counter: true},
		idNoEndpointsNodePorts:      {name: setNoEndpointsNodePorts, key: nodePort, counter: true},
		idNoLocalEndpointsNodePorts: {name: setNoLocalEndpointsNodePorts, key: nodePort, counter: true},
	}
}

func (f Family) endpointsMap() setDef {
	return setDef{
		name: mapEndpoints, key: []dataType{typeClassID, typeInteger}, data: []dataType{f.addrType(), typeService},
		typeof: &typeofDef{
			text: "meta priority . numgen random mod 65536 : " + f.String() + " daddr . th dport",
			key:  []typeofExpr{typeofPriority(), typeofNumgen()}, data: []typeofExpr{f.typeofDaddr(), typeofDport()},
		},
	}
}

func (f Family) stickySlotsMap() setDef {
	return setDef{
		name: mapStickySlots, key: []dataType{typeClassID, typeInteger}, data: []dataType{typeClassID},
		typeof: &typeofDef{
			text: "meta priority . numgen random mod 65536 : meta priority",
			key:  []typeofExpr{typeofPriority(), typeofNumgen()}, data: []typeofExpr{typeofPriority()},
		},
	}
}

func (f Family) affinityMap() setDef {
	return setDef{
		name: mapAffinity, key: []dataType{typeClassID, f.addrType()}, data: []dataType{typeClassID}, dynamic: true,
		typeof: &typeofDef{
			text: "meta priority . " + f.String() + " saddr : meta priority",
			key:  []typeofExpr{typeofPriority(), f.typeofSaddr()}, data: []typeofExpr{typeofPriority()},
		},
	}
}
