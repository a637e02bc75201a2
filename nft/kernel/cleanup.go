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
func Cleanup(o Options) error { return With(o, (*Conn).cleanup) }

func (c *Conn) cleanup() error {
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
	_, err := SendAlone(c, t)
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w; %w", err, ErrOwned)
	}
	return err
}

// SendAlone sends a small transaction. Its errors say what was refused, and not what the next one does.
func SendAlone(k NFTables, t *program.Transaction) (Outcome, error) {
	var b Batch
	if err := b.Encode(t); err != nil {
		return Rejected, err
	}
	return b.sendAlone(k, t)
}

func (b *Batch) sendAlone(k NFTables, t *program.Transaction) (Outcome, error) {
	outcome, why, err := k.Send(b)
	switch {
	case why != nil:
		err = fmt.Errorf("nf_tables refused %s: %w", b.Blame(t, why), why.Err())
	case outcome != Applied && err == nil:
		err = fmt.Errorf("outcome %s", outcome)
	}
	return outcome, err
}

// ErrOwned means that the kernel lets only another process change a table.
var ErrOwned = errors.New("another process owns the table, probably another proxy; stop that process first")

// SupportsOwner reports whether the kernel has tables that have an owner and persist. It adds such a table and deletes
// it in one transaction.
func (c *Conn) SupportsOwner() (bool, error) {
	t := &program.Transaction{}
	t.Do(program.Operation{Kind: program.AddTable, Family: program.IPv4, Table: probeTable, Flags: program.OwnerFlag | program.PersistFlag})
	t.Do(program.Operation{Kind: program.DeleteTable, Family: program.IPv4, Table: probeTable})
	switch outcome, err := SendAlone(c, t); {
	case outcome == Rejected && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL)):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find out whether tables can have an owner: %w", err)
	}
	return true, nil
}

// SeesCircles reports whether the kernel can tell which packets leave by the device by which they came.
func (c *Conn) SeesCircles() (bool, error) {
	list, err := TryFeatures(c, []program.Family{program.IPv4}, []program.Feature{program.GoingBack()})
	return err == nil && list[0].Err == nil, err
}
