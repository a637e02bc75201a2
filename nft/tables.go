package nft

import (
	"errors"
	"fmt"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/table"
)

// tables are those that the engine serves.
type tables []*table.Table

// in is the table of a family; nil: the engine does not serve it.
func (ts tables) in(f program.Family) *table.Table {
	for _, tb := range ts {
		if tb.Family == f {
			return tb
		}
	}
	return nil
}

// adopt reads what an earlier process left.
func (ts tables) adopt(k kernel.NFTables) error {
	for _, tb := range ts {
		if err := tb.Adopt(k); err != nil {
			return fmt.Errorf("read table %s %s: %w", tb.Family, program.TableName, err)
		}
	}
	return nil
}

// ownerOf finds the service port that has an element.
func (ts tables) ownerOf(f program.Family, set program.SetID, key []byte) (contents.PortID, bool) {
	return ts.in(f).Want.Ports.OwnerOf(f, set, key)
}

// room names the service ports that got less than they asked for, and for which there is room.
func (ts tables) room() (ports []contents.PortID) {
	for _, tb := range ts {
		for _, name := range tb.Want.TakeWaiting() {
			ports = append(ports, contents.PortID{Family: tb.Family, Name: name})
		}
	}
	return ports
}

// writeStamps adds the next stamp of each table that the transaction changes, or of all tables if the engine did not know
// what they have.
func (ts tables) writeStamps(d *delivery, instance uint32) {
	for _, tb := range ts {
		tb.Stamp(d.For(tb.Family), instance, d.full || d.Concerns(tb.Family), d.whole.has(tb.Family))
	}
}

// keepStamps notes that the kernel has the stamps of the latest transaction.
func (ts tables) keepStamps() {
	for _, tb := range ts {
		tb.Stamped()
	}
}

// readBack finds out whether a transaction was applied: the kernel has the next stamp, or it has not.
func (ts tables) readBack(k kernel.NFTables, d *delivery, r *Result, cause error) error {
	for _, tb := range ts {
		if !d.Concerns(tb.Family) {
			continue
		}
		applied, err := tb.Arrived(k)
		if err != nil {
			err = fmt.Errorf("find out whether the transaction was applied: %w; the next one compares everything with the kernel", err)
			return errors.Join(cause, err)
		}
		if !applied {
			r.Outcome = kernel.Rejected
			return cause
		}
		break // the kernel applies all or nothing
	}
	r.Outcome = kernel.Applied
	return nil
}

// setFlags gives tables the flags that they are to have: it wakes them, and makes the engine their owner. That is a
// transaction of its own, because the kernel refuses one that also adds or deletes base chains (EINVAL). It comes last,
// so a table has the right contents when it wakes.
func (ts tables) setFlags(s *sender, r *Result) error {
	if !slices.ContainsFunc(ts, func(tb *table.Table) bool { return tb.Owner.Reflag }) {
		return nil
	}
	d := &delivery{Transaction: &program.Transaction{}}
	for _, tb := range ts {
		if tb.Owner.Reflag {
			d.Do(program.Operation{Kind: program.AddTable, Family: tb.Family, Flags: tb.Owner.Next})
		}
		tb.Owner.Reflag = false
	}
	if err := s.deliver(d, r); err != nil {
		return fmt.Errorf("change the flags of tables, whose contents are right: %w", err)
	}
	return nil
}
