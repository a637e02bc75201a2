package snapshot

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// ErrNothing means that the kernel has nothing of Verdict.
var ErrNothing = errors.New("nothing to list: there is no table ip verdict, no table ip6 verdict and no virtual server of Verdict; " +
	"Verdict has not run in this network namespace, or its rules were removed")

// errUnsure means that the daemon cannot say what the kernel has: a change waits, or there is too much to read it one by
// one.
var errUnsure = errors.New("the daemon cannot say which frontends the kernel has")

// maxNamed is how many frontends are read one by one. More are read faster all at once.
const maxNamed = 500

// daemon knows what the tables have no index for: the frontends of a Service, and the Services of an endpoint.
type daemon interface {
	Frontends(service string) (socket.Frontends, error)
	ServicesOf(endpoint string) (socket.Services, error)
}

// Read reads what is wanted. If the daemon can name the frontends, they are read by their keys.
func Read(q Query) (*Table, error) {
	t, err := readNamed(socket.NewClient(), &q)
	if err == nil && q.Endpoint != "" {
		t.keep(&q) // an endpoint that drains may be left
	}
	if err != nil || len(t.Frontends) == 0 {
		t, err = readAll(&q)
	}
	if err == nil {
		t.keep(&q)
	}
	return t, err
}

// named lists what the daemon can be asked about: Services or addresses. It is empty if something else is wanted.
func (q *Query) named(d daemon) (of []string, err error) {
	if q.Endpoint != "" {
		found, err := d.ServicesOf(q.Endpoint)
		if err == nil && found.Unsure {
			err = errUnsure
		}
		return found.List, err
	}
	for _, f := range q.Services {
		service, _, _ := strings.Cut(f, ":")
		of = append(of, service)
	}
	if len(of) > 0 {
		return of, nil
	}
	for _, r := range q.Addresses {
		if !r.IsSingleIP() {
			return nil, nil
		}
		of = append(of, r.Addr().String())
	}
	return of, nil
}

// readNamed reads the frontends that the daemon names, each by its key.
func readNamed(d daemon, q *Query) (*Table, error) {
	of, err := q.named(d)
	if err == nil && len(of) == 0 {
		err = errUnsure
	}
	if err != nil {
		return nil, err
	}
	var places []Place
	for _, what := range of {
		some, err := d.Frontends(what)
		if err != nil {
			return nil, err
		}
		if places = append(places, some.List...); some.Unsure || len(places) > maxNamed {
			return nil, errUnsure
		}
	}
	t, err := ReadPlaces(*q, places)
	if err == nil && slices.ContainsFunc(t.NodePortAddresses, q.inRanges) {
		return nil, errUnsure // all node ports are at this address
	}
	return t, err
}

// ReadPlaces reads frontends by their keys. What the kernel does not have is missing.
func ReadPlaces(q Query, places []Place) (*Table, error) {
	tables, err := OpenTables()
	if err != nil {
		return nil, err
	}
	defer tables.Close()
	t := &Table{NodePortAddresses: []netip.Addr{}, Frontends: []Frontend{}}
	for _, f := range q.families() {
		addrs, err := tables.NodePortAddresses(f)
		if err != nil && !errors.Is(err, kernel.ErrNoTables) {
			return nil, err
		}
		t.NodePortAddresses = append(t.NodePortAddresses, addrs...)
	}
	match, seen := q.Match(), map[Place]bool{}
	for _, p := range places {
		if seen[p] || !slices.Contains(q.families(), serviceport.ParseVersion(p.Family)) {
			continue
		}
		seen[p] = true
		status, found, err := tables.Frontend(serviceport.ParseVersion(p.Family), p.Address, p.Protocol, p.Port)
		switch {
		case errors.Is(err, kernel.ErrNoTables), err == nil && (!found || match != nil && !match(status.Name)):
			continue
		case err == nil:
			err = t.add(&status, VirtualServer)
		}
		if err != nil {
			return nil, fmt.Errorf("read a frontend of port %d: %w", p.Port, err)
		}
	}
	t.complete(&q)
	return t, nil
}

// readAll reads all frontends, and picks those of the wanted Services.
func readAll(q *Query) (*Table, error) {
	rules, err := inspect.List(kernel.Options{Families: q.families()}, q.Match())
	noTables := errors.Is(err, kernel.ErrNoTables)
	if err != nil && !noTables {
		return nil, fmt.Errorf("list nft frontends: %w", err)
	}
	servers, err := VirtualServers()
	if err != nil {
		return nil, fmt.Errorf("list virtual servers: %w", err)
	}
	if noTables && len(servers) == 0 {
		return nil, ErrNothing
	}
	servers = slices.DeleteFunc(servers, func(s ipvsctl.Status) bool { return !slices.Contains(q.families(), program.FamilyOf(s.Addr)) })
	t := join(&rules, servers, len(q.Services) > 0)
	if rules.Torn {
		t.Notes = append(t.Notes, "the tables changed during every attempt to read them, so lines may be from different moments")
	}
	t.complete(q)
	return t, nil
}

// complete adds what stands in neither table of frontends.
func (t *Table) complete(q *Query) {
	if !q.Uncounted && len(t.Frontends) > 0 {
		t.countConnections(q.families())
	}
	client := socket.NewClient()
	t.noteOutliers(client)
	fast, _ := client.FastPath("") // without the daemon, nobody knows
	t.noteFastPath(fast)
	if !q.Uncounted {
		t.Open, _ = client.Passing(socket.PassingPeriod) // the kernel alone suffices
	}
	t.sort()
}

// Places lists where a Service (namespace/name) or one of its ports (namespace/name:port) answers. Of a node port it lists
// the first address of each family. If the daemon cannot say where they are, it reads the frontends of all Services.
func Places(name string) (out []Place, err error) {
	t, err := Read(Query{Services: []string{name}, Uncounted: true})
	switch {
	case errors.Is(err, ErrNothing):
		return nil, nil
	case err != nil:
		return nil, err
	}
	for i := range t.Frontends {
		fe := &t.Frontends[i]
		p := fe.place()
		if list := t.addresses(fe); len(list) > 0 {
			p.Address = list[0]
		}
		if p.Address.IsValid() && !slices.Contains(out, p) { // both engines may have it
			out = append(out, p)
		}
	}
	return out, nil
}

// OpenTables opens the nft tables for look-ups by key.
func OpenTables() (*inspect.Tables, error) {
	tables, err := inspect.OpenTables(kernel.Options{})
	return tables, err
}

// VirtualServers lists the virtual servers of Verdict. Without IPVS there are none.
func VirtualServers() ([]ipvsctl.Status, error) {
	if !ipvsctl.Loaded() {
		return nil, nil
	}
	servers, err := ipvsctl.List(ipvsctl.Options{}, 0)
	if errors.Is(err, ipvsctl.ErrNoIPVS) {
		return nil, nil
	}
	return servers, err
}

// VirtualServer reads one virtual server of Verdict.
func VirtualServer(k ipvsctl.Key) (ipvsctl.Status, bool, error) {
	if !ipvsctl.Loaded() {
		return ipvsctl.Status{}, false, nil
	}
	return ipvsctl.Find(ipvsctl.Options{}, k)
}
