package takeover

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"

	"github.com/verdict-proxy/verdict/proxier/source/host"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Found is what kube-proxy left in the network namespace of the process.
type Found struct {
	nft    *nftRules
	legacy []*legacyRules
	sets   []string // the ipsets of the mode ipvs
	// Device reports whether the device of the mode ipvs exists.
	Device bool
}

// Find looks for what kube-proxy left. It changes nothing. With an error, it returns what it has found all the same.
func Find() (*Found, error) {
	f := &Found{nft: &nftRules{}}
	n, nftErr := findNFT()
	if nftErr == nil {
		f.nft = n
	}
	var legacyErr error
	f.legacy, legacyErr = findLegacy()
	all, setErr := IPSets()
	f.sets = slices.DeleteFunc(all, func(name string) bool { return !slices.Contains(sets(), name) })
	device, err := host.FindKubeProxyDevice()
	f.Device = device != nil
	return f, errors.Join(nftErr, legacyErr, setErr, err)
}

// Empty reports whether nothing was found.
func (f *Found) Empty() bool { return len(f.Names()) == 0 }

// Names describes what was found.
func (f *Found) Names() (names []string) {
	for _, t := range f.nft.tables {
		names = append(names, "table "+families[t.Family]+" "+t.Name)
	}
	if n := len(f.nft.chains) + len(f.nft.full); n > 0 {
		names = append(names, state.Plural(n, "chain")+" of iptables-nft")
	}
	for _, r := range f.legacy {
		names = append(names, state.Plural(r.chains, "chain")+" of "+r.programs.name)
	}
	if n := len(f.sets); n > 0 {
		names = append(names, state.Plural(n, "ipset"))
	}
	if f.Device {
		names = append(names, "device "+host.KubeProxyDevice)
	}
	return names
}

// Kept lists the chains of kube-proxy to which rules of other software lead. They have to stay. They stay empty, except for
// the one that only marks packets.
func (f *Found) Kept() []string {
	list := f.nft.kept
	for _, r := range f.legacy {
		list = append(list, r.kept...)
	}
	return list
}

// Remove removes what was found, except for the device of the mode ipvs: see RemoveDevice.
func (f *Found) Remove() error {
	errs := []error{f.nft.remove()}
	for _, r := range f.legacy {
		errs = append(errs, r.remove())
	}
	for _, name := range f.sets { // no rule uses them any more
		if err := netlink.IpsetDestroy(name); err != nil && !errors.Is(err, syscall.ENOENT) {
			errs = append(errs, fmt.Errorf("remove the ipset %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// IPSets returns the names of the ipsets of the network namespace.
func IPSets() ([]string, error) {
	if _, err := os.Stat("/sys/module/ip_set"); err != nil {
		return nil, nil //nolint:nilerr // the kernel has no ipsets, and the question would load them
	}
	list, err := netlink.IpsetListAll()
	if err != nil {
		return nil, fmt.Errorf("list the ipsets: %w", err)
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].SetName
	}
	return slices.Compact(names), nil // a large set comes in several messages
}

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
func mustBeEmpty(chain string) bool { return IsKubeProxys(chain) && chain != markChain }

// prefixes begin the names of chains of one service port or endpoint.
var prefixes = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-FW-", "KUBE-EXT-", "KUBE-XLB-", "KUBE-SEP-"}

// IsKubeProxys reports whether a chain of iptables is one of kube-proxy. Others have chains KUBE-*, too: the kubelet and network
// policies.
func IsKubeProxys(chain string) bool {
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
