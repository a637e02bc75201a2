package program

import (
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/rule"
)

// Chain is one chain with its rules.
type Chain struct {
	Name  string
	Base  *Base // nil: reached by jump or goto only
	Rules []rule.Rule
}

// Base is the hook of a base chain.
type Base struct {
	Kind     string // "nat" or "filter"
	Hook     uint32
	HookName string
	Priority int32
	text     string // the priority, in the form that nft 1.0.6 both lists and reads
}

// Header is the first line of a base chain in nft syntax.
func (b *Base) Header() string {
	return "type " + b.Kind + " hook " + b.HookName + " priority " + b.text + "; policy accept;"
}

// Other software on the node relies on the hook priorities, which are those of kube-proxy's nftables mode: destinations
// are translated at dstnat, sources at srcnat, and packets are refused at filter. For the output hook, nft 1.0.6 prints
// the name dstnat but does not read it; so the text there is a number.
func natPrerouting() *Base {
	return &Base{Kind: "nat", Hook: unix.NF_INET_PRE_ROUTING, HookName: "prerouting", Priority: -100, text: "dstnat"}
}

func natOutput() *Base {
	return &Base{Kind: "nat", Hook: unix.NF_INET_LOCAL_OUT, HookName: "output", Priority: -100, text: "-100"}
}

func natPostrouting() *Base {
	return &Base{Kind: "nat", Hook: unix.NF_INET_POST_ROUTING, HookName: "postrouting", Priority: 100, text: "srcnat"}
}

func filterBase(hook uint32, name string, priority int32, text string) *Base {
	return &Base{Kind: "filter", Hook: hook, HookName: name, Priority: priority, text: text}
}

// ChainShape is what cannot be changed about a chain. The zero value is a chain without a hook.
type ChainShape struct {
	Kind           string
	Hook, Priority uint32
}

func (c Chain) Shape() ChainShape {
	if c.Base == nil {
		return ChainShape{}
	}
	return ChainShape{Kind: c.Base.Kind, Hook: c.Base.Hook, Priority: uint32(c.Base.Priority)}
}

// UnservedChain refuses packets that no endpoint can take.
const UnservedChain = "unserved"

// RefuseChain is where all refusals are.
const RefuseChain = "refuse"

// refuse answers packets: TCP with a reset, others with an ICMP error.
func refuse(f Family) []rule.Rule {
	return []rule.Rule{{rule.IsProtocol(unix.IPPROTO_TCP), rule.ResetTCP()}, {rule.Reject(f)}}
}
