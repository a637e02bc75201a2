package nft

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// OtherChain is a base chain of a table that is not Verdict's.
type OtherChain struct {
	Family, Table, Name string
	Type, Hook          string
	Priority            int
	// PolicyDrop: what no rule accepts is dropped. Accepts: some rule may accept.
	PolicyDrop, Accepts bool
	// Stops are rules that drop or reject, in this chain or in chains that it reaches. Translates are rules that change
	// an address.
	Stops, Translates []OtherRule
	// Partial: the chain reaches more rules than Others reads.
	Partial bool
}

// OtherRule is a rule that does something to a packet. Conditions are not evaluated.
type OtherRule struct {
	Chain  string
	Handle uint64
	Action string // drop, reject, dnat, ...
	Always bool   // it has no condition, and no rule before it ends the way of a packet
}

// Certain reports whether the chain drops every packet.
func (c *OtherChain) Certain() bool {
	return c.PolicyDrop && !c.Accepts && !c.Partial || slices.ContainsFunc(c.Stops, func(r OtherRule) bool { return r.Always })
}

// Ref names the chain in nft syntax.
func (c *OtherChain) Ref() string { return c.Family + " " + c.Table + " " + c.Name }

// Verdicts of the kernel (linux/netfilter.h).
const (
	verdictDrop   = 0
	verdictAccept = 1
)

// Budgets for what one base chain may reach. Other tools have tables with a chain for each Service.
const (
	maxOtherChains = 64
	maxOtherRules  = 2000
)

// Others lists the base chains of other tables that packets of a family pass and that can stop or translate them, in
// the order of hooks and priorities. It reads the rules of these chains and of those that they reach, up to a budget.
func Others(o Options, f Family) (list []OtherChain, err error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if list, err = c.otherBases(f); err != nil {
		return nil, fmt.Errorf("list the chains of other tables: %w", err)
	}
	for i := range list {
		if err := c.readOther(&list[i]); err != nil {
			return nil, fmt.Errorf("read the rules of chain %s: %w", list[i].Ref(), err)
		}
	}
	list = slices.DeleteFunc(list, func(b OtherChain) bool {
		return !b.PolicyDrop && len(b.Stops)+len(b.Translates) == 0 && !b.Partial
	})
	slices.SortStableFunc(list, func(a, b OtherChain) int {
		return cmp.Or(cmp.Compare(hookOrder(a.Hook), hookOrder(b.Hook)), cmp.Compare(a.Priority, b.Priority))
	})
	return list, nil
}

// hookNames are the hooks by their number in the kernel.
func hookNames() []string { return []string{"prerouting", "input", "forward", "output", "postrouting"} }

func hookOrder(hook string) int {
	return slices.Index([]string{"prerouting", "output", "input", "forward", "postrouting"}, hook)
}

// otherBases lists base chains without their rules.
func (c *conn) otherBases(f Family) (list []OtherChain, err error) {
	read := func() error {
		list = nil
		return c.askFamilies(unix.NFT_MSG_GETCHAIN, f, func(family Family, a nlmsg.Attributes) {
			b := decodeBase(a)
			b.Family = familyText(family)
			if b.Hook != "" && b.Table != TableName && b.Table != LoopbackTableName {
				list = append(list, b)
			}
		})
	}
	return list, retryInterrupted("chains", read)
}

// askFamilies dumps objects of a family and of the tables that have both families.
func (c *conn) askFamilies(kind uint16, f Family, each func(Family, nlmsg.Attributes)) error {
	for _, family := range []Family{f, unix.NFPROTO_INET} {
		if err := c.dump(kind, family, nil, func(a nlmsg.Attributes) { each(family, a) }); err != nil {
			return err
		}
	}
	return nil
}

func familyText(f Family) string {
	if f == unix.NFPROTO_INET {
		return "inet"
	}
	return f.String()
}

func familyNumber(text string) Family {
	switch text {
	case "inet":
		return unix.NFPROTO_INET
	case "ip6":
		return IPv6
	}
	return IPv4
}

func decodeBase(a nlmsg.Attributes) (b OtherChain) {
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_CHAIN_TABLE:
			b.Table = a.Text()
		case unix.NFTA_CHAIN_NAME:
			b.Name = a.Text()
		case unix.NFTA_CHAIN_TYPE:
			b.Type = a.Text()
		case unix.NFTA_CHAIN_POLICY:
			b.PolicyDrop = a.Uint32() == verdictDrop
		case unix.NFTA_CHAIN_HOOK:
			var s chainShape
			s.readHook(a.Nested())
			b.Priority = int(int32(s.priority))
			if names := hookNames(); int(s.hook) < len(names) {
				b.Hook = names[s.hook]
			}
		}
	}
	return b
}

// readOther reads the rules of a base chain and of the chains that it reaches.
func (c *conn) readOther(b *OtherChain) error {
	queue, seen, rules := []string{b.Name}, map[string]bool{b.Name: true}, 0
	for read := 0; read < len(queue); read++ {
		if read >= maxOtherChains || rules >= maxOtherRules {
			b.Partial = true
			return nil
		}
		always := read == 0
		err := c.dump(unix.NFT_MSG_GETRULE, familyNumber(b.Family), func(w *wire) {
			w.Text(unix.NFTA_RULE_TABLE, b.Table)
			w.Text(unix.NFTA_RULE_CHAIN, queue[read])
		}, func(a nlmsg.Attributes) {
			if rules++; rules > maxOtherRules {
				return
			}
			r := decodeOtherRule(a)
			b.take(queue[read], r, &always)
			for _, next := range r.jumps {
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

// take notes what a rule does. Always is true until a rule comes that may end the way of a packet.
func (b *OtherChain) take(chain string, r otherRule, always *bool) {
	out := OtherRule{Chain: chain, Handle: r.handle, Action: r.action, Always: *always && !r.conditional}
	switch r.action {
	case "":
	case "accept":
		b.Accepts = true
	case "drop", "reject", "reject with tcp reset":
		b.Stops = append(b.Stops, out)
	default:
		b.Translates = append(b.Translates, out)
	}
	if r.ends || len(r.jumps) > 0 {
		*always = false
	}
	if r.maps { // a verdict map may accept
		b.Accepts = true
	}
}

// otherRule is what matters about a rule.
type otherRule struct {
	handle            uint64
	action            string
	jumps             []string
	conditional, ends bool
	maps              bool // a verdict map decides
}

func decodeOtherRule(a nlmsg.Attributes) (r otherRule) {
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_RULE_HANDLE:
			r.handle = number64(a.Value)
		case unix.NFTA_RULE_EXPRESSIONS:
			r.read(a.Nested())
		}
	}
	return r
}

func (r *otherRule) read(list nlmsg.Attributes) {
	for list.Next() {
		r.take(decodeExpression(list.Nested()))
	}
}

func (r *otherRule) take(e expression) {
	switch e.name {
	case "immediate":
		r.verdict(e)
	case "reject":
		r.action, r.ends = "reject", true
		if e.number(rejectType) == unix.NFT_REJECT_TCP_RST {
			r.action = "reject with tcp reset"
		}
	case "nat", "masq", "redir", "tproxy":
		r.action, r.ends = natAction(e), true
	case "target": // of iptables-nft
		r.target(e)
	case "lookup":
		r.conditional = true
		r.maps = r.maps || e.number(unix.NFTA_LOOKUP_DREG) == unix.NFT_REG_VERDICT && e.has(unix.NFTA_LOOKUP_DREG)
	case "cmp", "range", "match", "limit", "quota", "connlimit", "dynset", "fib", "socket", "osf":
		r.conditional = true
	}
}

const rejectType = 1 // NFTA_REJECT_TYPE

func (e expression) has(kind uint16) bool {
	for a := nlmsg.NewAttributes(e.data); a.Next(); {
		if a.Kind == kind {
			return true
		}
	}
	return false
}

func natAction(e expression) string {
	const natType, source = 1, 0 // NFTA_NAT_TYPE, NFT_NAT_SNAT
	if e.name != "nat" {
		return map[string]string{"masq": "masquerade", "redir": "redirect", "tproxy": "tproxy"}[e.name]
	}
	if e.number(natType) == source {
		return "snat"
	}
	return "dnat"
}

// verdict reads an immediate verdict.
func (r *otherRule) verdict(e expression) {
	for data := e.attributes(unix.NFTA_IMMEDIATE_DATA); data.Next(); {
		if data.Kind != unix.NFTA_DATA_VERDICT {
			continue
		}
		for v := data.Nested(); v.Next(); {
			switch v.Kind {
			case unix.NFTA_VERDICT_CODE:
				r.code(int32(v.Uint32()))
			case unix.NFTA_VERDICT_CHAIN:
				r.jumps = append(r.jumps, v.Text())
			}
		}
	}
}

func (r *otherRule) code(code int32) {
	switch code {
	case verdictAccept:
		r.action, r.ends = "accept", true
	case verdictDrop:
		r.action, r.ends = "drop", true
	case unix.NFT_RETURN:
		r.ends = true
	}
}

// target reads a target of iptables-nft: the name of an extension, or a standard verdict.
func (r *otherRule) target(e expression) {
	const name = 1 // NFTA_TARGET_NAME
	for a := nlmsg.NewAttributes(e.data); a.Next(); {
		if a.Kind != name {
			continue
		}
		switch text := a.Text(); text {
		case "REJECT":
			r.action, r.ends = "reject", true
		case "DNAT", "SNAT", "MASQUERADE", "REDIRECT":
			r.action, r.ends = text, true
		}
	}
}
