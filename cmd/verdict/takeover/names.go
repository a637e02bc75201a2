package takeover

import (
	"slices"
	"strings"
)

// table is the name of the tables of the nftables mode.
const table = "kube-proxy"

// xtables are the tables of iptables in which kube-proxy has chains.
var xtables = []string{"nat", "filter", "mangle"}

// chains are those with fixed names, of the modes iptables and ipvs.
var chains = []string{
	"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", markChain, "KUBE-FORWARD",
	"KUBE-PROXY-FIREWALL", "KUBE-PROXY-CANARY", "KUBE-NODE-PORT", "KUBE-LOAD-BALANCER", "KUBE-SOURCE-RANGES-FIREWALL",
	"KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER",
}

// markChain only marks packets. Network plugins lead their own packets there.
const markChain = "KUBE-MARK-MASQ"

// mustBeEmpty reports whether a chain of kube-proxy that has to stay must not keep its rules: they would translate or refuse
// connections as kube-proxy last wanted it.
func mustBeEmpty(chain string) bool { return isOurs(chain) && chain != markChain }

// prefixes begin the names of chains of one service port or endpoint.
var prefixes = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-FW-", "KUBE-EXT-", "KUBE-XLB-", "KUBE-SEP-"}

func isOurs(chain string) bool {
	return slices.Contains(chains, chain) ||
		slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(chain, p) })
}

// maxSetName is the longest name of an ipset. kube-proxy truncates longer ones.
const maxSetName = 31

// sets are the ipsets of the mode ipvs. Those of IPv6 have 6- after KUBE-.
func sets() (list []string) {
	for _, name := range setNames {
		for _, name := range []string{name, strings.Replace(name, "KUBE-", "KUBE-6-", 1)} {
			list = append(list, name[:min(len(name), maxSetName)])
		}
	}
	return list
}

var setNames = []string{
	"KUBE-LOOP-BACK", "KUBE-CLUSTER-IP", "KUBE-EXTERNAL-IP", "KUBE-EXTERNAL-IP-LOCAL", "KUBE-LOAD-BALANCER",
	"KUBE-LOAD-BALANCER-LOCAL", "KUBE-LOAD-BALANCER-FW", "KUBE-LOAD-BALANCER-SOURCE-CIDR", "KUBE-LOAD-BALANCER-SOURCE-IP",
	"KUBE-NODE-PORT-TCP", "KUBE-NODE-PORT-LOCAL-TCP", "KUBE-NODE-PORT-UDP", "KUBE-NODE-PORT-LOCAL-UDP",
	"KUBE-NODE-PORT-SCTP-HASH", "KUBE-NODE-PORT-LOCAL-SCTP-HASH", "KUBE-HEALTH-CHECK-NODE-PORT", "KUBE-IPVS-IPS",
}
