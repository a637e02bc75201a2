//go:build !nokernel

package bench

import (
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

// least makes the smallest possible change of nf_tables: google/nftables replaces the only element of a map, in a table
// without rules. On an idle machine this takes as long as the machine needs to wake up and to fill its caches again. No
// change through nf_tables can be faster.
type least struct {
	ns   *netns.Namespace
	conn *nftables.Conn
	set  *nftables.Set
	took measure.Sample
}

func newLeast(b testing.TB) *least { return leastIn(b, netns.New(b)) }

func leastIn(b testing.TB, ns *netns.Namespace) *least {
	b.Helper()
	l := &least{ns: ns}
	var err error
	l.conn, err = nftables.New(nftables.WithNetNSFd(l.ns.Fd()), nftables.AsLasting())
	lab.Must(b, err)
	b.Cleanup(func() { lab.Must(b, l.conn.CloseLasting()) })
	table := l.conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "least"})
	address := nftables.TypeIPAddr
	l.set = &nftables.Set{Table: table, Name: "one", IsMap: true, KeyType: address, DataType: address}
	lab.Must(b, l.conn.AddSet(l.set, l.element()), l.conn.Flush())
	return l
}

// element is the element of the map. It differs after each change.
func (l *least) element() []nftables.SetElement {
	return []nftables.SetElement{{Key: []byte{10, 0, 0, 1}, Val: []byte{10, 0, byte(len(l.took) >> 8), byte(len(l.took))}}}
}

// record makes the change once, after the same pause as other changes.
func (l *least) record(b testing.TB) {
	b.Helper()
	idle()
	l.change(b)
}

func (l *least) change(b testing.TB) {
	b.Helper()
	start, old := time.Now(), l.element()
	l.took = append(l.took, 0)
	lab.Must(b, l.conn.SetDeleteElements(l.set, old), l.conn.SetAddElements(l.set, l.element()), l.conn.Flush())
	l.took[len(l.took)-1] = time.Since(start)
}
