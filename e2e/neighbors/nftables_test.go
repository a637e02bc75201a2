//go:build e2e

package neighbors

import "testing"

// nftablesService is Debian's nftables.service: nft reads a file that begins with "flush ruleset", at the start and at each
// reload. Its end flushes the ruleset.
type nftablesService struct{}

// The file is Debian's example for a workstation, with a forward chain that drops what connection tracking did not translate.
const nftablesConf = `#!/usr/sbin/nft -f
flush ruleset
table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
		ct state { established, related } accept
		iif lo accept
		meta l4proto { icmp, ipv6-icmp } accept
		ct status dnat accept
		tcp dport 22 accept
		ip saddr { 10.0.0.0/16 } accept
		ip6 saddr { fd00:10::/48 } accept
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state { established, related } accept
		ct status dnat accept
		ip saddr 10.0.0.0/16 accept
		ip6 saddr fd00:10::/48 accept
		meta l4proto ipv6-icmp accept
	}
	chain output {
		type filter hook output priority filter;
	}
}
`

// TestNftablesService: Verdict owns its tables (--table-owner=auto), so that "flush ruleset" of others leaves them alone.
func TestNftablesService(t *testing.T) {
	needs(t, "nft")
	testNeighbor(t, func() neighbor { return nftablesService{} })
}

func (nftablesService) start(t *testing.T, b *bed) {
	t.Helper()
	b.Node.Must(t, nftablesConf, "nft", "-f", "-")
}

func (n nftablesService) reload(t *testing.T, b *bed) { n.start(t, b) }

func (nftablesService) stop(t *testing.T, b *bed) {
	t.Helper()
	b.Node.Must(t, "", "nft", "flush", "ruleset")
}

func (nftablesService) trace() string { return "" }

func (nftablesService) drops() bool { return false }
