package preflight

import (
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// FastPath reports whether the fast path works here, and which chains of others no longer see the packets of its connections.
func FastPath(s *config.Settings, families []program.Family) []Finding {
	if s.FastPath != config.FastPathServices {
		return nil
	}
	f := Finding{Check: "--fast-path", Status: Warning}
	var err error
	if f.Detail, err = kernel.SlowPath(kernel.Options{Families: families}); err != nil {
		f.Detail, f.Remedy = err.Error(), asRoot
		return []Finding{f}
	}
	if f.Detail != "" {
		f.Remedy = "boot another kernel or load the modules; until then, all connections stay on the rules"
		return []Finding{f}
	}
	var chains []string
	for _, family := range families {
		list, err := inspect.AllForeign(kernel.Options{}, family)
		if err != nil {
			return []Finding{{Check: f.Check, Status: Warning, Detail: "cannot read the chains of other tables: " + err.Error(), Remedy: asRoot}}
		}
		chains = append(chains, skipped(list)...)
	}
	list := []Finding{fastPathBeside(f, chains)}
	if kernel.BridgesStay() {
		list = append(list, Finding{Check: f.Check + " and bridges", Status: OK, Detail: kernel.WhyBridgesStay})
	}
	return list
}

// skipped names the chains that apply to each packet that the node forwards, and not only to first ones. Those of both families are
// in the list of each.
func skipped(list []inspect.ForeignChain) (chains []string) {
	for i := range list {
		if c := &list[i]; (c.Hook == "forward" || c.Hook == "postrouting") && c.Type != "nat" && (c.Rules || c.PolicyDrop) {
			chains = append(chains, c.Ref())
		}
	}
	return chains
}

func fastPathBeside(f Finding, chains []string) Finding {
	slices.Sort(chains)
	chains = slices.Compact(chains)
	if len(chains) == 0 {
		f.Status, f.Detail = OK, "no chain of others applies to forwarded packets"
		return f
	}
	f.Detail = "connections on the fast path skip the rules of " + strings.Join(chains, ", ") + ": only their first packets meet policies, marks and limits there"
	f.Remedy = "keep Services that need these rules away by the annotation verdict-proxy.github.io/fast-path: off; nft list chain " + chains[0]
	return f
}
