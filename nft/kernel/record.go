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
