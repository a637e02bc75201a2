// Command benchupstream does the same work with Verdict and with upstream kube-proxy (nftables, and iptables over the legacy
// kernel interface) against one real kube-apiserver, in turn, and prints both side by side. "make bench-upstream" runs it.
//
//	main.go      flags; which proxy runs at which size
//	snapshot.go  etcd folders with prepared clusters; objects.go: what is in them
//	plane.go     the API server on such a folder, and nodes connected to it
//	proxy.go     the proxies as processes: how they are started, when their first sync is done
//	watch.go     when the kernel has a change; xtables.go: the same for iptables
//	run.go       what is measured of one proxy at one size; changes.go, rules.go: parts of it
//	result.go    the numbers, as JSON; report.go: as tables and as the plot
package main
