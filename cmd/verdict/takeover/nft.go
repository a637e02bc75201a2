package takeover

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

var families = map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6"}

// nftRules is what kube-proxy has in nf_tables.
type nftRules struct {
	tables []*nftables.Table // of the nftables mode
	jumps  []*nftables.Rule  // of iptables-nft, from built-in chains to chains
	chains []*nftables.Chain
	kept   []string          // chains of kube-proxy that chains of other software use
	full   []*nftables.Chain // those of kept whose rules must go
}

func findNFT() (*nftRules, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open nf_tables: %w", err)
	}
	found := &nftRules{}
	for family, name := range families {
		if err := found.find(c, family); errors.Is(err, syscall.EAFNOSUPPORT) {
			continue // a kernel without IPv6
		} else if err != nil {
			return nil, fmt.Errorf("list the chains of family %s: %w", name, err)
		}
	}
	return found, nil
}

func (n *nftRules) find(c *nftables.Conn, family nftables.TableFamily) error {
	tables, err := c.ListTablesOfFamily(family)
	if err != nil {
		return err
	}
	all, err := c.ListChainsOfTableFamily(family)
	if err != nil {
		return err
	}
	for _, t := range tables {
		switch {
		case t.Name == table:
			n.tables = append(n.tables, t)
		case slices.Contains(xtables, t.Name):
			if err := n.findChains(c, t, all); err != nil {
				return err
			}
		}
	}
	return nil
}

// findChains finds the chains in a table of iptables-nft, and the rules that jump to them.
func (n *nftRules) findChains(c *nftables.Conn, t *nftables.Table, all []*nftables.Chain) error {
	kept := map[string]bool{}
	for _, chain := range all {
		if chain.Table.Name != t.Name || IsKubeProxys(chain.Name) {
			continue
		}
		rules, err := c.GetRules(t, chain)
		if err != nil {
			return fmt.Errorf("rules of %s %s: %w", t.Name, chain.Name, err)
		}
		for _, rule := range rules {
			switch target := jumpsTo(rule); {
			case !IsKubeProxys(target):
			case chain.Hooknum != nil:
				n.jumps = append(n.jumps, rule)
			default:
				kept[target] = true
			}
		}
	}
	for _, chain := range all {
		switch {
		case chain.Table.Name != t.Name || !IsKubeProxys(chain.Name):
		case kept[chain.Name]:
			if err := n.keep(c, chain); err != nil {
				return err
			}
		default:
			n.chains = append(n.chains, chain)
		}
	}
	return nil
}

// keep notes a chain that has to stay.
func (n *nftRules) keep(c *nftables.Conn, chain *nftables.Chain) error {
	n.kept = append(n.kept, fmt.Sprintf("%s %s %s", families[chain.Table.Family], chain.Table.Name, chain.Name))
	rules, err := c.GetRules(chain.Table, chain)
	if err != nil {
		return fmt.Errorf("rules of %s %s: %w", chain.Table.Name, chain.Name, err)
	}
	if len(rules) > 0 && mustBeEmpty(chain.Name) {
		n.full = append(n.full, chain)
	}
	return nil
}

// jumpsTo returns the chain to which a rule leads; empty: none.
func jumpsTo(r *nftables.Rule) string {
	for _, e := range r.Exprs {
		if v, ok := e.(*expr.Verdict); ok {
			return v.Chain
		}
	}
	return ""
}

// batch is how many chains go in one transaction. Nobody waits for them, and so the kernel is never busy for long.
const batch = 1000

// remove takes the rules out of use in one transaction. Then it deletes the chains, which no packet reaches any more.
func (n *nftRules) remove() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nf_tables: %w", err)
	}
	for _, t := range n.tables {
		c.DelTable(t)
	}
	for _, r := range n.jumps {
		if err := c.DelRule(r); err != nil {
			return err
		}
	}
	for _, chain := range n.full {
		c.FlushChain(chain)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("delete the tables of kube-proxy and the rules that lead to its chains: %w", err)
	}
	for _, do := range []func(*nftables.Chain){c.FlushChain, c.DelChain} { // a chain with rules in it may lead to others
		for list := range slices.Chunk(n.chains, batch) {
			for _, chain := range list {
				do(chain)
			}
			if err := c.Flush(); err != nil {
				return fmt.Errorf("delete chains of kube-proxy, from %s %s on: %w", list[0].Table.Name, list[0].Name, err)
			}
		}
	}
	return nil
}
