package table

import (
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// ownership is who may change a table, and which flags it gets with that.
type ownership struct {
	Wanted bool   // the kernel is to let no other process change the table
	Reflag bool   // after the next transaction the table gets other flags
	Next   uint32 // these
}

// flags are those that a new table gets.
func (o *ownership) flags() uint32 {
	if o.Wanted {
		return program.OwnerFlag | program.PersistFlag
	}
	return 0
}

// possible reports whether the engine can become the owner of a table that exists. The kernel does not let anyone change
// whether a table persists.
func (o *ownership) possible(found kernel.Existing) bool {
	return o.Wanted && found.Flags&program.PersistFlag != 0
}

// lost reports whether a table that is to have an owner has none, because the socket that owned it was closed.
func (o *ownership) lost(found kernel.Existing) bool {
	return o.possible(found) && found.Flags&program.OwnerFlag == 0
}

// needsNewTable reports whether a table has to be deleted and made again to get an owner. If clients have affinity,
// the table stays without an owner: the affinity entries of clients are worth more.
func (o *ownership) needsNewTable(found kernel.Existing, affinity bool) bool {
	return o.Wanted && !o.possible(found) && !affinity
}

// note notes the flags that a table is to get after the next transaction. A table that is made again gets its own at
// once.
func (o *ownership) note(found kernel.Existing, keep bool) {
	o.Reflag, o.Next = false, found.Flags&^unix.NFT_TABLE_F_DORMANT
	if !keep {
		return
	}
	if o.possible(found) {
		o.Next |= program.OwnerFlag
	}
	o.Reflag = o.Next != found.Flags
}
