//go:build ipvs

package takeover

import "time"

const anyExternal = "--ipvs-external-cidrs=0.0.0.0/0,::/0"

// In the first run, nft takes over from IPVS. In the next one, Verdict serves with IPVS as well, by kube-proxy's scheduler.
// Another scheduler is not among them: kube-proxy changes it in its place when it returns, and the kernel refuses
// connections meanwhile (ip_vs_edit_service). config/deploy/README.md says what to do.
var modes = []mode{{
	name: "ipvs", proxyMode: "ipvs", xtables: "xtables-nft-multi", bare: true,
	flags: [][]string{{}, {"--default-scheduler=rr", anyExternal}},
}}

// The processor is emulated: programs are slow, and packets are not lost for it.
const (
	defaultRuns   = 1
	startPatience = 5 * time.Minute
	patience      = 20 * time.Second
	pause         = 300 * time.Millisecond
)
