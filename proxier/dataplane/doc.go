// Package dataplane keeps the two engines, nftables and IPVS, equal to planned Services. It decides which engine serves
// a service port, and it owns the order between the engines: nothing outside this package knows that there are two.
//
// # Contract
//
// The loop (package proxier) is the only caller. It uses one goroutine.
//
//   - SetEnvironment takes over what all Services share. It returns Services that the loop has to plan and Set again.
//   - Set and Delete say what one Service is to look like. They collect changes and do not fail. Set returns a Problem
//     for each part of the Service that cannot be served as asked. The port is then served in the nearest way that works.
//   - Apply hands all collected changes to the kernel. See Result for what the loop does with the outcome.
//   - ApplyPiece is for a first pass over an empty kernel, which serves some Services before all were Set. Nothing of steps 0,
//     4, 5 and 6 below is done then. An Apply ends it.
//   - Compare compares the kernel with what Apply wrote and names what others changed.
//   - Repair undoes what another process did to the tables, as soon as the kernel reports it or Compare finds it. RepairMore
//     continues the comparison of everything that Repair begins when the kernel has dropped messages.
//   - Tick continues work that needs time: drains, and retries of what IPVS refused. The loop calls it every second.
//
// A service port whose element the kernel refuses goes into quarantine: the nft engine gets it again after 1 minute, then
// after 2, up to 1 hour. Apply goes on without it, and Replan names its Service, so that Set returns the Problem.
//
// Apply and Tick retry nothing else by themselves. When Result.Err is set, the loop calls Apply again, with backoff: the
// dataplane has forgotten nothing, and Services need not be Set again. Result.Failures are different: the traffic is
// right, something in IPVS is left over, and the next Apply or Tick tries it again. When Result.Replan names Services,
// the loop plans them, Sets them, and calls Apply again. This ends, because a port that IPVS refused is not offered to
// IPVS again before its backoff is over, and nft names a port again only when there is room for it.
//
// # Order of an Apply
//
//  0. Addresses that no frontend with a good endpoint has any more leave the host (--manage-addresses).
//  1. nft guards addresses that are about to become local (a small transaction of its own). From then on only frontends
//     can be reached there (k/k #72236).
//  2. IPVS adds and changes virtual servers. Real servers come before the local address.
//  3. nft applies its transaction. Ports that move to IPVS leave nft here, ports that move to nft arrive here.
//  4. IPVS drains and removes what it no longer serves.
//  5. nft takes the guards off addresses that are no longer local.
//  6. If all of it is in the kernel, the host gets the addresses of new frontends, and announces them.
//
// So a port that changes its engine is complete on the new side before the old side lets go of it. When there is no
// table yet, step 1 cannot guard. Then nothing can move away from nft either, and step 3 comes before step 2.
//
// # Takeover and drain
//
// What an earlier process left in IPVS stays as it is until the first complete Apply. Its addresses are guarded in step 1 of
// the first Apply, and step 4 drains what nobody named. A virtual server with draining real servers keeps its address, and
// the address its guard, until the last real server is gone. Package ipvsctl has the states. nft takes over its own tables in
// package nft.
//
// # Change of engine
//
//	               scheduler of IPVS wanted, no obstacle
//	served by nft ----------------------------------------> served by IPVS
//	   ^    ^                                                  |        |
//	   |    |  obstacle (excluded address, another tool's      |        |
//	   |    |  virtual server), or the kernel refused          |        |
//	   |    +--------------------------------------------------+        |
//	   |          tried again by Tick: obstacles every 10 s,            |
//	   |          refusals after 1 min, doubling up to 1 h              |
//	   |                                                                |
//	   +----------------------------------------------------------------+
//	     another scheduler for a virtual server that takes connections:
//	     nft serves until the next Tick, because the kernel refuses
//	     connections while it exchanges the scheduler
//
// # Files
//
//	result.go         what an Apply or a Tick did, for the loop and for people; the engines
//	environment.go    what all Services share
//	scheduling.go     from a Service's wish to an engine and a scheduler; connections that another node began
//	translate.go      planned ports as ports of the nft engine; weights as numbers of slots
//	virtualserver.go  planned ports as virtual servers, and what is left to nft then
//	ipvs.go           which ports IPVS has, which it refused, and when they are tried again; external addresses
//	quarantine.go     ports that the kernel refused
//	totals.go         counts of what is served, and what is remembered of a Service
//	waiting.go        which Services wait for later transactions
//	dataplane.go      the Dataplane: Set, Delete, SetEnvironment
//	apply.go          Apply, Compare, Repair, RepairMore and Tick: the order between the engines
package dataplane
