package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// RecordTableName is the name of the table "ip verdict-record". It has no chains. Its comment is a record for callers: the
// kernel keeps it exactly as long as it keeps sysctls of the network namespace, and every process that may write
// sysctls can write it.
const RecordTableName = "verdict-record"

// WriteRecord replaces the record. It may have 200 bytes.
func WriteRecord(o Options, text string) error {
	return changeTable(o, RecordTableName, func(t *program.Transaction) {
		onTable(t, RecordTableName, program.Operation{Kind: program.AddTable, Name: text})
		onTable(t, RecordTableName, program.Operation{Kind: program.DeleteTable})
		onTable(t, RecordTableName, program.Operation{Kind: program.AddTable, Name: text})
	})
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
func DeleteRecord(o Options) error {
	return changeTable(o, RecordTableName, func(t *program.Transaction) {
		onTable(t, RecordTableName, program.Operation{Kind: program.AddTable})
		onTable(t, RecordTableName, program.Operation{Kind: program.DeleteTable})
	})
}

// readComment returns the comment of a table of IPv4, and whether the table exists.
func (c *Conn) readComment(table string) (comment string, exists bool, err error) {
	name := func(w *nlmsg.Writer) { w.Text(unix.NFTA_TABLE_NAME, table) }
	err = c.Ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK, program.IPv4, name, func(a nlmsg.Attributes) {
		exists = true
		for a.Next() {
			if a.Kind == tableUserData {
				comment = readComment(a.Value)
			}
		}
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return "", false, fmt.Errorf("read table ip %s: %w", table, err)
	}
	return comment, exists, nil
}

// onTable adds an operation on a table of IPv4 other than that of the program.
func onTable(t *program.Transaction, table string, o program.Operation) {
	o.Family, o.Table = program.IPv4, table
	t.Do(o)
}

func changeTable(o Options, table string, change func(*program.Transaction)) error {
	t := &program.Transaction{}
	change(t)
	var b Batch
	if err := b.Encode(t); err != nil {
		return err
	}
	err := withConn(o, func(c *Conn) error {
		_, why, err := c.Send(&b)
		if why != nil {
			err = fmt.Errorf("nf_tables refused %s: %w", b.Blame(t, why), why.Err())
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write table ip %s: %w", table, err)
	}
	return nil
}

// probeTable is the name of the table in trial transactions.
const probeTable = "verdict-probe"
