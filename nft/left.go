package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Left is what an earlier process left in the kernel, in more detail than a Listing.
type Left struct {
	Listing
	ClusterIPs map[netip.Addr]bool       // addresses whose unused ports are refused
	OnNode     map[netip.Addr]bool       // addresses of endpoints on this node
	Sources    map[string][]netip.Prefix // the source ranges of service ports, by Label
}

// ReadLeft reads what an earlier process left.
func ReadLeft(o Options) (Left, error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return Left{}, err
	}
	left, err := readLeft(c)
	return left, errors.Join(err, c.close())
}

func readLeft(k readable) (left Left, err error) {
	families := Families()
	left = Left{ClusterIPs: map[netip.Addr]bool{}, OnNode: map[netip.Addr]bool{}, Sources: map[string][]netip.Prefix{}}
	if left.Listing, err = list(k, families[:], nil); err != nil {
		return left, err
	}
	for _, f := range families {
		was, err := k.surveySets(f)
		if err != nil {
			return left, fmt.Errorf("read table %s %s: %w", f, TableName, err)
		}
		l := newLister(k, f, was, nil)
		if err := errors.Join(
			l.dump(setClusterIPs, func(e foundElement) { note(left.ClusterIPs, e.key, f) }),
			l.dump(setHairpin, func(e foundElement) { note(left.OnNode, e.key, f) }),
			l.dump(setAllowedSources, func(e foundElement) {
				first, name, _ := strings.Cut(e.comment, " ")
				if r, err := netip.ParsePrefix(first); err == nil {
					left.Sources[name] = append(left.Sources[name], r)
				}
			}),
		); err != nil {
			return left, fmt.Errorf("read table %s %s: %w", f, TableName, err)
		}
	}
	return left, nil
}

// note notes the address at the beginning of a key.
func note(set map[netip.Addr]bool, key []byte, f Family) {
	if a, ok := netip.AddrFromSlice(key[:min(len(key), f.addrLen())]); ok {
		set[a] = true
	}
}
