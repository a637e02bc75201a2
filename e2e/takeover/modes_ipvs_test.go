//go:build ipvs

package takeover

import "time"

// synced is what kube-proxy logs when its rules are in the kernel.
const synced = `"syncProxyRules complete"`

const anyExternal = "--ipvs-external-cidrs=0.0.0.0/0,::/0"

var sameScheduler = []string{"--default-scheduler=rr", anyExternal}

// In the first run, nft takes over from IPVS. In the others, Verdict serves with IPVS as well: by the scheduler of
// kube-proxy, and by another one. That is changed back first, as config/deploy/README.md says: kube-proxy changes the
// scheduler of a virtual server in its place, and the kernel refuses connections meanwhile (ip_vs_edit_service).
var modes = []mode{{
	name: "ipvs", proxyMode: "ipvs", xtables: "xtables-nft-multi", bare: true,
	variants: []variant{{}, {flags: sameScheduler}, {flags: []string{"--default-scheduler=lc", anyExternal}, back: sameScheduler}},
}}

// The processor is emulated: programs are slow, and packets are not lost for it.
const (
	defaultRuns   = 1
	startPatience = 5 * time.Minute
	patience      = 20 * time.Second
	pause         = 300 * time.Millisecond
)
