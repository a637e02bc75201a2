// Package benchupstream gives the same work to Verdict and to upstream's kube-proxy, one after the other, with the same
// real kube-apiserver. kube-proxy runs with nftables, and with iptables over the legacy kernel interface. "make
// bench-upstream" runs it, and benchstat prints tables with a column for each proxy.
//
//	upstream_test.go  the benchmark: all measurements of one proxy at one size, and the plot
//	plane_test.go     an API server, and the nodes connected to it
//	fill_test.go      creates a cluster in its etcd
//	objects_test.go   the objects in the clusters
//	proxy_test.go     the proxies as processes: their command lines, and the end of their first sync
//	watch_test.go     finds out when nf_tables has a change
//	xtables_test.go   finds out when iptables has a change
//	changes_test.go   single changes, and streams of changes
//	rules_test.go     counts chains, rules and sets
//	sizes_test.go     the sizes at which kube-proxy was reported to break: cold starts, bursts, restarts, and others who wait
//	readers_test.go   many readers of one API server, and what each costs it
//	daemons_test.go   many nodes with Verdict, and what their metrics say of the latency of a change
package benchupstream
