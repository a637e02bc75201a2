package inspect

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Left is what an earlier process left in the kernel, in more detail than a Listing.
type Left struct {
	Listing
	ClusterIPs  map[netip.Addr]bool       // addresses whose unused ports are refused
	KeepSources map[netip.Addr]bool       // addresses at which only connections of the node itself are masqueraded
	OnNode      map[netip.Addr]bool       // addresses of endpoints on this node
	Sources     map[string][]netip.Prefix // the source ranges of service ports, by Label
}

// ReadLeft reads what an earlier process left.
func ReadLeft(o kernel.Options) (Left, error) {
	return dialed(o, func(c *kernel.Conn) (Left, error) { return readLeft(c) })
}

func readLeft(k kernel.Reader) (left Left, err error) {
	families := program.Families()
	left = Left{
		ClusterIPs: map[netip.Addr]bool{}, KeepSources: map[netip.Addr]bool{}, OnNode: map[netip.Addr]bool{},
		Sources: map[string][]netip.Prefix{},
	}
	if left.Listing, err = ListFrom(k, families[:], nil); err != nil {
		return left, err
	}
	return left, eachTable(k, families[:], k.SurveySets, nil, func(l *lister) error {
		return errors.Join(
			l.dump(program.ClusterIPs.Name(), func(e kernel.Found) { note(left.ClusterIPs, e.Key, l.family) }),
			l.dump(program.MasqueradeNode.Name(), func(e kernel.Found) { note(left.KeepSources, e.Key, l.family) }),
			l.dump(program.Hairpin.Name(), func(e kernel.Found) { note(left.OnNode, e.Key, l.family) }),
			l.dump(program.AllowedSources.Name(), func(e kernel.Found) {
				first, name, _ := strings.Cut(e.Comment, " ")
				if r, err := netip.ParsePrefix(first); err == nil {
					left.Sources[name] = append(left.Sources[name], r)
				}
			}),
		)
	})
}

// note notes the address at the beginning of a key.
func note(set map[netip.Addr]bool, key []byte, f program.Family) {
	if at, ok := program.EndpointOf(f, key); ok {
		set[at.Addr()] = true
	}
}
