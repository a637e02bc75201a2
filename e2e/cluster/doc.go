// Package cluster tests Verdict as a DaemonSet on a real cluster: two nodes with containerd and kubelet, a complete control
// plane and CoreDNS, all in network namespaces of this machine. "make e2e-cluster" runs it.
//
//	daemonset_test.go   the DaemonSet is rolled out, upgraded, killed, and a node is rebooted
//	switch_test.go      from kube-proxy to Verdict and back, by the commands of config/deploy/README.md
//	vanish_test.go      the link of a node is cut, under kube-proxy and under Verdict
//	leave_test.go       a node leaves, under kube-proxy and under Verdict
//	plugin_test.go      "kubectl verdict" asks both nodes
//	rollout_test.go     rolling updates under connections, as a benchmark
//	rollout_trace_test.go  what explains a failure in them
//	bed_test.go         starts the cluster
//	proxy_test.go       puts a proxy onto the nodes
//	config_test.go      configuration files of containerd, kubelet and network plugins
//	network_test.go     the namespaces and their addresses
//	node_test.go        a node: its processes, and how it ends
//	login1_test.go      stands in for D-Bus and logind: stops the system of a node
//	images_test.go      makes images without a registry
//	clients_test.go     clients in pods and outside, and what they counted
//	document_test.go    takes commands and files out of a document
//	rate                connections at a fixed rate, each of which is recorded
//	rollout             results of rolling updates: table, list of failures, picture
//	workload            the program in the pods
package cluster
