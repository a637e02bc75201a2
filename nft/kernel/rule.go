package kernel

import (
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// expression is one expression of a rule, as the kernel lists it.
type expression struct {
	name string
	data nlmsg.Attributes
}

// Verdicts of the kernel (linux/netfilter.h).
const (
	VerdictDrop   = 0
	VerdictAccept = 1
)

// RuleSummary is what matters about a rule.
type RuleSummary struct {
	Handle            uint64
	Action            string
	Jumps             []string
	Conditional, Ends bool
	Maps              bool // a verdict map decides
}

func DecodeOtherRule(a nlmsg.Attributes) RuleSummary {
	r := RuleSummary{Handle: a.Find(unix.NFTA_RULE_HANDLE).Uint64()}
	for list := a.Find(unix.NFTA_RULE_EXPRESSIONS).Nested(); list.Next(); {
		e := list.Nested()
		r.take(expression{e.Find(unix.NFTA_EXPR_NAME).Text(), e.Find(unix.NFTA_EXPR_DATA).Nested()})
	}
	return r
}

func (r *RuleSummary) take(e expression) {
	switch e.name {
	case "immediate":
		r.verdict(e)
	case "reject":
		r.Action, r.Ends = "reject", true
		if e.data.Find(rejectType).Uint32() == unix.NFT_REJECT_TCP_RST {
			r.Action = "reject with tcp reset"
		}
	case "nat", "masq", "redir", "tproxy":
		r.Action, r.Ends = natAction(e), true
	case "target": // of iptables-nft
		r.target(e)
	case "lookup":
		r.Conditional = true
		to := e.data.Find(unix.NFTA_LOOKUP_DREG)
		r.Maps = r.Maps || to.Value != nil && to.Uint32() == unix.NFT_REG_VERDICT
	case "cmp", "range", "match", "limit", "quota", "connlimit", "dynset", "fib", "socket", "osf":
		r.Conditional = true
	}
}

const rejectType = 1 // NFTA_REJECT_TYPE

func natAction(e expression) string {
	const natType, source = 1, 0 // NFTA_NAT_TYPE, NFT_NAT_SNAT
	if e.name != "nat" {
		return map[string]string{"masq": "masquerade", "redir": "redirect", "tproxy": "tproxy"}[e.name]
	}
	if e.data.Find(natType).Uint32() == source {
		return "snat"
	}
	return "dnat"
}

// verdict reads an immediate verdict.
func (r *RuleSummary) verdict(e expression) {
	v := e.data.Find(unix.NFTA_IMMEDIATE_DATA).Nested().Find(unix.NFTA_DATA_VERDICT).Nested()
	if chain := v.Find(unix.NFTA_VERDICT_CHAIN); chain.Value != nil {
		r.Jumps = append(r.Jumps, chain.Text())
	}
	code := v.Find(unix.NFTA_VERDICT_CODE)
	switch {
	case code.Value == nil:
	case code.Uint32() == VerdictAccept:
		r.Action, r.Ends = "accept", true
	case code.Uint32() == VerdictDrop:
		r.Action, r.Ends = "drop", true
	case int32(code.Uint32()) == unix.NFT_RETURN:
		r.Ends = true
	}
}

// target reads a target of iptables-nft: the name of an extension, or a standard verdict.
func (r *RuleSummary) target(e expression) {
	const name = 1 // NFTA_TARGET_NAME
	switch text := e.data.Find(name).Text(); text {
	case "REJECT":
		r.Action, r.Ends = "reject", true
	case "DNAT", "SNAT", "MASQUERADE", "REDIRECT":
		r.Action, r.Ends = text, true
	}
}
