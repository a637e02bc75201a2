//go:build ipvs

package takeover

import "time"

// synced is what kube-proxy logs when its rules are in the kernel.
const synced = `"syncProxyRules complete"`

const anyExternal = "--ipvs-external-cidrs=0.0.0.0/0,::/0"

// In the first run, nft takes over from IPVS. In the others, Verdict serves with IPVS as well: by the scheduler of
// kube-proxy, and by another one.
var modes = []mode{{
	name: "ipvs", proxyMode: "ipvs", xtables: "xtables-nft-multi", bare: true,
	flags: [][]string{{}, {"--default-scheduler=rr", anyExternal}, {"--default-scheduler=lc", anyExternal}},
}}

// The processor is emulated: programs are slow, and packets are not lost for it.
const (
	defaultRuns   = 1
	startPatience = 5 * time.Minute
	patience      = 20 * time.Second
	pause         = 300 * time.Millisecond
)
