package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/program"
)

// Cleanup deletes both tables and everything in them. It is no error if they do not exist.
//
// The rules go first, in a transaction of their own. When a table is deleted, the kernel takes its chains off their hooks
// one after the other, with their rules in force to the last. The maps have no elements by then, but the sets have: a new
// connection to a cluster IP would not be translated, and would then be refused. When rules are deleted, all chains lose
// theirs at the same time.
func Cleanup(o Options) (err error) {
	c, err := Dial(o.NetNS)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	rules, tables := &program.Transaction{}, &program.Transaction{}
	for _, f := range program.Families() {
		was, err := c.SurveyTable(f)
		if err != nil {
			return fmt.Errorf("read table %s %s: %w", f, program.TableName, err)
		}
		if was.Table {
			rules.Do(program.Operation{Kind: program.FlushRules, Family: f})
			tables.Do(program.Operation{Kind: program.DeleteTable, Family: f})
		}
	}
	for _, t := range []*program.Transaction{rules, tables} {
		if err := c.Commit(t); err != nil {
			return fmt.Errorf("delete tables %s: %w", program.TableName, err)
		}
	}
	return nil
}

// Commit sends a transaction that no engine keeps track of.
func (c *Conn) Commit(t *program.Transaction) error {
	if t.Empty() {
		return nil
	}
	var b Batch
	if err := b.Encode(t); err != nil {
		return err
	}
	_, _, err := c.Send(&b)
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w; %w", err, ErrOwned)
	}
	return err
}

// ErrOwned means that the kernel lets only another process change a table.
var ErrOwned = errors.New("another process owns the table, probably another proxy; stop that process first")

// SupportsOwner reports whether the kernel has tables that have an owner and persist. It adds such a table and deletes
// it in one transaction.
func (c *Conn) SupportsOwner() (bool, error) {
	t := &program.Transaction{}
	t.Do(program.Operation{Kind: program.AddTable, Family: program.IPv4, Table: probeTable, Flags: program.OwnerFlag | program.PersistFlag})
	t.Do(program.Operation{Kind: program.DeleteTable, Family: program.IPv4, Table: probeTable})
	var b Batch
	if err := b.Encode(t); err != nil {
		return false, err
	}
	_, why, err := c.Send(&b)
	if why != nil && (errors.Is(why.Err(), unix.EOPNOTSUPP) || errors.Is(why.Err(), unix.EINVAL)) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find out whether tables can have an owner: %w", err)
	}
	return true, nil
}
