// Package plan decides what one Service becomes: its frontends, the endpoints that serve them under each policy, and
// what is masqueraded, filtered, refused or dropped. It turns values of package state into a plan that is the same for
// every engine. The packages nft and ipvsctl turn the plan into kernel objects.
//
//	types.go      the plan of a Service
//	limits.go     how much one Service may become
//	members.go    what an endpoint address is like, as flags; sorting; names of service ports
//	endpoints.go  the endpoints of a Service, of a port and of a pool, and those that keep their flows
//	choose.go     which of them are chosen, by their flags; topology; which are not good
//	frontends.go  addresses and policies; load balancer source ranges
//	plan.go       the Planner: a Service, a family, a port
//	fates.go      why an endpoint is in no pool, for those who ask
//
// It does no I/O, and it never looks at the clock: equal input gives an equal plan.
package plan
