package nft

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// A table can have an owner, which is a netlink socket (NFT_TABLE_F_OWNER, kernel 5.12). No other socket can change the
// table, and "nft flush ruleset" leaves it out. When the socket closes, the kernel deletes the table. With
// NFT_TABLE_F_PERSIST (kernel 6.9), it keeps the table: from then on any process can change it, and a socket becomes its
// owner by adding it again with both flags.
const (
	tableOwner   = 0x2
	tablePersist = 0x4
)

// errOwned means that the kernel lets only another process change a table.
var errOwned = errors.New("another process owns the table, probably another proxy; stop that process first")

// flags are those that a new table gets.
func (tb *table) flags() uint32 {
	if tb.owner {
		return tableOwner | tablePersist
	}
	return 0
}

// canOwn reports whether the engine can become the owner of a table that exists. The kernel does not let anyone change
// whether a table persists.
func (tb *table) canOwn(found existing) bool { return tb.owner && found.flags&tablePersist != 0 }

// lostOwner reports whether a table that is to have an owner has none, because the socket that owned it was closed.
func (tb *table) lostOwner(found existing) bool {
	return tb.canOwn(found) && found.flags&tableOwner == 0
}

// mustBeMadeAgain reports whether a table has to be deleted and made again to get an owner. If clients have affinity,
// the table stays without an owner: the affinity entries of clients are worth more.
func (tb *table) mustBeMadeAgain(found existing) bool {
	return tb.owner && !tb.canOwn(found) && !tb.inheritsAffinity() && len(tb.tokenDraws) == 0
}

// noteFlags notes the flags that a table is to get after the next transaction. A new table gets its own at once.
func (tb *table) noteFlags(found existing) {
	tb.reflag, tb.nextFlags = false, found.flags&^unix.NFT_TABLE_F_DORMANT
	if !tb.keeps(found) {
		return
	}
	if tb.canOwn(found) {
		tb.nextFlags |= tableOwner
	}
	tb.reflag = tb.nextFlags != found.flags
}

// setFlags gives tables the flags that they are to have: it wakes them, and makes the engine their owner. That is a
// transaction of its own, because the kernel refuses one that also adds or deletes base chains (EINVAL). It comes last,
// so a table has the right contents when it wakes.
func (e *Engine) setFlags(r *Result) error {
	if !slices.ContainsFunc(e.active, func(tb *table) bool { return tb.reflag }) {
		return nil
	}
	t := &Transaction{}
	for _, tb := range e.active {
		if tb.reflag {
			t.operation(operation{kind: opAddTable, family: tb.family, flags: tb.nextFlags})
		}
		tb.reflag = false
	}
	tx, whole := e.tx, e.whole
	defer func() { e.tx, e.whole = tx, whole }()
	e.tx, e.whole = t, families{}
	err := e.batch.encode(t)
	if r.Outcome = Rejected; err == nil {
		err = e.send(r)
	}
	if err != nil {
		return fmt.Errorf("change the flags of tables, whose contents are right: %w", err)
	}
	return nil
}

// CanOwn reports whether Options asked for ownership, and the kernel has tables with an owner.
func (e *Engine) CanOwn() bool { return e.active[0].owner }

// Owned reports whether the kernel lets only this engine change the tables.
func (e *Engine) Owned() (bool, error) {
	for _, tb := range e.active {
		found, err := e.conn.surveyTable(tb.family)
		if err != nil {
			return false, fmt.Errorf("read table %s %s: %w", tb.family, TableName, err)
		}
		if !tb.owner || found.flags&tableOwner == 0 {
			return false, nil
		}
	}
	return true, nil
}

// supportsOwner reports whether the kernel has tables that have an owner and persist. It adds such a table and deletes
// it in one transaction.
func (c *conn) supportsOwner() (bool, error) {
	t := &Transaction{}
	t.operation(operation{kind: opAddTable, family: IPv4, table: probeTable, flags: tableOwner | tablePersist})
	t.operation(operation{kind: opDeleteTable, family: IPv4, table: probeTable})
	var b batch
	if err := b.encode(t); err != nil {
		return false, err
	}
	_, why, err := c.send(&b)
	if why != nil && (errors.Is(why.Err(), unix.EOPNOTSUPP) || errors.Is(why.Err(), unix.EINVAL)) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find out whether tables can have an owner: %w", err)
	}
	return true, nil
}

// flagsText is the flags of a table in nft syntax.
func flagsText(flags uint32) string {
	switch flags {
	case 0:
		return ""
	case tableOwner | tablePersist:
		return "flags owner, persist; "
	case tablePersist:
		return "flags persist; "
	}
	return fmt.Sprintf("flags %#x; ", flags)
}
