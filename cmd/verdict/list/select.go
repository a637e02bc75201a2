package list

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// selection are the filters that look at frontends and endpoints, and not at names.
type selection struct {
	addresses, endpoints []string
	engine               string
	problem              bool

	ranges []netip.Prefix // of addresses
	ends   []endpointFilter
}

// endpointFilter selects endpoints by their address, and by their port unless it is 0.
type endpointFilter struct {
	in   netip.Prefix
	port uint16
}

// parse reads the values of the flags.
func (s *selection) parse() error {
	if s.engine != "" && s.engine != engineNFT && s.engine != engineIPVS {
		return fmt.Errorf("--engine=%s: must be nft or ipvs", s.engine)
	}
	for _, text := range s.addresses {
		in, err := parseRange(text)
		if err != nil {
			return fmt.Errorf("--address=%s: must be an address or a range, such as 10.96.0.10 or 192.0.2.0/24", text)
		}
		s.ranges = append(s.ranges, in)
	}
	for _, text := range s.endpoints {
		f, err := parseEndpointFilter(text)
		if err != nil {
			return fmt.Errorf("--endpoint=%s: must be an address, ADDRESS:PORT or a range, such as 10.244.1.7 or [fd00::7]:8080", text)
		}
		s.ends = append(s.ends, f)
	}
	return nil
}

func parseRange(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}

func parseEndpointFilter(text string) (endpointFilter, error) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return endpointFilter{netip.PrefixFrom(at.Addr(), at.Addr().BitLen()), at.Port()}, nil
	}
	in, err := parseRange(text)
	return endpointFilter{in: in}, err
}

func (f endpointFilter) matches(e *endpoint) bool {
	return f.in.Contains(e.Address) && (f.port == 0 || f.port == e.Port)
}

// keep removes frontends that are not selected.
func (t *table) keep(s *selection) {
	t.Frontends = slices.DeleteFunc(t.Frontends, func(fe frontend) bool { return !s.selects(t, &fe) })
}

func (s *selection) selects(t *table, fe *frontend) bool {
	switch {
	case s.engine != "" && fe.Engine != s.engine, s.problem && !fe.hasProblem():
		return false
	case len(s.ranges) > 0 && !slices.ContainsFunc(t.addressesOf(fe), s.inRanges):
		return false
	}
	return len(s.ends) == 0 || slices.ContainsFunc(fe.Endpoints, func(e endpoint) bool {
		return slices.ContainsFunc(s.ends, func(f endpointFilter) bool { return f.matches(&e) })
	})
}

func (s *selection) inRanges(a netip.Addr) bool {
	return slices.ContainsFunc(s.ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// addressesOf are the addresses at which a frontend answers.
func (t *table) addressesOf(fe *frontend) (out []netip.Addr) {
	if fe.Address.IsValid() {
		return []netip.Addr{fe.Address}
	}
	for _, a := range t.NodePortAddresses {
		if a.Is6() == (fe.Family == "IPv6") {
			out = append(out, a)
		}
	}
	return out
}

// hasProblem reports whether some clients find no endpoint.
func (fe *frontend) hasProblem() bool {
	takes := func(e endpoint) bool { return e.Weight > 0 }
	return fe.Refusal != "" || fe.Missing || !slices.ContainsFunc(fe.Endpoints, takes)
}
