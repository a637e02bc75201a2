package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Node ports on 127.0.0.1 need the sysctl route_localnet, with which the kernel also accepts packets for 127.0.0.0/8
// from outside (CVE-2020-8558). A rule drops those. It stands in two places:
//   - in table "ip verdict" while node ports answer on a loopback address. The engine repairs it with that table;
//   - in a table of its own, from before the sysctl is set until after it is restored. This one does not depend on what
//     the engine does, and an init container, which sets the sysctl and has no engine, can write it. Its comment records
//     the sysctl's former value, for as long as the kernel has the value that Verdict set.

// LoopbackTableName is the name of the table "ip verdict-loopback".
const LoopbackTableName = "verdict-loopback"

const loopbackGuardChain = "loopback-guard"

// loopbackGuard drops packets to 127.0.0.0/8 that do not come from this host.
func loopbackGuard() chainDef {
	return chainDef{
		name:  loopbackGuardChain,
		base:  filterBase(unix.NF_INET_PRE_ROUTING, "prerouting", -110, "dstnat - 10"),
		rules: []rule{{interfaceName("lo", true), toLoopback(), drop()}},
	}
}

// LoopbackGuard is what the kernel has of the guard.
type LoopbackGuard struct {
	Exists  bool   // the table ip verdict-loopback
	Record  string // its comment
	Intact  bool   // it is awake, and has what Verdict writes
	Program bool   // the table ip verdict has the guard
}

// ReadLoopbackGuard reads what the kernel has of the guard.
func ReadLoopbackGuard(o Options) (g LoopbackGuard, err error) {
	err = withConn(o, func(c *conn) (err error) {
		if g.Record, g.Exists, err = c.readComment(LoopbackTableName); err != nil {
			return err
		}
		if g.Intact, err = c.guardIsIntact(); err != nil {
			return fmt.Errorf("read table ip %s: %w", LoopbackTableName, err)
		}
		was, err := c.survey(IPv4)
		if err != nil {
			return fmt.Errorf("read table ip %s: %w", TableName, err)
		}
		_, g.Program = was.chains[loopbackGuardChain]
		return nil
	})
	return g, err
}

// guardIsIntact reports whether the table ip verdict-loopback is as GuardLoopback writes it.
func (c *conn) guardIsIntact() (bool, error) {
	was, want := existing{named: LoopbackTableName, rules: map[string]rulesShape{}}, loopbackGuard()
	err := c.ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK, IPv4, ofTable(unix.NFTA_TABLE_NAME, LoopbackTableName), was.addTable)
	if err == nil {
		err = c.readChains(IPv4, &was)
	}
	if err == nil {
		err = c.dump(unix.NFT_MSG_GETRULE, IPv4, ofTable(unix.NFTA_RULE_TABLE, LoopbackTableName), was.addRule)
	}
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	is, ok := was.chains[want.name]
	return ok && is == want.shape() && len(was.chains) == 1 && len(was.dropping) == 0 && !was.asleep() &&
		was.rules[want.name] == rulesOf(IPv4, want.rules), err
}

// GuardLoopback writes the table ip verdict-loopback with a comment, in place of the one that is there.
func GuardLoopback(o Options, record string) error {
	return changeLoopbackGuard(o, func(t *Transaction) {
		chain := loopbackGuard()
		// Adding and deleting the table first makes one transaction fit both cases: that it exists, and that it does
		// not.
		t.loopback(operation{kind: opAddTable, name: record})
		t.loopback(operation{kind: opDeleteTable})
		t.loopback(operation{kind: opAddTable, name: record})
		t.loopback(operation{kind: opAddChain, name: chain.name, chain: &chain})
		for _, r := range chain.rules {
			t.loopback(operation{kind: opAddRule, name: chain.name, rule: r})
		}
	})
}

// UnguardLoopback deletes the table ip verdict-loopback. It is no error if there is none.
func UnguardLoopback(o Options) error {
	return changeLoopbackGuard(o, func(t *Transaction) {
		t.loopback(operation{kind: opAddTable})
		t.loopback(operation{kind: opDeleteTable})
	})
}

func (t *Transaction) loopback(o operation) { t.onTable(LoopbackTableName, o) }

func changeLoopbackGuard(o Options, change func(*Transaction)) error {
	return changeTable(o, LoopbackTableName, change)
}
