//go:build !nokernel

package nft

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestObjectsOfOthers: counters and quotas that somebody adds to a table are no interference. No rule of
// Verdict uses them, and a rule that does goes.
func TestObjectsOfOthers(t *testing.T) {
	x := newInterfered(t, 1)
	x.load(t, `add counter ip verdict mine
		add quota ip verdict mine { over 1 bytes; }`)
	if intact, err := x.engine.Intact(); !intact || err != nil {
		t.Errorf("intact: %t, %v", intact, err)
	}
	x.load(t, `insert rule ip verdict services quota name "mine" drop`)
	i := x.next(t)
	r, err := x.engine.Repair(i)
	if err != nil || r.Full || i.String() != "chains, rules or sets" {
		t.Errorf("heard of %s; everything was compared: %t, error %v", &i, r.Full, err)
	}
	if list := x.listing(t); strings.Contains(list, "quota name") || !strings.Contains(list, "quota mine {") {
		t.Errorf("the rule is still there, or the object is not:\n%s", list)
	}
	x.load(t, "delete counter ip verdict mine\ndelete quota ip verdict mine\nflush set ip verdict hairpin")
	if i := x.next(t); i.String() != "elements of ip verdict hairpin" {
		t.Errorf("heard of %s, want only the elements", &i)
	}
}

// TestRepairOfSeveralCommits: what only several commits can do is undone at once.
func TestRepairOfSeveralCommits(t *testing.T) {
	for name, scripts := range map[string][]string{
		"a table put to sleep, and its base chains changed": {
			"add table ip verdict { flags dormant; }",
			"flush chain ip verdict nat-output\ndelete chain ip verdict nat-output",
			"add chain ip verdict mine { type filter hook input priority 5; policy drop; }",
		},
		"the names of two chains exchanged": {
			"rename chain ip verdict random-2 mine", "rename chain ip verdict unserved random-2", "rename chain ip verdict mine unserved",
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newInterfered(t, 3)
			var all kernel.Interference
			for _, script := range scripts {
				x.load(t, script)
				all.Merge(x.next(t))
			}
			if r, err := x.engine.Repair(all); err != nil || r.Full {
				t.Errorf("everything was compared: %t, error %v", r.Full, err)
			}
			compareListings(t, "the tables are not as they were", x.listing(t), x.before)
			if intact, err := x.engine.Intact(); !intact || err != nil {
				t.Errorf("intact: %t, %v", intact, err)
			}
		})
	}
}

// changesWhileStopped are what somebody does to the tables while no process of Verdict runs.
var changesWhileStopped = []struct{ name, script string }{
	{"nothing", ""},
	{"policy", "add chain ip verdict filter-forward { policy drop; }"},
	{"base chain deleted", "flush chain ip verdict nat-output\ndelete chain ip verdict nat-output"},
	{"foreign base chain", "add chain ip verdict mine { type filter hook input priority 5; policy drop; }"},
	{"limit of a set", "add set ip verdict cluster-ips { type ipv4_addr; size 3; }"},
	{"size of the affinity map", `add map ip verdict affinity { typeof meta priority . numgen random mod 65536 : meta priority; size 1; flags dynamic,timeout; }`},
}

// TestChangedWhileStopped: a start finds what others did, also to tables that sleep, and its first Apply undoes it. The
// tables stay, with the affinity of clients. An engine that owns its tables becomes their owner again.
func TestChangedWhileStopped(t *testing.T) {
	for _, owner := range []bool{true, false} {
		for _, asleep := range []bool{true, false} {
			for _, change := range changesWhileStopped {
				t.Run(fmt.Sprintf("%s, owner %t, asleep %t", change.name, owner, asleep), func(t *testing.T) {
					n := newNamespace(t)
					n.serveSticky(t, owner)
					n.nft(t, "add", "element", "ip", program.TableName, program.Affinity.Name(), "{ 0:2 . 77 timeout 1h : 0:2 }")
					before := n.list(t)
					n.load(t, change.script)
					if asleep {
						n.putToSleep(t)
					}
					n.serveSticky(t, owner)
					compareListings(t, "the tables are not as they were", n.list(t), before)
				})
			}
		}
	}
}

// serveSticky is a process that starts, writes the tables, and ends.
func (n *namespace) serveSticky(t *testing.T, owner bool) {
	t.Helper()
	var e *Engine
	if owner {
		e = ownerEngine(t, n)
	} else {
		e = n.engine(t)
	}
	mustSet(t, e, stickyPort(program.IPv4, tcp, time.Hour))
	mustApply(t, e)
	if intact, err := e.Intact(); !intact || err != nil {
		t.Errorf("intact: %t, %v", intact, err)
	}
	checkOwned(t, e, owner)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// putToSleep does what nft cannot do to a table that persists: nft 1.0.6 does not know that flag.
func (n *namespace) putToSleep(t *testing.T) {
	t.Helper()
	c, err := kernel.Dial(n.Fd())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sleep := &program.Transaction{}
	for _, f := range program.Families() {
		found, err := c.SurveyTable(f)
		if err != nil {
			t.Fatal(err)
		}
		sleep.Do(program.Operation{Kind: program.AddTable, Family: f, Flags: found.Flags | unix.NFT_TABLE_F_DORMANT})
	}
	if err := c.Commit(sleep); err != nil {
		t.Fatal(err)
	}
}
