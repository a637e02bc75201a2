// Command benchupstream gives the same work to Verdict and to upstream's kube-proxy, one after the other, with the same
// real kube-apiserver. kube-proxy runs with nftables, and with iptables over the legacy kernel interface. The output
// shows all proxies side by side. "make bench-upstream" runs it.
//
//	main.go      flags; which proxy runs at which size
//	plane.go     an API server, and the nodes connected to it
//	fill.go      creates a cluster in its etcd
//	objects.go   the objects in the clusters
//	proxy.go     the proxies as processes: their command lines, and the end of their first sync
//	watch.go     finds out when nf_tables has a change
//	xtables.go   finds out when iptables has a change
//	run.go       all measurements of one proxy at one size
//	changes.go   single changes, and streams of changes
//	rules.go     counts chains, rules and sets
//	report.go    the medians as tables and as a plot
package main
