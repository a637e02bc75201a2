package nft

import (
	"encoding/binary"
	"net/netip"
)

// To undo what another process did to some elements, the engine needs to know what these elements are to be. It builds
// only the service ports that own them. There is no index from elements to service ports: a repair is rare, and to look
// at each port's number and frontends takes less than a microsecond.

// owners finds the service ports that own some elements.
type owners struct {
	numbers   map[uint32]bool // of service ports; a key may also name one by chance
	frontends map[string]bool // keys
	key       builder
}

// note adds the key of an element.
func (o *owners) note(d *setDef, key []byte) {
	if d.key[0].name != typeClassID.name {
		o.frontends[string(key)] = true
	} else if len(key) >= 4 {
		o.numbers[binary.NativeEndian.Uint32(key)&poolMask>>1] = true
	}
}

func (o *owners) own(p *port) bool {
	if o.numbers[p.number] {
		return true
	}
	if len(o.frontends) == 0 {
		return false
	}
	for i := range p.frontends {
		o.key.arena = o.key.arena[:0]
		o.key.frontend(&p.frontends[i], p.protocol)
		if o.frontends[string(o.key.arena)] {
			return true
		}
	}
	return false
}

// keysOf are keys of elements, by set.
type keysOf map[setID][][]byte

// owned lists what the kernel's table is to have, as of the last transaction: all elements of small sets, all of the
// service ports that own one of the keys, and of the other sets those with these keys.
func (tb *table) owned(keys keysOf) *Transaction {
	t := &Transaction{}
	tb.listSmallSets(t)
	o := &owners{numbers: map[uint32]bool{}, frontends: map[string]bool{}}
	for id, list := range keys {
		for _, key := range list {
			o.note(&tb.defs[id], key)
			tb.listShared(t, id, key)
		}
	}
	for _, p := range tb.ports {
		if o.own(p) {
			tb.listPort(t, p)
		}
	}
	return t
}

// listPort lists the elements of a service port.
func (tb *table) listPort(t *Transaction, p *port) {
	tb.buildPort(t, p)
	for i := range p.pools {
		if pl := &p.pools[i]; pl.hash.written != 0 {
			t.add(tb.family, idHashTables, tb.hashedElement(t, touchedPool{p, pl}, pl.hash.written))
		}
	}
}

// listSmallSets lists the elements of sets that do not grow with the number of Services.
func (tb *table) listSmallSets(t *Transaction) {
	t.add(tb.family, idGeneration, tb.stampElement(t, tb.stamp, tb.fingerprint()))
	for id, c := range tb.classes.byID {
		t.add(tb.family, idDispatch, dispatchElement(t, c, id))
	}
	for port := range tb.hash.ports {
		t.add(tb.family, idTargetPorts, targetPort(t, port))
	}
	tb.updateRanges(t, idServiceCIDRs, nil, tb.written.ServiceCIDRs)
	tb.updateRanges(t, idPodCIDRs, nil, tb.written.PodCIDRs)
	for _, e := range tb.nodePortAddresses(t, tb.written) {
		t.add(tb.family, e.set, e.element)
	}
}

// listShared lists the element with a key in a set that service ports share, if there is to be one.
func (tb *table) listShared(t *Transaction, id setID, key []byte) {
	switch id {
	case idClusterIPs, idHairpin, idIPVSAddresses:
		addr, ok := netip.AddrFromSlice(key[:min(len(key), tb.family.addrLen())])
		if ok && tb.hasShared(id, addr) {
			t.add(tb.family, id, addressElement(t, id, addr))
		}
	case idHashSlots, idEndpoints:
		tb.listHashSlot(t, id, key)
	}
}

// hasShared reports whether an address is to be in a set that service ports share.
func (tb *table) hasShared(id setID, addr netip.Addr) bool {
	switch id {
	case idClusterIPs:
		return tb.clusterIPs.count[addr] > 0
	case idHairpin:
		return tb.hairpin.count[addr] > 0
	}
	return tb.guarded[addr] || tb.unguarded[addr] // what is no longer guarded leaves with the next transaction
}

// addressElement is the element of an address in a set that service ports share.
func addressElement(t *Transaction, id setID, addr netip.Addr) element {
	return t.element("", func(b *builder) {
		b.addr(addr)
		if id == idHairpin {
			b.addr(addr)
		}
	}, nil)
}

// listHashSlot lists the slot of a hash table.
func (tb *table) listHashSlot(t *Transaction, id setID, key []byte) {
	if len(key) != 8 {
		return
	}
	number, slot := binary.NativeEndian.Uint32(key)>>tableShift, int(binary.NativeEndian.Uint32(key[4:]))
	table := tb.hash.numbers[number]
	if number < firstTable || table == nil || table.set() != id {
		return
	}
	if addr := table.at(slot); addr.IsValid() {
		t.add(tb.family, id, tb.hashSlot(t, number, slot, addr, table.withPorts))
	}
}

// sharedAddresses are the addresses in a set that service ports share.
func (tb *table) sharedAddresses(id setID) (list []netip.Addr) {
	switch id {
	case idClusterIPs:
		for addr := range tb.clusterIPs.count {
			list = append(list, addr)
		}
	case idHairpin:
		for addr := range tb.hairpin.count {
			list = append(list, addr)
		}
	case idIPVSAddresses:
		for addr := range tb.guarded {
			list = append(list, addr)
		}
		for addr := range tb.unguarded {
			list = append(list, addr)
		}
	}
	return list
}

// sharedSets are the sets of addresses that service ports share.
func sharedSets() []setID { return []setID{idClusterIPs, idHairpin, idIPVSAddresses} }
