package kernel

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/program"
)

// Cleanup deletes both tables and everything in them. It is no error if they do not exist. It takes three transactions:
//
//  1. the rules of all hooks but postrouting. From here on, new connections are those of another proxy, or of nobody.
//  2. all rules, when no packet is left that an earlier rule has translated: postrouting masquerades these. Otherwise, the
//     endpoint would answer the client directly, and the client would not know whose answer that is.
//  3. the tables. When a table is deleted, the kernel takes its chains off their hooks one after the other, with their
//     rules in force to the last. The maps have no elements by then, but the sets have: a new connection to a cluster IP
//     would not be translated, and would then be refused. When rules are deleted, all chains lose theirs at the same time.
func Cleanup(o Options) error { return With(o, (*Conn).cleanup) }

func (c *Conn) cleanup() error {
	var first, rules, tables program.Transaction
	for _, f := range program.Families() {
		was, err := c.SurveyChains(f)
		if err != nil {
			return fmt.Errorf("read table %s %s: %w", f, program.TableName, err)
		}
		if !was.Table {
			continue
		}
		for name, chain := range was.Chains {
			if chain.Kind != "" && chain.Hook != unix.NF_INET_POST_ROUTING {
				first.Do(program.Operation{Kind: program.FlushRules, Family: f, Name: name})
			}
		}
		rules.Do(program.Operation{Kind: program.FlushRules, Family: f})
		tables.Do(program.Operation{Kind: program.DeleteTable, Family: f})
	}
	for i, t := range []*program.Transaction{&first, &rules, &tables} {
		if err := c.Commit(t); err != nil {
			return fmt.Errorf("delete tables %s: %w", program.TableName, err)
		}
		if i == 0 && !t.Empty() {
			untilPacketsLeft()
		}
	}
	return nil
}

// untilPacketsLeft returns when each packet that is between two hooks now has left the last of them. A packet does this
// within one section of RCU, for which membarrier(2) waits; a kernel without it (nohz_full, seccomp) gets 0.1 s.
func untilPacketsLeft() {
	const ofAll = 1 // MEMBARRIER_CMD_GLOBAL
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, ofAll, 0, 0); errno != 0 {
		time.Sleep(100 * time.Millisecond)
	}
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
