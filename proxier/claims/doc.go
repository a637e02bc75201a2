// Package claims decides which Service gets a frontend that several Services ask for. The order of precedence is:
//
//  1. by who writes the field that the frontend comes from. Cluster IPs come first and node ports second, because the API
//     server allocates them. The status of a load balancer is third, because a controller writes it. External IPs are
//     last: a user writes any address there, and must not take over the traffic of another Service by it.
//  2. the older Service
//  3. the Service whose namespace and name come first
//
// The other Services lose that frontend and keep the rest.
//
// A range of ports and another frontend at its address that overlap are in conflict, too: the same order decides, and the
// other Service loses its frontend as a whole. So a range never has a hole, and what a client reaches does not depend on
// which of the two Services has endpoints.
//
// An external IP may be an address of any node, and would hide the node port with its number there. It is served only as
// long as no other Service has that node port. A load balancer IP is served likewise if it is a node port address of this
// node.
//
// An external IP that is the cluster IP of another Service is not served, whatever its port. Neither is one at the address
// and port of an API server.
//
//	claims.go       the register of frontends, and the order of precedence; who gets what: the claims of a Service come and go
//	strip.go        how a plan loses a frontend, and the Problem that reports it
//	environment.go  what else decides: addresses of this node, also as cluster IPs, and of API servers; what external addresses must not take
//	overlap.go      what overlaps with a range of ports, and who loses it
//	beside.go       external addresses at which node ports may answer
//	ranges.go       ranges of ports, and the tree of those at one address
//	key.go          what identifies a frontend, and how far a claim can be trusted
//
// The package remembers which Service claims what from plan to plan. It neither plans nor programs anything: it removes
// frontends from a plan and names the Services that the loop must plan again.
package claims
