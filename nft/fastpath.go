package nft

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Devices of the flowtables come and go with pods. If one that goes at this moment is in a transaction, the kernel refuses all of it. So
// devices have transactions of their own, which change nothing else. What the kernel has is read each time: it takes out by itself
// a device that goes (from Linux 6.16 on, it keeps the name).

// maxDevices is how many devices a transaction has. The kernel takes 256.
const maxDevices = 128

// FollowDevices gives the flowtables these devices, sorted, and takes the others out. A table without the flowtable gets none. Connections
// by a device are offered from the next call on, which sees whether the flowtable has got it.
func (e *Engine) FollowDevices(wanted []string) (err error) {
	if !e.settled() {
		return nil
	}
	var missing, gone [2][]string
	t := &program.Transaction{}
	for i, tb := range e.tables {
		list, err := e.conn.Flowtables(tb.Family)
		if err != nil {
			return fmt.Errorf("list the flowtables of table %s %s: %w", tb.Family, program.TableName, err)
		}
		flowtable, found := list[program.FastPathTable]
		has := slices.Sorted(slices.Values(flowtable.Devices))
		if gone[i] = lacking(has, wanted); found {
			missing[i] = lacking(wanted, has)
		}
		tb.Want.OfferBy(lacking(has, gone[i]))
		tb.Want.Write(t.For(tb.Family))
	}
	if !t.Empty() {
		if err = e.sendApart(t, true); err != nil { // the ledger keeps it for the next call
			return fmt.Errorf("change by which devices connections are offered: %w", err)
		}
		for _, tb := range e.tables {
			tb.Repaired()
		}
	}
	for i, tb := range e.tables {
		o := program.Operation{Kind: program.DeleteFlowtable, Family: tb.Family, Name: program.FastPathTable}
		err = errors.Join(err, e.changeDevices(o, gone[i]))
		o.Kind = program.AddFlowtable
		err = errors.Join(err, e.changeDevices(o, missing[i]))
	}
	return err
}

// lacking returns the devices that others lack. Both lists are sorted.
func lacking(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool { _, found := slices.BinarySearch(others, name); return found })
}

// changeDevices sends an operation with some devices: together, and if the kernel refuses that, one by one. A device that is gone is no error.
func (e *Engine) changeDevices(o program.Operation, devices []string) (err error) {
	for some := range slices.Chunk(devices, maxDevices) {
		o.Devices = some
		t := &program.Transaction{}
		t.Do(o)
		outcome, refused := kernel.SendAlone(e.conn, t)
		switch {
		case refused == nil || len(some) == 1 && errors.Is(refused, unix.ENOENT):
		case outcome != kernel.Rejected || len(some) == 1:
			err = errors.Join(err, refused)
		default:
			for i := range some {
				err = errors.Join(err, e.changeDevices(o, some[i:i+1]))
			}
		}
	}
	return err
}
