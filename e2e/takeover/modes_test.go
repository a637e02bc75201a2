//go:build e2e && !ipvs

package takeover

import "time"

var modes = []mode{
	{name: "nftables", proxyMode: "nftables", bare: true},
	{name: "iptables-nft", proxyMode: "iptables", xtables: "xtables-nft-multi", bare: true},
	{name: "iptables-legacy", proxyMode: "iptables", xtables: "xtables-legacy-multi"},
}

const (
	defaultRuns = 2
	// startPatience is how long a proxy may take to start.
	startPatience = time.Minute
	// patience is how long a client waits for an answer.
	patience = 900 * time.Millisecond
	// pause is the time between two connections of a client. So it does not run out of ports.
	pause = 5 * time.Millisecond
)
