package snapshot

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Table is what a node serves. The fields of this type and of those below are the JSON form of "verdict list". An empty list is
// [] and not null there, so that scripts need no special case.
type Table struct {
	NodePortAddresses []netip.Addr `json:"nodePortAddresses"`
	Frontends         []Frontend   `json:"frontends"`

	// Open are the open connections of service ports; none if the daemon does not answer.
	Open  []socket.Passing `json:"open,omitempty"`
	Notes []string         `json:"notes,omitempty"` // what could not be read
	// FastPath says after how many packets connections skip the rules; Frontend.OnRules names those that do not.
	FastPath socket.FastPath `json:"fastPath,omitzero"`
}

// Frontend is where clients connect, in one engine.
type Frontend struct {
	Service   string     `json:"service"` // namespace/name:port; "": unknown
	Protocol  string     `json:"protocol"`
	Family    string     `json:"family"`
	Address   netip.Addr `json:"address,omitzero"` // not valid: a node port at all node port addresses
	Port      uint16     `json:"port"`
	LastPort  uint16     `json:"lastPort,omitempty"` // of a range that begins with the port
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
	// OnRules is why its connections stay on the rules, although --fast-path=services is set; "": they need not, or nobody knows why.
	OnRules string `json:"onRules,omitempty"`

	// Connections and Refused count new connections since the frontend was written. The rates are per second; nil: not
	// counted.
	Connections uint64   `json:"connectionsTotal"`
	Refused     uint64   `json:"refusedTotal"`
	Rate        *float64 `json:"connectionsPerSecond,omitempty"`
	RefusedRate *float64 `json:"refusedPerSecond,omitempty"`

	Endpoints []Endpoint `json:"endpoints"`
}

// Endpoint is an endpoint of a frontend.
type Endpoint struct {
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
	Weight  int        `json:"weight"`
	// InsideWeight is the weight for pods and the node, if they have a pool of their own.
	InsideWeight *int `json:"weightForPodsAndNode,omitempty"`
	// Options are further options of ipvsadm.
	Options string `json:"options,omitempty"`
	// The connections; nil: not counted.
	Active   *int `json:"active,omitempty"`
	Inactive *int `json:"inactive,omitempty"`
	// Outlier says that the endpoint is suspected, fails, is ejected, or a backup, since when and why; "":
	// nothing of that is known.
	Outlier string `json:"outlier,omitempty"`
	// Bad: it is suspected, failed, or fails its check.
	Bad bool `json:"bad,omitempty"`
}

// The engines.
const (
	NFT  = "nft"
	IPVS = "ipvs"
)

// Place is where a frontend answers. Without a valid address it is a node port.
type Place = socket.Frontend

func (fe *Frontend) place() Place {
	return Place{Address: fe.Address, Family: fe.Family, Protocol: protocolNumber(fe.Protocol), Port: fe.Port}
}

// At returns address and port, or the range of ports. A star stands for all node port addresses.
func (fe *Frontend) At() string {
	switch {
	case fe.LastPort != 0:
		return fmt.Sprintf("%s-%d", netip.AddrPortFrom(fe.Address, fe.Port), fe.LastPort)
	case fe.Address.IsValid():
		return netip.AddrPortFrom(fe.Address, fe.Port).String()
	case fe.Family == program.IPv6.Version():
		return fmt.Sprintf("[*]:%d", fe.Port)
	}
	return fmt.Sprintf("*:%d", fe.Port)
}

// At returns address and port.
func (e *Endpoint) At() string { return netip.AddrPortFrom(e.Address, e.Port).String() }

// HasProblem reports whether some clients find no endpoint, or none that is good.
func (fe *Frontend) HasProblem() bool { return fe.Refusal != "" || fe.Missing || fe.Good() == 0 }

// Good counts the endpoints that get new connections and are not known to be bad.
func (fe *Frontend) Good() (n int) {
	for i := range fe.Endpoints {
		if !fe.Endpoints[i].Bad {
			n += min(fe.Endpoints[i].Weight, 1)
		}
	}
	return n
}

// Leaving reports whether an endpoint gets no new connections, but still has some.
func (e *Endpoint) Leaving() bool {
	return e.Weight == 0 && (e.InsideWeight == nil || *e.InsideWeight == 0) && e.Active != nil && *e.Active+*e.Inactive > 0
}

// MarshalJSON adds the word of the text for an endpoint that leaves.
func (e Endpoint) MarshalJSON() ([]byte, error) {
	type fields Endpoint
	return json.Marshal(struct {
		fields
		Leaving bool `json:"leaving,omitempty"`
	}{fields(e), e.Leaving()})
}

// find returns an endpoint, or nil.
func (fe *Frontend) find(at netip.AddrPort) *Endpoint {
	for i := range fe.Endpoints {
		if e := &fe.Endpoints[i]; e.Address == at.Addr() && e.Port == at.Port() {
			return e
		}
	}
	return nil
}

// endpoint finds an endpoint, or adds it with weight 0.
func (fe *Frontend) endpoint(at netip.AddrPort) *Endpoint {
	if e := fe.find(at); e != nil {
		return e
	}
	fe.Endpoints = append(fe.Endpoints, Endpoint{Address: at.Addr(), Port: at.Port()})
	return &fe.Endpoints[len(fe.Endpoints)-1]
}

// addresses are the addresses at which a frontend answers.
func (t *Table) addresses(fe *Frontend) (out []netip.Addr) {
	if fe.Address.IsValid() {
		return []netip.Addr{fe.Address}
	}
	for _, a := range t.NodePortAddresses {
		if program.FamilyOf(a).Version() == fe.Family {
			out = append(out, a)
		}
	}
	return out
}

// sort orders frontends by family, address, port, protocol and engine. Node ports come after all addresses.
func (t *Table) sort() {
	atAll := func(fe *Frontend) int {
		if fe.Address.IsValid() {
			return 0
		}
		return 1
	}
	slices.SortFunc(t.Frontends, func(a, b Frontend) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(atAll(&a), atAll(&b)), a.Address.Compare(b.Address),
			cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), -cmp.Compare(a.Engine, b.Engine))
	})
	for i := range t.Frontends {
		slices.SortFunc(t.Frontends[i].Endpoints, func(a, b Endpoint) int {
			return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port))
		})
	}
}

func protocolName(p uint8) string { return strings.ToUpper(state.Protocol(p).String()) }

func protocolNumber(name string) uint8 { return uint8(serviceport.ParseProtocol(name)) }
