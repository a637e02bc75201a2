// Package ipvs tests Verdict with IPVS, end to end, under the kernel of e2e/ipvskernel: the scenarios of e2e/scenarios
// with --backend=ipvs, and tests in Go of what only IPVS can do. All of it has the build tag ipvs.
package ipvs
