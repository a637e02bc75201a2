// Package addresses puts addresses of frontends on a device of this host, and announces them to the hosts of its link
// (--manage-addresses). It knows neither Services nor rules: package dataplane says which addresses are wanted, removes
// addresses before it changes the rules, and adds them after the rules are in the kernel.
//
//	list.go      the addresses of this host, and which of them Verdict has added
//	engine.go    what is wanted, what the host has, and the difference
//	device.go    addresses are added to and deleted from a device, and announced (gratuitous ARP, neighbor advertisements)
//
// # The mark
//
// The kernel keeps a protocol number with each address (IFA_PROTO, Linux 5.18), as with routes. Addresses of Verdict have 118,
// the number of its local routes. After a restart, the engine recognizes them by it. It deletes no others: neither an address
// that somebody else has added, even if a frontend has the same one, nor one whose number somebody has changed. While the host
// has an address otherwise, the engine adds none.
//
// The source host leaves marked addresses out, so no other part takes them for addresses of this node.
//
// # What an address looks like
//
// It has the full prefix length, so it makes no route to a network. This host never chooses it as the source of its own
// packets: in IPv4 its scope is link, in IPv6 it is deprecated. IPv6 uses it at once, without duplicate detection: when another
// balancer dies, its address must move without a delay.
package addresses
