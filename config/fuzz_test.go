package config

import (
	"net/netip"
	"strings"
	"testing"
)

// FuzzSettings checks any values of flags with a syntax: nothing panics, and what is accepted can be used.
func FuzzSettings(f *testing.F) {
	f.Add("10.0.0.0/8", "primary,0.0.0.0/0", "[::]:10256", "eth0")
	f.Add("::ffff:10.0.0.0/104,10.0.0.1/8", "all", ":80", "")
	f.Add("10.0.0.0/08", "localhost,", "127.0.0.1:http", "cali*")
	f.Fuzz(func(t *testing.T, ranges, nodePorts, address, name string) {
		s := Default()
		s.ClusterCIDRs, s.NodePortAddresses = strings.Split(ranges, ","), strings.Split(nodePorts, ",")
		s.IPVS.ExcludeCIDR = s.ClusterCIDRs
		s.HealthzBindAddress, s.MetricsBindAddress, s.InterfaceNamePrefix = address, address, name
		s.DetectLocalMode = DetectInterfaceNamePrefix
		if err := s.Validate(); err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a text")
			}
			return
		}
		list := Prefixes(s.ClusterCIDRs)
		if len(list) != len(s.ClusterCIDRs) {
			t.Fatalf("ranges %q are accepted, and %v is used", ranges, list)
		}
		for _, p := range list {
			if p != p.Masked() || p == (netip.Prefix{}) {
				t.Fatalf("range %s of %q", p, ranges)
			}
		}
	})
}
