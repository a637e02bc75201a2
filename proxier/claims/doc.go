// Package claims decides which Service gets a frontend that several Services ask for. The order of precedence is:
//
//  1. the Service that has the address as its cluster IP, because the API server allocates cluster IPs, while users write
//     external IPs. A user must not take over traffic by writing the cluster IP of another Service into externalIPs.
//  2. the older Service
//  3. the Service whose namespace and name come first
//
// The other Services lose that frontend and keep the rest.
//
//	claims.go  the register of frontends
//	key.go     what identifies a frontend
//	strip.go   how a plan loses a frontend, and the Problem that reports it
//
// The package remembers which Service claims what from plan to plan. It neither plans nor programs anything: it removes
// frontends from a plan and names the Services that the loop must plan again.
package claims
