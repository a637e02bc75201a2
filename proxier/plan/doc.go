// Package plan decides what one Service becomes: its frontends, the endpoints that serve them under each policy, and
// what is masqueraded, filtered, refused or dropped. It turns values of package state into a plan that is the same for
// every engine. The packages nft and ipvsctl turn the plan into kernel objects.
//
//	types.go      the plan of a Service
//	plan.go       the Planner: a Service, a family, a port
//	endpoints.go  which endpoints are in which pool; sort.go sorts them
//	choose.go     which of them are chosen, by their flags
//	topology.go   which endpoints the topology hints allow
//	fates.go      why an endpoint is in no pool, for those who ask
//	limits.go     how much one Service may become
//	name.go       the names of service ports, which are unique
//	frontends.go  addresses and policies; ranges.go: load balancer source ranges
//
// It does no I/O, and it never looks at the clock: equal input gives an equal plan.
package plan
