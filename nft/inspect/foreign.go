package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// ForeignChain is a base chain of a table that is not Verdict's.
type ForeignChain struct {
	Family, Table, Name string
	Type, Hook          string
	Priority            int
	// PolicyDrop: what no rule accepts is dropped. Accepts: some rule may accept.
	PolicyDrop, Accepts bool
	// Stops are rules that drop or reject, in this chain or in chains that it reaches. Translates are rules that change
	// an address.
	Stops, Translates []ForeignRule
	// Rules: it has a rule, whatever that does.
	Rules bool
	// Partial: the chain reaches more rules than Others reads.
	Partial bool
}

// ForeignRule is a rule that does something to a packet. Conditions are not evaluated.
type ForeignRule struct {
	Chain  string
	Handle uint64
	Action string // drop, reject, dnat, ...
	Always bool   // it has no condition, and no rule before it ends the way of a packet
}

// Certain reports whether the chain drops every packet.
func (c *ForeignChain) Certain() bool {
	return c.PolicyDrop && !c.Accepts && !c.Partial || slices.ContainsFunc(c.Stops, func(r ForeignRule) bool { return r.Always })
}

// Ref names the chain in nft syntax.
func (c *ForeignChain) Ref() string { return c.Family + " " + c.Table + " " + c.Name }

// Budgets for what one base chain may reach. Other tools have tables with a chain for each Service.
const (
	maxOtherChains = 64
	maxOtherRules  = 2000
)

// Foreign lists the base chains of other tables that packets of a family pass and that can stop or translate them, in
// the order of hooks and priorities. It reads the rules of these chains and of those that they reach, up to a budget.
func Foreign(o kernel.Options, f program.Family) ([]ForeignChain, error) {
	list, err := AllForeign(o, f)
	list = slices.DeleteFunc(list, func(b ForeignChain) bool {
		return !b.PolicyDrop && len(b.Stops)+len(b.Translates) == 0 && !b.Partial
	})
	return list, err
}

// AllForeign lists those that do something else, too.
func AllForeign(o kernel.Options, f program.Family) ([]ForeignChain, error) {
	list, err := dialed(o, func(c *kernel.Conn) ([]ForeignChain, error) {
		list, err := otherBases(c, f)
		if err != nil {
			return nil, fmt.Errorf("list the chains of other tables: %w", err)
		}
		for i := range list {
			if err := readOther(c, &list[i]); err != nil {
				return nil, fmt.Errorf("read the rules of chain %s: %w", list[i].Ref(), err)
			}
		}
		return list, nil
	})
	slices.SortStableFunc(list, func(a, b ForeignChain) int {
		return cmp.Or(cmp.Compare(hookOrder(a.Hook), hookOrder(b.Hook)), cmp.Compare(a.Priority, b.Priority))
	})
	return list, err
}

func hookOrder(hook string) int {
	return slices.Index([]string{"prerouting", "output", "input", "forward", "postrouting"}, hook)
}

// otherBases lists base chains without their rules.
func otherBases(c *kernel.Conn, f program.Family) (list []ForeignChain, err error) {
	read := func() error {
		list = nil
		return askFamilies(c, unix.NFT_MSG_GETCHAIN, f, func(family program.Family, a nlmsg.Attributes) {
			b := decodeBase(a)
			b.Family = familyText(family)
			if b.Hook != "" && b.Table != program.TableName && b.Table != program.LoopbackTableName {
				list = append(list, b)
			}
		})
	}
	return list, kernel.RetryInterrupted("chains", read)
}

// askFamilies dumps objects of a family and of the tables that have both families.
func askFamilies(c *kernel.Conn, kind uint16, f program.Family, each func(program.Family, nlmsg.Attributes)) error {
	for _, family := range []program.Family{f, unix.NFPROTO_INET} {
		if err := c.Dump(kind, family, nil, func(a nlmsg.Attributes) { each(family, a) }); err != nil {
			return err
		}
	}
	return nil
}

func familyText(f program.Family) string {
	if f == unix.NFPROTO_INET {
		return "inet"
	}
	return f.String()
}

func familyNumber(text string) program.Family {
	switch text {
	case "inet":
		return unix.NFPROTO_INET
	case "ip6":
		return program.IPv6
	}
	return program.IPv4
}

func decodeBase(a nlmsg.Attributes) ForeignChain {
	b := ForeignChain{
		Table: a.Find(unix.NFTA_CHAIN_TABLE).Text(), Name: a.Find(unix.NFTA_CHAIN_NAME).Text(), Type: a.Find(unix.NFTA_CHAIN_TYPE).Text(),
		PolicyDrop: kernel.PolicyDrops(a),
	}
	at := a.Find(unix.NFTA_CHAIN_HOOK)
	hook, priority := kernel.DecodeHook(at.Nested())
	if names := []string{"prerouting", "input", "forward", "output", "postrouting"}; at.Value != nil && int(hook) < len(names) {
		b.Hook, b.Priority = names[hook], int(int32(priority))
	}
	return b
}

// readOther reads the rules of a base chain and of the chains that it reaches.
func readOther(c *kernel.Conn, b *ForeignChain) error {
	queue, seen, rules := []string{b.Name}, map[string]bool{b.Name: true}, 0
	for read := 0; read < len(queue); read++ {
		if read >= maxOtherChains || rules >= maxOtherRules {
			b.Partial = true
			return nil
		}
		always := read == 0
		err := otherRules(c, b.Family, b.Table, queue[read], func(r kernel.RuleSummary) {
			b.Rules = true
			if rules++; rules > maxOtherRules {
				return
			}
			b.take(queue[read], r, &always)
			for _, next := range r.Jumps {
				if !seen[next] {
					seen[next], queue = true, append(queue, next)
				}
			}
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// otherRules reads the rules of a chain.
func otherRules(c *kernel.Conn, family, table, chain string, each func(kernel.RuleSummary)) error {
	return c.Dump(unix.NFT_MSG_GETRULE, familyNumber(family), func(w *nlmsg.Writer) {
		w.Text(unix.NFTA_RULE_TABLE, table)
		w.Text(unix.NFTA_RULE_CHAIN, chain)
	}, func(a nlmsg.Attributes) { each(kernel.DecodeOtherRule(a)) })
}

// take notes what a rule does. Always is true until a rule comes that may end the way of a packet.
func (b *ForeignChain) take(chain string, r kernel.RuleSummary, always *bool) {
	out := ForeignRule{Chain: chain, Handle: r.Handle, Action: r.Action, Always: *always && !r.Conditional}
	switch r.Action {
	case "":
	case "accept":
		b.Accepts = true
	case "drop", "reject", "reject with tcp reset":
		b.Stops = append(b.Stops, out)
	default:
		b.Translates = append(b.Translates, out)
	}
	if r.Ends || len(r.Jumps) > 0 {
		*always = false
	}
	if r.Maps { // a verdict map may accept
		b.Accepts = true
	}
}
