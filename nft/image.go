package nft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// image is what the kernel has in those maps of a table whose contents refer to numbers: of pools, of classes, of hash
// tables. An engine that starts gives the same numbers and slots to what is there already. So its first transaction is
// small, and the elements keep their counters.
type image struct {
	generation uint32 // of nf_tables, before the image was read
	names      map[uint32]string
	classOf    map[uint32]uint32 // the number of a pool's class, by the number of the pool
	classes    map[uint32]class  // by number
	hashed     map[uint32]uint32 // the data of a pool in the map hash-tables
	stamps     []foundElement
	rows       map[setID]map[uint32]row // the slots of pools and hash tables, by number
}

// row is the data in consecutive slots.
type row struct {
	data []byte
	each int // bytes of one slot
}

func (r row) slots() int {
	if r.each == 0 {
		return 0
	}
	return len(r.data) / r.each
}

// at is the data in a slot; nil: there is no such slot. No slot has zeros: they are a gap.
func (r row) at(slot uint32) []byte {
	if int(slot) >= r.slots() {
		return nil
	}
	data := r.data[int(slot)*r.each : (int(slot)+1)*r.each]
	if len(bytes.TrimLeft(data, "\x00")) == 0 {
		return nil
	}
	return data
}

// slotSets are the maps whose key is a pool or hash table and a slot. A row of slots has no gaps.
var slotSets = []setID{idEndpoints, idStickySlots}

// canBeRead reports whether the sets of an image are there, in the form that this program has.
func (tb *table) canBeRead(was existing) bool {
	if !was.table || !was.sameLayout {
		return false
	}
	for _, id := range []setID{idPools, idDispatch, idHashTables, idGeneration, idEndpoints, idStickySlots} {
		if !was.hasSet(&tb.defs[id]) {
			return false
		}
	}
	return true
}

// readImage reads the image of a table; nil: there is no such table, or another program deletes it at this moment.
func (tb *table) readImage(k kernel) (*image, error) {
	generation, err := k.generation()
	if err != nil {
		return nil, err
	}
	was, err := k.surveySets(tb.family)
	if err != nil || !tb.canBeRead(was) {
		return nil, err
	}
	im := &image{
		generation: generation, names: map[uint32]string{}, classOf: map[uint32]uint32{}, classes: map[uint32]class{},
		hashed: map[uint32]uint32{}, rows: map[setID]map[uint32]row{},
	}
	for _, read := range []func(kernel, *table) error{im.readStamps, im.readPools, im.readClasses, im.readHashed, im.readRows} {
		err = read(k, tb)
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return im, nil
}

// current reports whether the image still is what the kernel has.
func (im *image) current(k kernel) (bool, error) {
	if im == nil {
		return false, nil
	}
	now, err := k.generation()
	return now == im.generation, err
}

func (im *image) readStamps(k kernel, tb *table) error {
	return k.dumpElements(tb.family, setGeneration, func(e foundElement) { im.stamps = append(im.stamps, e.clone()) })
}

func (im *image) readPools(k kernel, tb *table) error {
	return k.dumpElements(tb.family, mapPools, func(e foundElement) {
		if len(e.key) == 4 && len(e.data) == 4 {
			number := binary.NativeEndian.Uint32(e.key)
			im.classOf[number] = binary.NativeEndian.Uint32(e.data) >> poolBits
			im.names[number] = e.comment
		}
	})
}

func (im *image) readClasses(k kernel, tb *table) error {
	return k.dumpElements(tb.family, mapDispatch, func(e foundElement) {
		if c, ok := parseClass(string(e.data)); ok && len(e.key) == 4 {
			im.classes[binary.NativeEndian.Uint32(e.key)>>poolBits] = c
		}
	})
}

func (im *image) readHashed(k kernel, tb *table) error {
	return k.dumpElements(tb.family, mapHashTables, func(e foundElement) {
		if len(e.key) == 4 && len(e.data) == 4 {
			im.hashed[binary.NativeEndian.Uint32(e.key)] = binary.NativeEndian.Uint32(e.data)
		}
	})
}

// dumpLimit is the largest number of slots that are read with one dump. A dump takes time by the square of the number,
// because the kernel begins at the first element again for each part: 0.5 s for 100,000 elements and 10 s for 500,000.
// To ask for each slot takes 6 µs, but does not find slots of pools that do not exist.
const dumpLimit = 1 << 17

// readRows reads the slots of all pools, and those of hash tables that are in the map of endpoints.
func (im *image) readRows(k kernel, tb *table) error {
	wanted := map[setID]map[uint32]uint32{} // the largest number of slots
	total := uint32(0)
	for _, id := range slotSets {
		wanted[id], im.rows[id] = map[uint32]uint32{}, map[uint32]row{}
	}
	for number, id := range im.classOf {
		c := im.classes[id]
		set := idEndpoints
		if c.affinity > 0 {
			set = idStickySlots
		}
		slots := c.size
		if value := im.hashed[number]; c.hashed() && value != 0 {
			slots = 1 // the pool itself has one slot; the others are in its table
			if value&portMask == 0 {
				wanted[idEndpoints][value] = c.size
			}
		}
		wanted[set][number] = slots
		total += c.size
	}
	read := im.askRows
	if total <= dumpLimit {
		read = im.dumpRows
	}
	for _, id := range slotSets {
		if err := read(k, tb, id, wanted[id]); err != nil {
			return fmt.Errorf("read slots of %s: %w", tb.defs[id].name, err)
		}
	}
	return nil
}

// askRows asks for the slots of known pools and tables.
func (im *image) askRows(k kernel, tb *table, id setID, wanted map[uint32]uint32) error {
	for _, number := range slices.Sorted(maps.Keys(wanted)) {
		var r row
		err := readRow(k, tb.family, tb.defs[id].name, number, wanted[number], func(data []byte) { r.append(data) })
		if err != nil {
			return err
		}
		im.rows[id][number] = r
	}
	return nil
}

// append adds the next slot.
func (r *row) append(data []byte) {
	if r.each == 0 {
		r.each = len(data)
	}
	if len(data) == r.each {
		r.data = append(r.data, data...)
	}
}

// dumpRows reads all slots.
func (im *image) dumpRows(k kernel, tb *table, id setID, _ map[uint32]uint32) error {
	rows, size := im.rows[id], 0
	err := k.dumpElements(tb.family, tb.defs[id].name, func(e foundElement) {
		if len(e.key) != 8 || len(e.data) == 0 {
			return
		}
		number, slot := binary.NativeEndian.Uint32(e.key), binary.NativeEndian.Uint32(e.key[4:])
		if size == 0 {
			size = len(e.data)
		}
		if slot >= 1<<16 || len(e.data) != size {
			return // no engine writes such a slot
		}
		r := rows[number]
		r.each = size
		if missing := (int(slot)+1)*size - len(r.data); missing > 0 {
			r.data = append(r.data, make([]byte, missing)...)
		}
		copy(r.data[int(slot)*size:], e.data)
		rows[number] = r
	})
	return err
}

// readRow asks for the data of consecutive slots, up to the first one that does not exist.
func readRow(k readable, f Family, set string, number, slots uint32, each func(data []byte)) error {
	for first := uint32(0); first < slots; first += rowLength {
		keys := make([][]byte, min(rowLength, slots-first))
		for i := range keys {
			var b builder
			b.word(number)
			b.word(first + uint32(i))
			keys[i] = b.arena
		}
		found, err := k.lookupRow(f, set, keys, func(e foundElement) { each(e.data) })
		if err != nil || found < len(keys) {
			return err
		}
	}
	return nil
}

// rowLength is how many elements one request asks for. The answers fit in the socket buffer of an ordinary user.
const rowLength = 128
