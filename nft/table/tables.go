package table

import (
	"errors"
	"fmt"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Tables are those that the engine serves.
type Tables []*Table

// In is the table of a family; nil: the engine does not serve it.
func (ts Tables) In(f program.Family) *Table {
	for _, tb := range ts {
		if tb.Family == f {
			return tb
		}
	}
	return nil
}

// Adopt reads what an earlier process left.
func (ts Tables) Adopt(k kernel.NFTables) error {
	for _, tb := range ts {
		if err := tb.Adopt(k); err != nil {
			return fmt.Errorf("read table %s %s: %w", tb.Family, program.TableName, err)
		}
	}
	return nil
}

// OwnerOf finds the service port that has an element.
func (ts Tables) OwnerOf(f program.Family, set program.SetID, key []byte) (contents.PortID, bool) {
	return ts.In(f).Want.Ports.OwnerOf(f, set, key)
}

// Room names the service ports that got less than they asked for, and for which there is room.
func (ts Tables) Room() (ports []contents.PortID) {
	for _, tb := range ts {
		for _, name := range tb.Want.TakeWaiting() {
			ports = append(ports, contents.PortID{Family: tb.Family, Name: name})
		}
	}
	return ports
}

// WriteStamps adds the next stamp of each table that the transaction changes, or of all tables. whole are the families whose
// tables it writes as a whole.
func (ts Tables) WriteStamps(t *program.Transaction, instance uint32, all bool, whole [2]bool) {
	for _, tb := range ts {
		tb.stamps.coming = tb.stamps.now
		if all || t.Concerns(tb.Family) {
			tb.stamps.write(t.For(tb.Family), instance, tb.fingerprint(), whole[tb.Family.Index()])
		}
	}
}

// KeepStamps notes that the kernel has the stamps of the latest transaction.
func (ts Tables) KeepStamps() {
	for _, tb := range ts {
		tb.stamps.now = tb.stamps.coming
	}
}

// ReadBack finds out whether a transaction was applied: the kernel has the next stamp, or it has not.
func (ts Tables) ReadBack(k kernel.NFTables, t *program.Transaction, cause error) (kernel.Outcome, error) {
	for _, tb := range ts {
		if !t.Concerns(tb.Family) {
			continue
		}
		applied, err := tb.stamps.coming.in(tb.Family, k)
		switch {
		case err != nil:
			err = fmt.Errorf("find out whether the transaction was applied: %w; the next one compares everything with the kernel", err)
			return kernel.Unknown, errors.Join(cause, err)
		case !applied:
			return kernel.Rejected, cause
		}
		break // the kernel applies all or nothing
	}
	return kernel.Applied, nil
}

// Reflag adds the flags that tables are to have: they wake tables, and make the engine their owner.
func (ts Tables) Reflag(t *program.Transaction) {
	for _, tb := range ts {
		if tb.Owner.Reflag {
			t.Do(program.Operation{Kind: program.AddTable, Family: tb.Family, Flags: tb.Owner.Next})
		}
		tb.Owner.Reflag = false
	}
}
