// Package environment derives from the settings, the Node object and the host's addresses what holds for all Services
// alike: for planning, for the engines, and for the register of claims.
package environment

import (
	"cmp"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/claims"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Options configure an Environment.
type Options struct {
	Settings *config.Settings
	Primary  func() ([]netip.Addr, error) // returns the host's own main addresses
	IPv6     bool                         // the kernel has it
	Servers  []netip.AddrPort             // API servers, as the configuration names them
	SlowPath func() string                // returns why the kernel cannot have the fast path; nil: it can
	// BridgesStay reports whether connections by a bridge do not take the fast path now; nil: they may.
	BridgesStay func() bool
	Retry       time.Duration // after how much time the loop calls Update again if Primary fails
	Log         *slog.Logger
}

// Environment is what follows from the settings, the Node object and the host's addresses for all Services alike.
type Environment struct {
	options Options
	wide    []netip.Prefix // ranges that warnOfRanges has logged
	shared  []netip.Prefix // ranges that ownRanges has logged
	last    *state.Node    // the latest Node object of the API

	Plan       plan.Environment
	Shared     dataplane.Environment
	APIServers claims.Servers
	// Leaving says why the node is about to go; "": it is not. Eligible: it may get traffic from outside.
	Leaving  string
	Eligible bool
	// HealthAddresses are where health check node ports listen; an unspecified one stands for all of its family.
	HealthAddresses []netip.Addr

	known    bool // Update was called
	askAgain bool // Primary failed the last time, or the settings are others
	refusing bool // a Service wants to know which endpoints refuse

	evidence map[state.Name]plan.Evidence     // of the Services that have some
	weight   map[string]map[plan.Evidence]int // how many of them have which, by namespace
	votes    map[plan.Evidence]int            // of namespaces
}

// New returns an Environment that is empty until Update.
func New(o Options) Environment {
	return Environment{options: o, evidence: map[state.Name]plan.Evidence{}, weight: map[string]map[plan.Evidence]int{}, votes: map[plan.Evidence]int{}}
}

// Reconfigure replaces the settings. The environment is due then.
func (n *Environment) Reconfigure(s *config.Settings) { n.options.Settings, n.askAgain = s, true }

// Known reports whether there was an Update.
func (n *Environment) Known() bool { return n.known }

// Due reports whether Update is to be called although the store has no change.
func (n *Environment) Due() bool {
	return n.askAgain || !n.known || n.bridgesStay() != n.Shared.BridgesStay
}

// bridgesStay asks if it matters.
func (n *Environment) bridgesStay() bool {
	return n.Shared.FastPath > 0 && n.options.BridgesStay != nil && n.options.BridgesStay()
}

// NoticeRefusals has the kernel notice which endpoints refuse, if anything looks for failed endpoints. It reports whether
// the kernel did not do so before. What one Service has asked for stays: to take the rule out again would write all tables
// anew, and a tenant could do that all the time.
func (n *Environment) NoticeRefusals() bool {
	if n.refusing || !n.Shared.Unanswered {
		return false
	}
	n.refusing, n.Shared.Refusing = true, true
	return true
}

// Weigh takes over what the endpoints of a Service show about the podCIDRs of the Node. It reports whether the kernel knows
// something else of them.
func (n *Environment) Weigh(name state.Name, is plan.Evidence) bool {
	was := n.evidence[name]
	if was == is {
		return false
	}
	of := n.weight[name.Namespace]
	if of == nil {
		of = map[plan.Evidence]int{}
		n.weight[name.Namespace] = of
	}
	n.votes[vote(of)]--
	of[was]--
	of[is]++
	n.votes[vote(of)]++
	if n.evidence[name] = is; is == (plan.Evidence{}) {
		delete(n.evidence, name)
	}
	if vote(of) == (plan.Evidence{}) {
		delete(n.weight, name.Namespace)
	}
	before := n.Shared.NodePodCIDRs
	n.Shared.NodePodCIDRs = n.nodePodCIDRs()
	return len(before) != len(n.Shared.NodePodCIDRs)
}

// vote is what the Services of a namespace show together.
func vote(of map[plan.Evidence]int) plan.Evidence {
	both := of[plan.Evidence{For: true, Against: true}]
	return plan.Evidence{For: both+of[plan.Evidence{For: true}] > 0, Against: both+of[plan.Evidence{Against: true}] > 0}
}

// nodePodCIDRs are the podCIDRs of the Node, if they tell which clients are pods on this node: more namespaces show that they do than
// that they do not. One does not decide for the others, because its tenant may write any address, and name any node.
func (n *Environment) nodePodCIDRs() []netip.Prefix {
	if len(n.Shared.PodCIDRs) == 0 ||
		n.votes[plan.Evidence{For: true}] <= n.votes[plan.Evidence{Against: true}]+n.votes[plan.Evidence{For: true, Against: true}] {
		return nil
	}
	return n.Plan.PodCIDRs
}

// Update derives the environment from what the store has.
func (n *Environment) Update(env state.Environment) {
	s := n.options.Settings
	node, host := n.object(env.Node), lasting(env.HostAddresses)
	named := slices.Concat(n.options.Servers, env.Connected)
	addresses := overridden(node.Addresses, s.BindAddress)
	own := n.ownRanges(slices.Concat(env.ServiceCIDRs, config.Prefixes(s.LoadBalancerCIDRs)), node, env.APIServers)
	n.Shared = dataplane.Environment{
		Globals: dataplane.Globals{
			MasqueradeAll:     s.MasqueradeAll,
			Unanswered:        s.OutlierDetection != config.OutlierOff,
			Refusing:          n.refusing,
			Fleet:             s.Fleet,
			DropInvalid:       s.DropInvalid,
			FastPath:          uint32(min(s.FastPathAfter, math.MaxUint32)),
			PodInterface:      podInterface(s),
			PodCIDRs:          podCIDRs(s, node),
			ServiceCIDRs:      own,
			NodePortAddresses: nodePortAddresses(s.NodePortAddresses, addresses, host),
		},
		Withdrawn:     env.Drain != state.NotDraining || env.Leaving != "",
		HostAddresses: host,
		NodeAddresses: sorted(addresses),
		APIServers:    sorted(addressesOf(named), addressesOf(env.APIServers)),
		ExternalCIDRs: config.Prefixes(s.IPVS.ExternalCIDR),
	}
	slow := n.slowPath(n.Plan.SlowPath)
	if n.Shared.FastPathDevices = s.FastPathDevices; slow != "" {
		n.Shared.FastPath, n.Shared.FastPathDevices = 0, nil
	}
	n.Shared.BridgesStay = n.bridgesStay()
	n.Plan = plan.Environment{
		NodeName:      s.NodeName,
		Zone:          node.Zone,
		NodeAddresses: addresses,
		IPv4:          true,
		IPv6:          n.options.IPv6,
		PodCIDRs:      node.PodCIDRs,
		ExternalIPs:   s.ExternalIPRanges(),
		ServiceCIDRs:  slices.DeleteFunc(slices.Clone(own), func(r netip.Prefix) bool { return !slices.Contains(env.ServiceCIDRs, r) }),
		Draining:      env.Drain == state.Refusing,
		SlowPath:      slow,
	}
	n.Shared.NodePodCIDRs = n.nodePodCIDRs()
	n.warnOfRanges()
	n.APIServers = apiServers(named, env.APIServers)
	n.leave(node, env.Leaving)
	n.Eligible, n.known = n.Leaving == "" && (n.last != nil || s.Manifests != ""), true
	n.HealthAddresses = healthAddresses(s.NodePortAddresses, n.Shared.NodePortAddresses, host)
}

// leave finds out whether the node is about to go.
func (n *Environment) leave(node *state.Node, otherwise string) {
	before, taints := n.Leaving, n.options.Settings.LeavingTaints
	if !n.known && slices.Contains(taints, config.TaintUnschedulable) {
		n.options.Log.Warn("--leaving-taints has the taint of cordoned nodes; when all nodes are cordoned at once, load balancers have no target left",
			"taint", config.TaintUnschedulable)
	}
	n.Leaving = cmp.Or(node.Leaving, otherwise)
	if i := slices.IndexFunc(node.Taints, func(key string) bool { return slices.Contains(taints, key) }); n.Leaving == "" && i >= 0 {
		n.Leaving = "the taint " + node.Taints[i]
	}
	switch {
	case before == "" && n.Leaving != "":
		n.options.Log.Info("this node is leaving; /healthz answers 503, so that load balancers send new connections elsewhere", "because", n.Leaving)
	case before != "" && n.Leaving == "":
		n.options.Log.Info("this node stays; /healthz does not answer 503 for its sake any more", "was", before)
	}
}

// healthAddresses are the addresses of node ports, or an unspecified address of each family of which all answer: as kube-proxy's,
// servers then answer also at addresses that are only routed to this host, to which load balancers send their checks.
func healthAddresses(words []string, nodePorts, host []netip.Addr) []netip.Addr {
	for _, whole := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		ofFamily := func(a netip.Addr) bool { return a.Is4() == whole.Is4() }
		if slices.ContainsFunc(words, func(word string) bool {
			return word == config.NodePortAll || word == netip.PrefixFrom(whole, 0).String()
		}) && slices.ContainsFunc(host, ofFamily) {
			nodePorts = append(filter(nodePorts, func(a netip.Addr) bool { return !ofFamily(a) }), whole)
		}
	}
	return sorted(nodePorts)
}

// apiServers lists where API servers are. Addresses that only the configuration names, or to which only this process
// connects, may be those of a load balancer for API servers, which the cluster may serve itself: load balancer IPs are not
// refused there.
func apiServers(named, servers []netip.AddrPort) claims.Servers {
	out := claims.Servers{}
	for _, at := range named {
		out[at] = false
	}
	for _, at := range servers {
		out[at] = true
	}
	return out
}

func addressesOf(list []netip.AddrPort) (out []netip.Addr) {
	for _, at := range list {
		out = append(out, at.Addr())
	}
	return out
}

// slowPath returns why no connection takes the fast path; "": some may. It logs what the operator does not expect once.
func (n *Environment) slowPath(before string) (why string) {
	if n.options.Settings.FastPath != config.FastPathServices {
		return "--fast-path is off"
	}
	if n.options.SlowPath != nil {
		why = n.options.SlowPath()
	}
	if why != "" && why != before {
		n.options.Log.Warn("--fast-path=services has no effect; all connections stay on the rules", "because", why)
	}
	return why
}

// warnOfRanges logs once that IPVS may make addresses of nodes local: those of other nodes are likely to be in a range
// that has one of this node, and Verdict does not know them.
func (n *Environment) warnOfRanges() {
	var wide []netip.Prefix
	for _, r := range n.Shared.ExternalCIDRs {
		if slices.ContainsFunc(n.Shared.NodeAddresses, r.Contains) {
			wide = append(wide, r)
		}
	}
	if len(wide) > 0 && !slices.Equal(wide, n.wide) {
		n.options.Log.Warn("--ipvs-external-cidrs has addresses of nodes; a Service with an address of another node cuts this node off from it",
			"ranges", wide, "remedy", "set the flag to the addresses of your load balancers")
	}
	n.wide = wide
}

// ownRanges returns the ranges that belong to Services alone. One that has an address of a pod, of this node or of an API server does
// not: to cut those off would be worse than to let packets to addresses of nobody pass.
func (n *Environment) ownRanges(ranges []netip.Prefix, node *state.Node, servers []netip.AddrPort) (own []netip.Prefix) {
	others := slices.Concat(config.Prefixes(n.options.Settings.ClusterCIDRs), node.PodCIDRs)
	for _, a := range slices.Concat(node.Addresses, addressesOf(servers)) {
		others = append(others, netip.PrefixFrom(a, a.BitLen()))
	}
	var shared []netip.Prefix
	for _, r := range ranges {
		if slices.ContainsFunc(others, r.Overlaps) {
			shared = append(shared, r)
		} else {
			own = append(own, r)
		}
	}
	if len(shared) > 0 && !slices.Equal(shared, n.shared) {
		n.options.Log.Warn("ranges of Services have addresses of pods, of this node or of API servers; packets to addresses there that no Service has are not dropped",
			"ranges", shared, "remedy", "give pods and nodes addresses outside of the ServiceCIDRs and of --load-balancer-cidrs")
	}
	n.shared = shared
	return own
}

// object returns the Node object, or one made from the host's main addresses when there never was one: a host without a
// cluster, or one that has not joined yet. When the addresses cannot be read, they stay what they were, and the loop
// asks again. A Node object that is deleted may come back at once, so all but its place behind load balancers stays.
func (n *Environment) object(node *state.Node) *state.Node {
	n.askAgain = false
	alone := n.options.Settings.Manifests != ""
	switch {
	case node != nil:
		n.last = node
		return node
	case n.last != nil && !alone:
		gone := *n.last
		gone.Leaving = "the Node is deleted"
		return &gone
	}
	addresses, err := n.options.Primary()
	if err != nil {
		addresses = n.Plan.NodeAddresses
		n.options.Log.Warn("cannot find the host's main addresses; node ports on primary addresses stay as they are; asking again",
			"after", n.options.Retry, "addresses", addresses, "error", err)
	}
	n.askAgain = err != nil
	return &state.Node{Name: n.options.Settings.NodeName, Addresses: addresses}
}

// overridden puts the address of --bind-address before the addresses of the node, so that it is the main one of its
// family. An unspecified address, such as 0.0.0.0, changes nothing.
func overridden(node []netip.Addr, bind string) []netip.Addr {
	addr, err := netip.ParseAddr(bind)
	if err != nil || addr.IsUnspecified() {
		return node
	}
	return append([]netip.Addr{addr}, filter(node, func(a netip.Addr) bool { return a != addr })...)
}

// lasting sorts the host's addresses. It leaves out link-local addresses of IPv6: they come and go with every pod, and
// mean nothing without an interface.
func lasting(host []netip.Addr) []netip.Addr {
	return sorted(filter(host, func(a netip.Addr) bool { return !a.Is6() || !a.IsLinkLocalUnicast() }))
}

func podCIDRs(s *config.Settings, node *state.Node) []netip.Prefix {
	switch s.DetectLocalMode {
	case config.DetectClusterCIDR:
		return config.Prefixes(s.ClusterCIDRs)
	case config.DetectNodeCIDR:
		return node.PodCIDRs
	}
	return nil
}

func podInterface(s *config.Settings) string {
	switch s.DetectLocalMode {
	case config.DetectBridgeInterface:
		return s.BridgeInterface
	case config.DetectInterfaceNamePrefix:
		return s.InterfaceNamePrefix + "*"
	}
	return ""
}

// nodePortAddresses lists the addresses at which node ports answer: the host's addresses that a word or a range names.
// "primary" means the first address of the node in each family, even if the host does not have that address yet.
func nodePortAddresses(words []string, node, host []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, word := range words {
		switch word {
		case config.NodePortPrimary:
			out = append(out, firstOfEachFamily(node)...)
		case config.NodePortLocalhost:
			out = append(out, filter(host, isLoopback)...)
		case config.NodePortAll:
			out = append(out, filter(host, func(a netip.Addr) bool { return !a.IsLoopback() })...)
		default:
			out = append(out, within(word, host)...)
		}
	}
	return sorted(out)
}

// within lists the host's addresses in a range. Ranges that cover everything leave loopback out, as in kube-proxy.
func within(cidr string, host []netip.Addr) []netip.Addr {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return nil // config.Validate refuses such a word
	}
	return filter(host, func(a netip.Addr) bool {
		return p.Contains(a) && (!a.IsLoopback() || p.Bits() > 0 && isLoopback(a))
	})
}

// isLoopback reports whether an address is an IPv4 loopback address. ::1 is left out: the kernel finds the route back
// to it only on the interface lo (rt6_need_strict), so that a connection to ::1 cannot be translated to a pod.
func isLoopback(a netip.Addr) bool { return a.IsLoopback() && a.Is4() }

func filter(list []netip.Addr, keep func(netip.Addr) bool) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return !keep(a) })
}

// sorted joins lists of addresses, each once.
func sorted(lists ...[]netip.Addr) []netip.Addr {
	out := slices.Concat(lists...)
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

func firstOfEachFamily(list []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, is4 := range []bool{true, false} {
		if i := slices.IndexFunc(list, func(a netip.Addr) bool { return a.Is4() == is4 }); i >= 0 {
			out = append(out, list[i])
		}
	}
	return out
}
