package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

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
