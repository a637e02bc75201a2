package lab

import (
	"net/netip"
	"slices"
	"strings"
)

// The places in which clients can be, besides the pods.
const (
	Node       = "node"
	Remote     = "remote"
	Outside    = "x"
	outsideToo = "y"
	gateway    = "gateway" // no clients here
)

// Names of links.
const (
	OutsideLink = "outside"
	InnerLink   = "inner"
	uplink      = "eth0"
)

// Pods lists the pods by name; those on the node come first.
func Pods() []string { return []string{"a", "b", "c", "d"} }

// LocalPods are the pods on the node.
func LocalPods() []string { return []string{"a", "b"} }

// podLink is the link that leads to a pod. Pod b is behind a bridge, so that tests can recognize pods by the interface.
func podLink(pod string) string {
	if pod == "b" {
		return "br-pods"
	}
	return "veth-" + pod
}

// hostPod is the name with which the server in the node's own network answers.
const hostPod = "host"

// PodAddress is the address of a pod. The pod "host" uses the node's own network.
func PodAddress(f Family, pod string) netip.Addr {
	if pod == hostPod {
		return Address(f, "NODE")
	}
	return Address(f, strings.ToUpper(pod))
}

// Names of the Nodes.
const (
	NodeName       = "node-1"
	RemoteNodeName = "node-2"
)

// NodeOf is the name of the Node that a pod runs on.
func NodeOf(pod string) string {
	if pod == hostPod || slices.Contains(LocalPods(), pod) {
		return NodeName
	}
	return RemoteNodeName
}
