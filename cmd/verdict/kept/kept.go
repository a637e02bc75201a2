// Package kept describes what the kernel has as Services and slices, for manifests that cannot be read.
package kept

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/source/manifests"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// FromKernel returns a function that describes what the kernel has as Services and slices, for manifests that cannot be
// read. Planned, they become what is there, as far as the kernel shows it: it does not show health checks and endpoints that
// get no connections.
func FromKernel(nodeName string) func() (manifests.Kept, error) {
	return func() (manifests.Kept, error) {
		left, err := inspect.ReadLeft(kernel.Options{})
		if errors.Is(err, kernel.ErrNoTables) {
			return manifests.Kept{}, nil
		}
		if err != nil {
			return manifests.Kept{}, err
		}
		servers, err := snapshot.VirtualServers()
		if err != nil {
			return manifests.Kept{}, err
		}
		return keptObjects(&left, servers, nodeName), nil
	}
}

// keeper makes objects of frontends.
type keeper struct {
	left     *inspect.Left
	servers  []ipvsctl.Status
	nodeName string
	onNode   map[netip.Addr]bool // endpoints on this node
	services map[state.Name]*state.Service
	slices   map[sliceKey]*state.Slice
	seen     map[keptEndpoint]bool
}

// keptEndpoint is an endpoint of a port; frontends share it.
type keptEndpoint struct {
	sliceKey
	at netip.AddrPort
}

// sliceKey is what the endpoints of a slice have in common.
type sliceKey struct {
	service state.Name
	family  state.Family
	port    string // of the Service
	proto   state.Protocol
	number  uint16
	weight  uint16
}

func keptObjects(left *inspect.Left, servers []ipvsctl.Status, nodeName string) manifests.Kept {
	k := keeper{
		left: left, servers: servers, nodeName: nodeName, onNode: maps.Clone(left.OnNode),
		services: map[state.Name]*state.Service{}, slices: map[sliceKey]*state.Slice{}, seen: map[keptEndpoint]bool{},
	}
	for i := range left.Frontends {
		for _, e := range left.Frontends[i].Local {
			k.onNode[e.Addr.Addr()] = true
		}
	}
	for i := range left.Frontends {
		if fe := &left.Frontends[i]; !fe.Addr.IsLoopback() { // those are node ports, too
			k.add(fe)
		}
	}
	out := manifests.Kept{Short: func(service state.Name, p state.ServicePort) (state.Name, string) {
		return keptNames(program.Label(service.String() + ":" + cmp.Or(p.Name, strconv.Itoa(int(p.Port)))))
	}}
	for _, name := range slices.SortedFunc(maps.Keys(k.services), state.Name.Compare) {
		out.Services = append(out.Services, finished(k.services[name]))
	}
	for _, key := range slices.SortedFunc(maps.Keys(k.slices), sliceKey.compare) {
		sl := k.slices[key]
		sl.Name = state.Name{Namespace: key.service.Namespace, Name: fmt.Sprint("kept:", len(out.Slices))}
		out.Slices = append(out.Slices, sl)
	}
	return out
}

func (a sliceKey) compare(b sliceKey) int {
	return cmp.Or(a.service.Compare(b.service), cmp.Compare(a.family, b.family), cmp.Compare(a.port, b.port),
		cmp.Compare(a.proto, b.proto), cmp.Compare(a.number, b.number), cmp.Compare(a.weight, b.weight))
}

// add adds a frontend to its Service.
func (k *keeper) add(fe *inspect.FrontendStatus) {
	name, port := keptNames(fe.Name)
	svc := k.services[name]
	if svc == nil {
		// The oldest of all: a Service in a manifest that asks for the same frontend did not get it before.
		svc = &state.Service{Name: name, Created: time.Unix(0, math.MinInt64)}
		k.services[name] = svc
	}
	k.addAddress(svc, fe)
	svc.Only = append(svc.Only, state.Place{Addr: fe.Addr, Protocol: state.Protocol(fe.Protocol), Port: fe.Port})
	at := slices.IndexFunc(svc.Ports, func(p state.ServicePort) bool { return p.Name == port && p.Protocol == state.Protocol(fe.Protocol) })
	if at < 0 {
		at = len(svc.Ports)
		svc.Ports = append(svc.Ports, state.ServicePort{Name: port, Protocol: state.Protocol(fe.Protocol)})
	}
	if fe.Addr.IsValid() {
		svc.Ports[at].Port, svc.Ports[at].EndPort = fe.Port, fe.LastPort
	} else {
		svc.Ports[at].NodePort = fe.Port
	}
	k.addPools(svc, fe, port)
	if fe.IPVS {
		k.addServers(svc, fe, port)
	}
}

// keptNames takes the names of the Service and of the port from the name of a service port. A port whose name is a number
// has none in its object; see plan.portName.
func keptNames(name string) (service state.Name, port string) {
	at := max(strings.LastIndexByte(name, ':'), 0)
	service.Namespace, service.Name, _ = strings.Cut(name[:at], "/")
	port, _, _ = strings.Cut(strings.TrimPrefix(name[at:], ":"), "/")
	if _, err := strconv.ParseUint(port, 10, 16); err == nil {
		port = ""
	}
	return service, port
}

// addAddress adds the address of a frontend, and what it says about policies.
func (k *keeper) addAddress(svc *state.Service, fe *inspect.FrontendStatus) {
	add := func(list *[]netip.Addr) {
		if !slices.Contains(*list, fe.Addr) {
			*list = append(*list, fe.Addr)
		}
	}
	bySource := fe.Pool == program.BySource || fe.Refusal == program.Drop
	switch {
	case k.left.ClusterIPs[fe.Addr]:
		add(&svc.ClusterIPs)
		svc.InternalLocal = svc.InternalLocal || fe.Pool == program.LocalPool || fe.Refusal == program.Drop
	case fe.Firewalled:
		add(&svc.LoadBalancerIPs)
		svc.ExternalLocal = svc.ExternalLocal || bySource
		for _, r := range k.left.Sources[fe.Name] {
			if !slices.Contains(svc.SourceRanges, r) {
				svc.SourceRanges = append(svc.SourceRanges, r)
			}
		}
	case fe.Addr.IsValid():
		add(&svc.ExternalIPs)
		svc.ExternalLocal = svc.ExternalLocal || bySource
	default:
		svc.ExternalLocal = svc.ExternalLocal || bySource
	}
	svc.KeepsSources = svc.KeepsSources || !bySource && k.left.KeepSources[fe.Addr]
	svc.Affinity = max(svc.Affinity, fe.Affinity)
}

// addPools adds the endpoints of a frontend that nft serves.
func (k *keeper) addPools(svc *state.Service, fe *inspect.FrontendStatus, port string) {
	all := slices.Concat(fe.Cluster, fe.Local)
	// A port without room for its hash table is served at random. Then the others name the scheduler.
	if random, _ := dataplane.SchedulerOf(program.Random); len(all) > 0 && !fe.IPVS &&
		(svc.Balancing.Scheduler == "" || svc.Balancing.Scheduler == random) {
		svc.Balancing.Scheduler, svc.Balancing.Flags = dataplane.SchedulerOf(fe.Method)
	}
	weights := weightsOf(all, fe.Method)
	for i, e := range all {
		k.addEndpoint(svc, fe, port, e.Addr, weights[i])
	}
}

// weightsOf finds the weights of endpoints from their slots. A hash table gives endpoints of equal weight about as many.
func weightsOf(list []inspect.EndpointStatus, m program.Method) []uint16 {
	weights := make([]uint16, len(list))
	fewest := math.MaxInt
	for _, e := range list {
		fewest = min(fewest, max(e.Slots, 1))
	}
	for i, e := range list {
		if n := e.Slots; m.Hashes() {
			weights[i] = uint16(min((n+fewest/2)/fewest, math.MaxUint16))
		} else {
			weights[i] = uint16(min(n, math.MaxUint16))
		}
	}
	return weights
}

// addServers adds the endpoints of the virtual servers at a frontend.
func (k *keeper) addServers(svc *state.Service, fe *inspect.FrontendStatus, port string) {
	for i := range k.servers {
		s := &k.servers[i]
		atNodePort := !fe.Addr.IsValid() && slices.Contains(k.left.NodePortAddresses, s.Addr) && program.FamilyOf(s.Addr) == fe.Family
		if s.Port != fe.Port || uint8(s.Protocol) != fe.Protocol || s.Addr != fe.Addr && !atNodePort {
			continue
		}
		svc.Balancing = state.Balancing{Scheduler: s.Scheduler, Flags: s.FlagText()}
		svc.Affinity = max(svc.Affinity, s.Persistence)
		for _, r := range s.RealServers {
			if r.Weight > 0 {
				k.addEndpoint(svc, fe, port, r.Addr, r.Weight)
			}
		}
	}
}

func (k *keeper) addEndpoint(svc *state.Service, fe *inspect.FrontendStatus, port string, at netip.AddrPort, weight uint16) {
	key := sliceKey{svc.Name, state.IPv4, port, state.Protocol(fe.Protocol), at.Port(), 0}
	if fe.Family == program.IPv6 {
		key.family = state.IPv6
	}
	if k.seen[keptEndpoint{key, at}] {
		return
	}
	k.seen[keptEndpoint{key, at}] = true
	key.weight = weight
	sl := k.slices[key]
	if sl == nil {
		sl = &state.Slice{
			Service: svc.Name, Family: key.family, Weight: weight,
			Ports: []state.SlicePort{{Name: port, Protocol: key.proto, Port: key.number}},
		}
		k.slices[key] = sl
	}
	e := state.Endpoint{Addr: at.Addr(), Ready: true, Serving: true}
	if k.onNode[at.Addr()] {
		e.Node = k.nodeName
	}
	sl.Endpoints = append(sl.Endpoints, e)
}

// finished completes a Service whose frontends have all been added. If one family has a cluster IP, so has the other: one
// that is an address of this node is not in the set of cluster IPs.
func finished(svc *state.Service) *state.Service {
	for _, f := range []state.Family{state.IPv4, state.IPv6} {
		is := func(a netip.Addr) bool { return state.FamilyOf(a) == f }
		if at := slices.IndexFunc(svc.ExternalIPs, is); at >= 0 && len(svc.ClusterIPs) > 0 && !slices.ContainsFunc(svc.ClusterIPs, is) {
			svc.ClusterIPs = append(svc.ClusterIPs, svc.ExternalIPs[at])
			svc.ExternalIPs = slices.Delete(svc.ExternalIPs, at, at+1)
		}
	}
	if len(svc.SourceRanges) == 0 { // who wrote the address does not matter, and --external-ip-cidrs has decided already
		svc.LoadBalancerIPs, svc.ExternalIPs = append(svc.LoadBalancerIPs, svc.ExternalIPs...), nil
	}
	slices.SortFunc(svc.Only, state.Place.Compare)
	svc.Ports = slices.DeleteFunc(svc.Ports, func(p state.ServicePort) bool { return p.Port == 0 })
	return svc
}
