// Package conntrack deletes flows from the kernel's connection tracking table that lead to the wrong place: those of UDP, and
// connections of TCP and SCTP without an answer. NAT
// rules see only the first packet of a flow, and a client that keeps sending keeps its flow forever. So after a change
// of Services, old flows would go on to old endpoints.
//
// Tracker finds out which flows a pass made stale; it does no I/O. Cleaner deletes these flows from the kernel. Neither
// touches connections of SCTP and TCP that had an answer, but for TCP of Services that ask for it (on-removal: reset): the two ends
// of a connection notice by themselves when it breaks, and a connection that ends in an orderly way through a draining endpoint
// must not be cut (kubernetes/kubernetes #101607).
//
// A UDP flow is stale if the client sends to
//   - a frontend that exists, and the flow does not go to an endpoint of this frontend whose flows are good. This includes
//     flows that are older than the frontend and therefore not translated;
//   - a frontend with source ranges, and the client is in none of them;
//   - a frontend that IPVS served and does not serve any more: IPVS carried the flow's packets;
//   - a frontend that was removed, and the flow is translated. Upstream keeps these flows (since 1.32). But a UDP flow has
//     no end: the removed address would keep working for its clients, and a node port that moved would keep its clients.
//
// Flows to good endpoints stay, even if traffic policy or topology would now send new flows elsewhere.
//
// TCP connections that never had an answer from an endpoint that a plan has left out are deleted at once, so that the next packet of
// the client goes to a good one. After a change, a look finds the connections of TCP and SCTP without an answer that the new rules
// would not begin, and a second one deletes those that still have none a second later (look.go). They ask the kernel only for
// entries of the protocol without an answer: of 128,000 other flows, none is handed over.
//
// Forgetter deletes the flows that this node's own questions to endpoints leave behind.
//
// Count reads how many flows go where. Former uses it at the start of a process, and "verdict list" shows it.
//
// The files:
//
//	flow.go       flows and frontends as values
//	wire.go       requests and entries
//	socket.go     the netlink socket
//	count.go      how many flows go where, frontends of an earlier process, the flows of one client to one destination; how full the table is
//	opened.go     flows that begin, counted by their routes
//	forgetter.go  flows of this node's own questions, by their tuples
//	stale.go      which flows are stale
//	look.go       where connections may wait for an answer in vain
//	tracker.go    where flows may have become stale; addresses of node ports come and go
//	cleaner.go    deletes stale flows, or explains why it could not
package conntrack
