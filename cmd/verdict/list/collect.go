package list

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
)

// table is the output. The fields of this type and of those below are the JSON form.
type table struct {
	NodePortAddresses []netip.Addr `json:"nodePortAddresses"`
	Frontends         []frontend   `json:"frontends"`

	notes []string // go to standard error
}

type frontend struct {
	Service   string     `json:"service"` // namespace/name:port; "": unknown
	Protocol  string     `json:"protocol"`
	Family    string     `json:"family"`
	Address   netip.Addr `json:"address,omitzero"` // not valid: a node port at all node port addresses
	Port      uint16     `json:"port"`
	NodePort  bool       `json:"nodePort,omitempty"`
	Engine    string     `json:"engine"`
	Scheduler string     `json:"scheduler,omitempty"`

	SchedulerFlags  string `json:"schedulerFlags,omitempty"`
	AffinitySeconds int64  `json:"affinitySeconds,omitempty"`
	Local           bool   `json:"local,omitempty"`
	// InsideOnly means that this frontend serves only pods and the node. The virtual server with the same address
	// serves all other clients.
	InsideOnly bool `json:"podsAndNodeOnly,omitempty"`
	// Refusal is what happens to packets for which there is no endpoint. OutsideOnly means that pods and the node still
	// have endpoints.
	Refusal      string `json:"refusal,omitempty"`
	OutsideOnly  bool   `json:"refusalOutsideOnly,omitempty"`
	SourceRanges bool   `json:"sourceRanges,omitempty"`
	Missing      bool   `json:"noVirtualServer,omitempty"`
	wide         bool   // the text has the counters

	// Connections and Refused count new connections since the frontend was written. The rates are per second; nil: not
	// counted.
	Connections uint64   `json:"connectionsTotal,omitempty"`
	Refused     uint64   `json:"refusedTotal,omitempty"`
	Rate        *float64 `json:"connectionsPerSecond,omitempty"`
	RefusedRate *float64 `json:"refusedPerSecond,omitempty"`

	Endpoints []endpoint `json:"endpoints"`
}

type endpoint struct {
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
	Weight  int        `json:"weight"`
	// InsideWeight is the weight for pods and the node, if they have a pool of their own.
	InsideWeight *int `json:"weightForPodsAndNode,omitempty"`
	// The connections; nil: not counted.
	Active   *int `json:"active,omitempty"`
	Inactive *int `json:"inactive,omitempty"`
	// Outlier says that the endpoint is suspected, fails, is ejected, or a backup, since when and why; "":
	// nothing of that is known.
	Outlier string `json:"outlier,omitempty"`
}

const (
	engineNFT  = "nft"
	engineIPVS = "ipvs"
)

// errNothing is the error when the kernel has nothing of Verdict.
var errNothing = errors.New("nothing to list: there is no table ip verdict, no table ip6 verdict and no virtual server of Verdict; " +
	"Verdict has not run in this network namespace, or its rules were removed")

func (o *options) families() []nft.Family {
	switch {
	case o.ipv4 && !o.ipv6:
		return []nft.Family{nft.IPv4}
	case o.ipv6 && !o.ipv4:
		return []nft.Family{nft.IPv6}
	}
	both := nft.Families()
	return both[:]
}

func (o *options) wants(a netip.Addr) bool { return slices.Contains(o.families(), nft.FamilyOf(a)) }

// collect reads the table from the kernel. If the daemon can tell which frontends are wanted, they are read by their keys.
func collect(o options) (*table, error) {
	if of, ok := o.keyed(); ok {
		t, err := o.named(socket.NewClient(), of)
		if err == nil && len(t.Frontends) > 0 {
			return t, nil
		}
	}
	return collectAll(o)
}

// collectAll reads all frontends and picks those that are wanted.
func collectAll(o options) (*table, error) {
	rules, err := nft.List(nft.Options{Families: o.families()}, o.match())
	noTables := errors.Is(err, nft.ErrNoTables)
	switch {
	case errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("list nft frontends: %w; run this command as root, because it needs CAP_NET_ADMIN", err)
	case err != nil && !noTables:
		return nil, fmt.Errorf("list nft frontends: %w", err)
	}
	servers, err := VirtualServers()
	if err != nil {
		return nil, fmt.Errorf("list virtual servers: %w", err)
	}
	if noTables && len(servers) == 0 {
		return nil, errNothing
	}
	servers = slices.DeleteFunc(servers, func(s ipvsctl.Status) bool { return !o.wants(s.Addr) })
	t := combine(rules, servers, len(o.services) > 0)
	if rules.Torn {
		t.notes = append(t.notes, "the tables changed during every attempt to read them, so lines may be from different moments")
	}
	if !o.noConnections {
		t.countConnections(o.families())
	}
	t.noteOutliers(socket.NewClient())
	t.sort()
	return t, nil
}

// VirtualServers lists the virtual servers of Verdict. It does not ask IPVS if the module is not loaded, because that
// would load it.
func VirtualServers() ([]ipvsctl.Status, error) {
	if _, err := os.Stat("/proc/thread-self/net/ip_vs"); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	servers, err := ipvsctl.List(ipvsctl.Options{})
	if errors.Is(err, ipvsctl.ErrNoIPVS) {
		return nil, nil
	}
	return servers, err
}

// combine puts both engines into one table. The nft tables contain the Service port of each virtual server. With a
// filter, they also decide which virtual servers are listed.
func combine(rules nft.Listing, servers []ipvsctl.Status, filtered bool) *table {
	t := &table{NodePortAddresses: rules.NodePortAddresses}
	routed := map[frontendKey]*nft.FrontendStatus{}
	for i := range rules.Frontends {
		fe := &rules.Frontends[i]
		if fe.Pool != nft.NoPool || fe.Refusal != nft.NoRefusal {
			t.Frontends = append(t.Frontends, fromRules(fe))
		}
		if fe.IPVS {
			routed[frontendKey{family: fe.Family, addr: fe.Addr, protocol: fe.Protocol, port: fe.Port}] = fe
		}
	}
	served := map[*nft.FrontendStatus]bool{}
	for i := range servers {
		s := &servers[i]
		key := frontendKey{family: nft.FamilyOf(s.Addr), addr: s.Addr, protocol: uint8(s.Protocol), port: s.Port}
		fe := routed[key]
		if fe == nil && slices.Contains(t.NodePortAddresses, s.Addr) {
			key.addr = netip.Addr{}
			fe = routed[key]
		}
		if served[fe] = true; fe != nil || !filtered {
			t.Frontends = append(t.Frontends, fromIPVS(s, fe))
		}
	}
	for _, fe := range routed {
		if !served[fe] {
			missing := describe(fe)
			missing.Engine, missing.Missing = engineIPVS, true
			t.Frontends = append(t.Frontends, missing)
		}
	}
	return t
}

type frontendKey struct {
	family   nft.Family
	addr     netip.Addr
	protocol uint8
	port     uint16
}

// describe fills in the fields that do not depend on the engine.
func describe(fe *nft.FrontendStatus) frontend {
	return frontend{
		Service: fe.Name, Protocol: protocolName(fe.Protocol), Family: familyName(fe.Family), Address: fe.Addr, Port: fe.Port,
		NodePort: !fe.Addr.IsValid(), SourceRanges: fe.Firewalled, Endpoints: []endpoint{},
	}
}

func fromRules(fe *nft.FrontendStatus) frontend {
	out := describe(fe)
	out.Engine = engineNFT
	out.Connections, out.Refused = fe.Connections, fe.Refused
	out.InsideOnly = fe.IPVS && fe.Pool == nft.BySource
	out.Local = fe.Pool == nft.LocalPool || fe.Pool == nft.BySource && !out.InsideOnly
	out.AffinitySeconds = int64(fe.Affinity / time.Second)
	switch fe.Refusal {
	case nft.Reject:
		out.Refusal = "rejected"
	case nft.Drop:
		out.Refusal = "dropped"
	}
	out.OutsideOnly = out.Refusal != "" && fe.Pool == nft.BySource
	if len(fe.Cluster)+len(fe.Local) > 0 {
		out.Scheduler = schedulerName(fe.Method)
	}
	switch {
	case fe.Pool == nft.ClusterPool || out.InsideOnly:
		out.add(fe.Cluster, func(e *endpoint, n int) { e.Weight = n })
	case fe.Pool == nft.LocalPool:
		out.add(fe.Local, func(e *endpoint, n int) { e.Weight = n })
	case fe.Pool == nft.BySource:
		out.add(fe.Local, func(e *endpoint, n int) { e.Weight = n })
		out.add(fe.Cluster, func(e *endpoint, n int) { e.InsideWeight = &n })
		for i := range out.Endpoints {
			if e := &out.Endpoints[i]; e.InsideWeight == nil {
				e.InsideWeight = new(int)
			}
		}
	}
	return out
}

// add puts the endpoints of a pool in, each once.
func (fe *frontend) add(pool []nft.EndpointStatus, weigh func(*endpoint, int)) {
	for _, e := range pool {
		weigh(fe.endpoint(e.Addr), e.Slots)
	}
}

// endpoint finds an endpoint, or adds it with weight 0.
func (fe *frontend) endpoint(at netip.AddrPort) *endpoint {
	for i := range fe.Endpoints {
		if e := &fe.Endpoints[i]; e.Address == at.Addr() && e.Port == at.Port() {
			return e
		}
	}
	fe.Endpoints = append(fe.Endpoints, endpoint{Address: at.Addr(), Port: at.Port()})
	return &fe.Endpoints[len(fe.Endpoints)-1]
}

// fromIPVS describes a virtual server. fe is the frontend in the nft tables, or nil if they do not have it.
func fromIPVS(s *ipvsctl.Status, fe *nft.FrontendStatus) frontend {
	var out frontend
	if fe != nil {
		out = describe(fe)
		out.Local = fe.Pool == nft.BySource // pods and the node use the nft pool instead
	}
	out.Protocol, out.Family = protocolName(uint8(s.Protocol)), familyName(nft.FamilyOf(s.Addr))
	out.Address, out.Port, out.Connections = s.Addr, s.Port, s.Connections
	out.Engine, out.Scheduler, out.SchedulerFlags = engineIPVS, s.Scheduler, s.FlagText()
	out.AffinitySeconds = int64(s.Persistence / time.Second)
	out.Endpoints = make([]endpoint, len(s.RealServers))
	for i, r := range s.RealServers {
		out.Endpoints[i] = endpoint{
			Address: r.Addr.Addr(), Port: r.Addr.Port(), Weight: int(r.Weight), Active: &r.Active, Inactive: &r.Inactive,
		}
	}
	return out
}

func protocolName(p uint8) string {
	switch ipvsctl.Protocol(p) {
	case ipvsctl.TCP:
		return "TCP"
	case ipvsctl.UDP:
		return "UDP"
	case ipvsctl.SCTP:
		return "SCTP"
	}
	return fmt.Sprint(p)
}

func familyName(f nft.Family) string {
	if f == nft.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// schedulerName returns the name that the annotation of a Service uses for a method.
func schedulerName(m nft.Method) string {
	switch m {
	case nft.InTurn:
		return "rr"
	case nft.SourceHash:
		return "mh"
	}
	return "random"
}

// sort orders frontends by family, address, port, protocol and engine. Node ports come after all addresses.
func (t *table) sort() {
	slices.SortFunc(t.Frontends, func(a, b frontend) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(atAll(a), atAll(b)), a.Address.Compare(b.Address),
			cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), -cmp.Compare(a.Engine, b.Engine))
	})
	for i := range t.Frontends {
		slices.SortFunc(t.Frontends[i].Endpoints, func(a, b endpoint) int {
			return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port))
		})
	}
}

func atAll(fe frontend) int {
	if fe.Address.IsValid() {
		return 0
	}
	return 1
}
