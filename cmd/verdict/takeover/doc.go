// Package takeover takes a node over from kube-proxy and hands it back. It removes what kube-proxy left in a network
// namespace: the table kube-proxy of its nftables mode, its chains in the tables of iptables, in both variants, its
// ipsets, and the device of its mode ipvs. Chains of the kubelet (KUBE-FIREWALL, KUBE-KUBELET-CANARY,
// KUBE-IPTABLES-HINT) and of other software stay.
//
// It is called when the rules of Verdict are in the kernel. From then on each new connection finds a translation in one
// set of rules or the other, in any order: the kernel translates a connection once. Connections that exist keep their
// translation, which connection tracking holds and not the rules.
//
//	run.go       takes the node over from kube-proxy; its virtual servers, taken over and handed back; their device
//	await.go     the wait for kube-proxy before Verdict is removed
//	takeover.go  Find and Remove; which chains and sets are those of kube-proxy
//	nft.go       what is in nf_tables, over netlink: the nftables mode and iptables-nft
//	legacy.go    iptables-legacy, by its own programs
package takeover
