// Command verdict is a Kubernetes Service proxy. "verdict run" is the daemon. The other sub-commands show what it does
// or would do.
//
//	main.go       the root command, exit codes; version.go: the version; man.go: man pages, with the build tag man
//	flags.go      the flags of "run" and "render"; log.go: the logger
//	commandline.go  flags, configuration file and defaults of kube-proxy's modes together; aliases.go: other names of flags
//	follow.go     changes of the configuration file
//	run.go        "run": the parts of the daemon, connected; nodesetup: settings of the host
//	watch.go      hears what other processes do to the tables
//	source.go     where objects come from; kept.go: what the kernel has of files that cannot be read
//	host.go       facts of the host; single.go: one process for each network namespace
//	loopback.go   the sysctl for node ports on 127.0.0.1, and its guard
//	guardkeeper.go  keeps that guard as it is while the daemon runs
//	ipvs.go       what IPVS can do on this host; sysctls.go: the former values of its sysctls
//	kernel.go     what the kernel lacks, if it refuses the tables
//	successor.go  takes over from kube-proxy when the first pass is in the kernel; takeover: what kube-proxy left
//	handover.go   the wait for kube-proxy before a clean-up
//	observers.go  health, metrics and Events of the loop; events.go: Events; event_node.go: those on the Node;
//	              event_queue.go: those that wait
//	faces.go      the HTTP listeners for health, metrics and the page of package ui; scrape.go: metrics that a scrape reads
//	room.go       a table of connections that is full
//	health.go     endpoints that do not serve: the parts that find them, metrics and Events; healthmemory.go: what a restart finds
//	check.go      "check": can Verdict serve this node? preflight: the checks
//	render.go     "render": one pass without the kernel; diff.go: "diff": the difference to the kernel
//	giveway.go    commands that read leave the processors to the daemon
//
// This package reads flags and connects the other packages. All other work happens in those.
package main
