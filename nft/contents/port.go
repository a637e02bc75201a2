// Package contents has the values that describe what both tables are to have for service ports: Port, Frontend,
// Endpoint, Globals. They do no I/O. Below it, each package owns a part of the tables, and writes the elements of that part:
//
//	hashing   hash tables, which pools with the same endpoints share
//	chains    chains and numbers of classes, chains of source ranges
//	elements  all of a table: service ports, what they share, and what belongs to none
package contents

import (
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// Port is a service port: one port of a Service, in one family.
type Port struct {
	Family   program.Family
	Name     string // namespace/name:port; it identifies the port within its family, and is the comment of its elements
	Protocol uint8
	// Formerly is the name that the port had, if it gets another one. It keeps its number, so a packet that is between two
	// maps finds its pool, and clients keep their endpoints.
	Formerly string

	Method   program.Method
	Affinity time.Duration // 0: none; whole seconds

	// Cluster and Local are the endpoints of the two pools, sorted by address and port, without repetition.
	Cluster []Endpoint
	Local   []Endpoint
	// Hairpin are the addresses of those endpoints on this node that only IPVS serves. Their connections to themselves
	// need masquerading.
	Hairpin []netip.Addr

	Frontends []Frontend
	// Answers is the frontend whose address an endpoint's packets get if they continue a TCP connection that another node
	// began; the zero AddrPort: they pass as they are.
	Answers netip.AddrPort
	Created int64          // of the Service, in Unix time; if several have an endpoint, it answers for the oldest
	Sources []netip.Prefix // the clients that may use firewalled frontends; of the port's family, in any order
}

// KeepsPorts reports whether connections keep their port.
func (p *Port) KeepsPorts() bool {
	return len(p.Cluster) > 0 && p.Cluster[0].Addr.Port() == 0 || len(p.Local) > 0 && p.Local[0].Addr.Port() == 0
}

// A service port has endpoints and frontends, which have one of these modes.
type (
	Endpoint = serviceport.Endpoint
	Frontend = serviceport.Frontend
)

// The modes of masquerading.
const (
	NoMasquerade     = serviceport.NoMasquerade
	MasqueradeAlways = serviceport.MasqueradeAlways
	MasqueradeNode   = serviceport.MasqueradeNode
)

// Globals are the settings that belong to no service port.
type Globals struct {
	MasqueradeAll bool // masquerade all connections to cluster IPs
	// IPVS is set if Verdict has virtual servers beside the tables. Otherwise, the program has no rules for them,
	// except the rules that guard addresses (see Engine.Guard).
	IPVS bool
	// Unanswered and Refusing make the kernel notice endpoints that do not answer, or that refuse connections.
	Unanswered, Refusing bool
	Fleet                bool   // the node continues connections that another node began
	FastPath             uint32 // connections of Services that may take the fast path do so after so many packets; 0: none do
	BridgesStay          bool   // connections by a bridge do not take the fast path
	DropInvalid          bool   // packets of pods that connection tracking calls invalid are dropped
	// PodInterface is the interface of the pods on this node: a name, or a prefix ending in "*". If it is empty,
	// PodCIDRs tell which clients are pods.
	PodInterface      string
	PodCIDRs          []netip.Prefix
	NodePodCIDRs      []netip.Prefix // those of them whose pods certainly are on this node
	ServiceCIDRs      []netip.Prefix // the program drops packets to their addresses that no Service has
	NodePortAddresses []netip.Addr
}

// PortID names a service port.
type PortID struct {
	Family program.Family
	Name   string
}

// NextNumber returns the next number that is free, behind the last one that was given, from first to below end: a number that
// is free is used again as late as possible. One of them must be free.
func NextNumber(last *uint32, first, end uint32, taken func(uint32) bool) uint32 {
	for {
		if *last++; *last < first || *last >= end {
			*last = first
		}
		if !taken(*last) {
			return *last
		}
	}
}

// Program is the program of one family under these globals.
func (g *Globals) Program(f program.Family) program.Program {
	p := program.Program{
		Family: f, MasqueradeAll: g.MasqueradeAll, PodInterface: g.PodInterface, IPVS: g.IPVS,
		Unanswered: g.Unanswered, Refusing: g.Refusing, Fleet: g.Fleet, DropInvalid: g.DropInvalid, FastPath: g.FastPath,
		BridgesStay: g.BridgesStay,
	}
	for _, c := range g.PodCIDRs {
		p.PodCIDRs = p.PodCIDRs || program.FamilyOf(c.Addr()) == f
	}
	for _, a := range g.NodePortAddresses {
		p.Loopback = p.Loopback || f == program.IPv4 && a.Is4() && a.IsLoopback()
	}
	return p
}
