//go:build !nokernel

package nft

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/verdict-proxy/verdict/nft/program"
)

// disturb calls change again and again while it calls do: until there were enough commits to disturb it.
func disturb(t *testing.T, change func() error, do func()) {
	t.Helper()
	var stop atomic.Bool
	t.Cleanup(func() { stop.Store(true) }) // do may end the test
	var commits atomic.Int64
	failure := make(chan error, 1)
	go func() {
		var err error
		for ; !stop.Load() && err == nil; commits.Add(1) {
			err = change()
			time.Sleep(time.Millisecond)
		}
		failure <- err
	}()
	const enough = 20
	for end := time.Now().Add(3 * time.Minute); ; {
		if do(); commits.Load() >= enough || time.Now().After(end) {
			break
		}
	}
	stop.Store(true)
	if err := <-failure; err != nil {
		t.Fatalf("change tables: %v", err)
	}
	t.Logf("%d commits", commits.Load())
	if commits.Load() < enough {
		t.Fatal("too few commits: the test proves nothing")
	}
}

// otherTool is the library that other programs use, with a socket of its own.
func (n *namespace) otherTool(t *testing.T) *nftables.Conn {
	t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(n.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// otherTables are tables of another program. Half of their chains come and go.
type otherTables struct {
	conn   *nftables.Conn
	tables []*nftables.Table
	full   bool
}

func newOtherTables(c *nftables.Conn) *otherTables {
	o := &otherTables{conn: c}
	for _, f := range program.Families() {
		table := c.AddTable(&nftables.Table{Name: "other", Family: nftables.TableFamily(f)})
		o.tables = append(o.tables, table)
		o.add(table, 'a')
	}
	return o
}

func (o *otherTables) add(table *nftables.Table, kind rune) {
	for i := range 200 {
		chain := o.conn.AddChain(&nftables.Chain{Name: fmt.Sprintf("%c-chain-%d-with-a-long-name-that-fills-datagrams", kind, i), Table: table})
		o.conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}})
	}
}

// change adds or deletes half of the chains.
func (o *otherTables) change() error {
	for _, table := range o.tables {
		if !o.full {
			o.add(table, 'b')
			continue
		}
		for i := range 200 {
			o.conn.DelChain(&nftables.Chain{Name: fmt.Sprintf("b-chain-%d-with-a-long-name-that-fills-datagrams", i), Table: table})
		}
	}
	o.full = !o.full
	return o.conn.Flush()
}

// TestWhileOthersCommit reads our tables while another program changes its own, which the kernel lists before ours. The
// kernel finds its place in a dump by counting. So chains that come or go between two datagrams could hide chains of
// ours, or show them twice.
func TestWhileOthersCommit(t *testing.T) {
	n := newNamespace(t)
	others := newOtherTables(n.otherTool(t))
	if err := others.change(); err != nil {
		t.Fatal(err)
	}
	e, x := n.engine(t), kindsExample()
	x.install(t, e)
	disturb(t, others.change, func() {
		for i := range 500 {
			if whole, err := e.Intact(); err != nil || !whole {
				t.Fatalf("look %d: intact: %t, %v", i, whole, err)
			}
		}
		for i := range 20 {
			got := n.listing(t, nil)
			got.Torn = false // List cannot know that only other tables changed
			compareListing(t, fmt.Sprintf("list %d", i), got, wantListing(x.ports, x.globals))
		}
	})
}

// TestWhileTableComesAndGoes reads while another program deletes our tables and makes other ones of the same name.
func TestWhileTableComesAndGoes(t *testing.T) {
	n := newNamespace(t)
	e := n.engine(t)
	kindsExample().install(t, e)
	n.nft(t, "flush", "ruleset")
	c, there := n.otherTool(t), false
	change := func() error {
		for _, f := range program.Families() {
			table := &nftables.Table{Name: program.TableName, Family: nftables.TableFamily(f)}
			if there {
				c.DelTable(table)
			} else {
				c.AddChain(&nftables.Chain{Name: "mine", Table: c.AddTable(table)})
			}
		}
		there = !there
		return c.Flush()
	}
	disturb(t, change, func() {
		for i := range 5000 {
			if whole, err := e.Intact(); err != nil || whole {
				t.Fatalf("look %d: intact: %t, %v", i, whole, err)
			}
		}
	})
	checkRepaired(t, n, e)
}
