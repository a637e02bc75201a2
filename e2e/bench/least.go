package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/nftables"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// least makes the smallest possible change of nf_tables: google/nftables replaces the only element of a map, in a table
// without rules. On an idle machine this takes as long as the machine needs to wake up and to fill its caches again. No
// change through nf_tables can be faster.
type least struct {
	ns   *lab.Namespace
	conn *nftables.Conn
	set  *nftables.Set
	took measure.Sample
}

func newLeast() (l *least, err error) {
	l = &least{}
	if l.ns, err = lab.NewNamespace("least"); err != nil {
		return nil, err
	}
	if l.conn, err = nftables.New(nftables.WithNetNSFd(l.ns.Fd()), nftables.AsLasting()); err != nil {
		return nil, errors.Join(fmt.Errorf("open nf_tables: %w", err), l.ns.Close())
	}
	table := l.conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "least"})
	address := nftables.TypeIPAddr
	l.set = &nftables.Set{Table: table, Name: "one", IsMap: true, KeyType: address, DataType: address}
	if err := errors.Join(l.conn.AddSet(l.set, l.element()), l.conn.Flush()); err != nil {
		return nil, errors.Join(fmt.Errorf("create the table of the least change: %w", err), l.close())
	}
	return l, nil
}

// element is the element of the map. It differs after each change.
func (l *least) element() []nftables.SetElement {
	return []nftables.SetElement{{Key: []byte{10, 0, 0, 1}, Val: []byte{10, 0, byte(len(l.took) >> 8), byte(len(l.took))}}}
}

// record makes the change once, after the same pause as other changes.
func (l *least) record() error {
	time.Sleep(pause)
	start, old := time.Now(), l.element()
	l.took = append(l.took, 0)
	err := errors.Join(l.conn.SetDeleteElements(l.set, old), l.conn.SetAddElements(l.set, l.element()), l.conn.Flush())
	if err != nil {
		return fmt.Errorf("the least change: %w", err)
	}
	l.took[len(l.took)-1] = time.Since(start)
	return nil
}

func (l *least) close() error { return errors.Join(l.conn.CloseLasting(), l.ns.Close()) }
