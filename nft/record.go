package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// RecordTableName is the name of the table "ip verdict-record". It has no chains. Its comment is a record for callers: the
// kernel keeps it exactly as long as it keeps sysctls of the network namespace, and every process that may write
// sysctls can write it.
const RecordTableName = "verdict-record"

// WriteRecord replaces the record. It may have 200 bytes.
func WriteRecord(o Options, text string) error {
	return changeTable(o, RecordTableName, func(t *Transaction) {
		t.onTable(RecordTableName, operation{kind: opAddTable, name: text})
		t.onTable(RecordTableName, operation{kind: opDeleteTable})
		t.onTable(RecordTableName, operation{kind: opAddTable, name: text})
	})
}

// ReadRecord returns the record, or an empty text if there is none.
func ReadRecord(o Options) (text string, err error) {
	err = withConn(o, func(c *conn) (err error) {
		text, _, err = c.readComment(RecordTableName)
		return err
	})
	return text, err
}

// DeleteRecord deletes the record. It is no error if there is none.
func DeleteRecord(o Options) error {
	return changeTable(o, RecordTableName, func(t *Transaction) {
		t.onTable(RecordTableName, operation{kind: opAddTable})
		t.onTable(RecordTableName, operation{kind: opDeleteTable})
	})
}

// readComment returns the comment of a table of IPv4, and whether the table exists.
func (c *conn) readComment(table string) (comment string, exists bool, err error) {
	name := func(w *wire) { w.Text(unix.NFTA_TABLE_NAME, table) }
	err = c.ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK, IPv4, name, func(a nlmsg.Attributes) {
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
func (t *Transaction) onTable(table string, o operation) {
	o.family, o.table = IPv4, table
	t.operation(o)
}

func changeTable(o Options, table string, change func(*Transaction)) error {
	t := &Transaction{}
	change(t)
	var b batch
	if err := b.encode(t); err != nil {
		return err
	}
	err := withConn(o, func(c *conn) error {
		_, why, err := c.send(&b)
		if why != nil {
			err = fmt.Errorf("nf_tables refused %s: %w", b.blame(t, why), why.Err())
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write table ip %s: %w", table, err)
	}
	return nil
}
