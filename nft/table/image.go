package table

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/contents/elements"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// current reports whether the image still is what the kernel has.
func (r *imageReader) current() (bool, error) {
	if r == nil {
		return false, nil
	}
	now, err := r.kernel.Generation()
	return now == r.generation, err
}

// imageReader reads an image.
type imageReader struct {
	*elements.Image
	kernel     kernel.NFTables
	family     program.Family
	generation uint32 // of nf_tables, before the image was read
	stamps     []kernel.Found
}

func (r *imageReader) readStamps() error {
	return r.kernel.DumpElements(r.family, program.Generation, func(e kernel.Found) { r.stamps = append(r.stamps, e.Clone()) })
}

// numbers reads a map whose keys are numbers.
func (r *imageReader) numbers(id program.SetID, each func(number uint32, e *kernel.Found)) error {
	return r.kernel.DumpElements(r.family, id, func(e kernel.Found) {
		if number, ok := kernel.Number(e.Key); ok {
			each(number, &e)
		}
	})
}

func (r *imageReader) readPools() error {
	return r.numbers(program.Pools, func(number uint32, e *kernel.Found) {
		if class, ok := e.Number(); ok {
			r.ClassOf[number], r.Names[number] = class>>program.PoolBits, e.Comment
		}
	})
}

// readFirewalled reads the numbers of frontends with source ranges. A version that did not have the sets had no such frontends.
func (r *imageReader) readFirewalled() error {
	for _, id := range []program.SetID{program.Firewalled, program.RangeFirewalled} {
		err := r.kernel.DumpElements(r.family, id, func(e kernel.Found) {
			if n, ok := e.Number(); ok && r.Names[n&program.PoolMask] == "" {
				r.Names[n&program.PoolMask] = e.Comment
			}
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

func (r *imageReader) readClasses() error {
	return r.numbers(program.Dispatch, func(number uint32, e *kernel.Found) {
		if c, ok := program.ParseClass(string(e.Data)); ok {
			r.Classes[number>>program.PoolBits] = c
		}
	})
}

func (r *imageReader) readHashed() error {
	return r.numbers(program.HashTables, func(number uint32, e *kernel.Found) {
		if table, ok := e.Number(); ok {
			r.Hashed[number] = table
		}
	})
}

// dumpLimit is the largest number of slots that are read with one dump. A dump takes time by the square of the number,
// because the kernel begins at the first element again for each part: 0.5 s for 100,000 elements and 10 s for 500,000.
// To ask for each slot takes 6 µs, but does not find slots of pools that do not exist.
const dumpLimit = 1 << 17

// rows reads the slots of all pools, and those of hash tables that are in the map of endpoints.
func (r *imageReader) readRows() error {
	im := r.Image
	wanted := map[program.SetID]map[uint32]uint32{} // the largest number of slots
	total := uint32(0)
	for _, id := range slotSets() {
		wanted[id], im.Rows[id] = map[uint32]uint32{}, map[uint32]elements.Row{}
	}
	wantTable := func(value, slots uint32) {
		id, number, _ := program.TableOf(value)
		wanted[id][number] = slots
	}
	for number, value := range im.Hashed {
		if hashing.IsMark(number) {
			wantTable(value, program.MaxSlots)
			total += program.MaxSlots
		}
	}
	for number, id := range im.ClassOf {
		c := im.Classes[id]
		slots := c.Size
		if value := im.Hashed[number]; c.Hashed() && value != 0 {
			slots = 1 // the pool itself has one slot; the others are in its table
			wantTable(value, c.Size)
		}
		wanted[c.Slots()][number] = slots
		total += c.Size
	}
	read := r.askRows
	if total <= dumpLimit {
		read = r.dumpRows
	}
	for _, id := range slotSets() {
		if (id == program.Addresses || id == program.HashSlots) && len(wanted[id]) == 0 {
			delete(im.Rows, id) // an earlier version does not have the map
			continue
		}
		if err := read(id, wanted[id]); err != nil {
			return fmt.Errorf("read slots of %s: %w", id.Name(), err)
		}
	}
	return nil
}

// askRows asks for the slots of known pools and tables.
func (r *imageReader) askRows(id program.SetID, wanted map[uint32]uint32) error {
	for _, number := range slices.Sorted(maps.Keys(wanted)) {
		var slots elements.Row
		if err := kernel.ReadRow(r.kernel, r.family, id, number, wanted[number], slots.Append); err != nil {
			return err
		}
		r.Rows[id][number] = slots
	}
	return nil
}

// dumpRows reads all slots.
func (r *imageReader) dumpRows(id program.SetID, _ map[uint32]uint32) error {
	rows, size := r.Rows[id], 0
	return r.kernel.DumpElements(r.family, id, func(e kernel.Found) {
		if len(e.Key) != 8 || len(e.Data) == 0 {
			return
		}
		number, slot := binary.NativeEndian.Uint32(e.Key), binary.NativeEndian.Uint32(e.Key[4:])
		if size = cmp.Or(size, len(e.Data)); slot >= 1<<16 || len(e.Data) != size {
			return // no engine writes such a slot
		}
		slots := rows[number]
		slots.Put(slot, e.Data)
		rows[number] = slots
	})
}
