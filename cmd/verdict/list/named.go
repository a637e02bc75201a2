package list

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/nft"
)

// asker is the daemon, which knows what the tables have no index for: the frontends of a Service, and the Services of
// an endpoint. It is asked through the socket, or in its own process.
type asker interface {
	Frontends(service string) (socket.Frontends, error)
	ServicesOf(endpoint string) (socket.Services, error)
}

// maxNamed is how many frontends are read one by one. More are read faster all at once.
const maxNamed = 500

// errUnsure means that the daemon cannot say what the kernel has: a change waits, or there is too much to read it one by
// one.
var errUnsure = errors.New("the daemon cannot say which frontends the kernel has")

// keyed reports whether the daemon can say which frontends are wanted, and names them for it.
func (o *options) keyed() (of []string, ok bool) {
	for _, f := range o.services {
		service, _, _ := strings.Cut(string(f), ":")
		of = append(of, service)
	}
	if len(of) > 0 {
		return of, true
	}
	for _, r := range o.selected.ranges {
		if !r.IsSingleIP() {
			return nil, false
		}
		of = append(of, r.Addr().String())
	}
	return of, len(of) > 0
}

// named reads the frontends that the daemon names, each by its key.
func (o *options) named(d asker, of []string) (*table, error) {
	var keys []socket.Frontend
	for _, what := range of {
		some, err := d.Frontends(what)
		if err != nil {
			return nil, err
		}
		if keys = append(keys, some.List...); some.Unsure || len(keys) > maxNamed {
			return nil, errUnsure
		}
	}
	t, err := o.byKeys(keys)
	if err == nil && slices.ContainsFunc(t.NodePortAddresses, o.selected.inRanges) {
		return nil, errUnsure // all node ports are at this address
	}
	return t, err
}

// byKeys reads frontends by their keys.
func (o *options) byKeys(keys []socket.Frontend) (*table, error) {
	g := &getter{options: *o}
	if err := g.open(); err != nil {
		return nil, err
	}
	defer g.close()
	t := &table{}
	for _, f := range o.families() {
		addrs, err := g.tables.NodePortAddresses(f)
		if err != nil && !errors.Is(err, nft.ErrNoTables) {
			return nil, err
		}
		t.NodePortAddresses = append(t.NodePortAddresses, addrs...)
	}
	seen := map[socket.Frontend]bool{}
	for _, k := range keys {
		if seen[k] || !slices.Contains(o.families(), familyNamed(k.Family)) {
			continue
		}
		seen[k] = true
		if err := g.byKey(t, k); err != nil {
			return nil, err
		}
	}
	if !o.noConnections && len(t.Frontends) > 0 {
		t.countConnections(o.families())
	}
	t.noteOutliers(socket.NewClient())
	t.sort()
	return t, nil
}

// byKey reads one frontend. It may be gone since the daemon named it.
func (g *getter) byKey(t *table, k socket.Frontend) error {
	status, found, err := g.tables.Frontend(familyNamed(k.Family), k.Address, k.Protocol, k.Port)
	match := g.match()
	switch {
	case errors.Is(err, nft.ErrNoTables), err == nil && (!found || match != nil && !match(status.Name)):
		return nil
	case err != nil:
		return fmt.Errorf("read a frontend of port %d: %w", k.Port, err)
	}
	return g.fill(t, &status)
}

func familyNamed(name string) nft.Family {
	if name == familyName(nft.IPv6) {
		return nft.IPv6
	}
	return nft.IPv4
}

// Target is where a frontend answers. Without an address it is a node port.
type Target struct {
	Address  netip.Addr
	Protocol uint8
	Port     uint16
}

// Targets lists the frontends in the kernel of a Service (namespace/name) or of one of its ports (namespace/name:port).
// Of a node port it lists the first address of each family. If the daemon cannot say where they are, it reads the
// frontends of all Services.
func Targets(name string) (out []Target, err error) {
	o := options{services: []filter{filter(name)}, noConnections: true}
	t, err := collect(o)
	switch {
	case errors.Is(err, errNothing):
		return nil, nil
	case errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("%w; run this command as root, because it needs CAP_NET_ADMIN", err)
	case err != nil:
		return nil, err
	}
	for i := range t.Frontends {
		fe := &t.Frontends[i]
		addrs := t.addressesOf(fe)
		to := Target{Protocol: protocolNumber(fe.Protocol), Port: fe.Port}
		if len(addrs) == 0 {
			continue
		}
		if to.Address = addrs[0]; !slices.Contains(out, to) { // both engines may have it
			out = append(out, to)
		}
	}
	return out, nil
}

func protocolNumber(name string) uint8 {
	for _, p := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		if protocolName(p) == name {
			return p
		}
	}
	return 0
}

// Frontends reads frontends by their keys, in the JSON form of "verdict list".
func Frontends(keys []socket.Frontend) (any, error) {
	o := options{noConnections: true}
	return o.byKeys(keys)
}

// withEndpoint reads the frontends of the Services that have an endpoint.
func (o *options) withEndpoint(d asker, endpoint string) (*table, error) {
	found, err := d.ServicesOf(endpoint)
	if err != nil {
		return nil, err
	}
	if found.Unsure || len(found.List) == 0 {
		return nil, errUnsure
	}
	return o.named(d, found.List)
}
