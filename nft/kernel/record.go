package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// RecordTableName is the name of the table "ip verdict-record". It has no chains. Its comment is a record for callers: the
// kernel keeps it exactly as long as it keeps sysctls of the network namespace, and every process that may write
// sysctls can write it.
const RecordTableName = "verdict-record"

// WriteRecord replaces the record. It may have 250 bytes.
func WriteRecord(o Options, text string) error {
	return changeTable(o, RecordTableName, func(t onTable) { t.replace(text) })
}

// ReadRecord returns the record, or an empty text if there is none.
func ReadRecord(o Options) (text string, err error) {
	err = withConn(o, func(c *Conn) (err error) {
		text, _, err = c.readComment(RecordTableName)
		return err
	})
	return text, err
}

// DeleteRecord deletes the record. It is no error if there is none.
func DeleteRecord(o Options) error { return changeTable(o, RecordTableName, onTable.drop) }

// readComment returns the comment of a table of IPv4, and whether the table exists.
func (c *Conn) readComment(table string) (comment string, exists bool, err error) {
	name := func(w *nlmsg.Writer) { w.Text(unix.NFTA_TABLE_NAME, table) }
	err = c.Ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK, program.IPv4, name, func(a nlmsg.Attributes) {
		exists, comment = true, readComment(a.Find(tableUserData).Value)
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return "", false, fmt.Errorf("read table ip %s: %w", table, err)
	}
	return comment, exists, nil
}

// onTable adds operations on a table of IPv4 other than that of the program.
type onTable struct {
	*program.Transaction
	name string
}

func (t onTable) do(o program.Operation) {
	o.Family, o.Table = program.IPv4, t.name
	t.Do(o)
}

// replace makes the table again. Adding and deleting it first makes one transaction fit both cases: that it exists, and that
// it does not.
func (t onTable) replace(comment string) {
	t.do(program.Operation{Kind: program.AddTable, Name: comment})
	t.do(program.Operation{Kind: program.DeleteTable})
	t.do(program.Operation{Kind: program.AddTable, Name: comment})
}

// drop deletes the table. It is no error if there is none.
func (t onTable) drop() {
	t.do(program.Operation{Kind: program.AddTable})
	t.do(program.Operation{Kind: program.DeleteTable})
}

func changeTable(o Options, table string, change func(onTable)) error {
	t := &program.Transaction{}
	change(onTable{t, table})
	err := withConn(o, func(c *Conn) error {
		_, err := SendAlone(c, t)
		return err
	})
	if err != nil {
		return fmt.Errorf("write table ip %s: %w", table, err)
	}
	return nil
}

// probeTable is the name of the table in trial transactions.
const probeTable = "verdict-probe"

// LoopbackGuard is what the kernel has of the guard.
type LoopbackGuard struct {
	Exists  bool   // the table ip verdict-loopback
	Record  string // its comment
	Intact  bool   // it is awake, and has what Verdict writes
	Program bool   // the table ip verdict has the guard
}

// ReadLoopbackGuard reads what the kernel has of the guard.
func ReadLoopbackGuard(o Options) (g LoopbackGuard, err error) {
	err = withConn(o, func(c *Conn) (err error) {
		if g.Record, g.Exists, err = c.readComment(program.LoopbackTableName); err != nil {
			return err
		}
		if g.Intact, err = c.guardIsIntact(); err != nil {
			return fmt.Errorf("read table ip %s: %w", program.LoopbackTableName, err)
		}
		was, err := c.Survey(program.IPv4)
		if err != nil {
			return fmt.Errorf("read table ip %s: %w", program.TableName, err)
		}
		_, g.Program = was.Chains[program.LoopbackGuardChain]
		return nil
	})
	return g, err
}

// guardIsIntact reports whether the table ip verdict-loopback is as GuardLoopback writes it.
func (c *Conn) guardIsIntact() (bool, error) {
	was, want := Existing{Named: program.LoopbackTableName, Rules: map[string]rule.RulesShape{}}, program.LoopbackGuard()
	err := c.Ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK, program.IPv4, ofTable(unix.NFTA_TABLE_NAME, program.LoopbackTableName), was.addTable)
	if err == nil {
		err = c.readChains(program.IPv4, &was)
	}
	if err == nil {
		err = c.Dump(unix.NFT_MSG_GETRULE, program.IPv4, ofTable(unix.NFTA_RULE_TABLE, program.LoopbackTableName), was.addRule)
	}
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	is, ok := was.Chains[want.Name]
	return ok && is == want.Shape() && len(was.Chains) == 1 && len(was.Dropping) == 0 && !was.Asleep() &&
		was.Rules[want.Name] == rule.RulesOf(program.IPv4, want.Rules), err
}

// GuardLoopback writes the table ip verdict-loopback with a comment, in place of the one that is there.
func GuardLoopback(o Options, record string) error {
	return changeTable(o, program.LoopbackTableName, func(t onTable) {
		t.replace(record)
		chain := program.LoopbackGuard()
		t.do(program.Operation{Kind: program.AddChain, Name: chain.Name, Chain: &chain})
		for _, r := range chain.Rules {
			t.do(program.Operation{Kind: program.AddRule, Name: chain.Name, Rule: r})
		}
	})
}

// UnguardLoopback deletes the table ip verdict-loopback. It is no error if there is none.
func UnguardLoopback(o Options) error { return changeTable(o, program.LoopbackTableName, onTable.drop) }
