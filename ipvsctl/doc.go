// Package ipvsctl keeps virtual servers of IPVS and their real servers equal to the values that it gets, and makes the
// addresses of virtual servers local to the host.
//
// The flow:
//
//	VirtualServer values -> Engine.Set/Delete -> Operations (values that print themselves as ipvsadm commands)
//	                     -> Add, Remove, Tick -> generic netlink, one message for each operation
//
// The files, in the order in which to read them:
//
//	types.go      the values that callers pass in, and operations, which print themselves
//	validate.go   which values the kernel would refuse, or accept and change
//	result.go     what Add, Remove and Tick return; errors
//	server.go     one virtual server: from what the kernel has to what is wanted (pure)
//	address.go    local routes
//	kernel.go     what the engine needs of a kernel
//	locals.go     which addresses are local, and which of them need a guard
//	engine.go     all virtual servers: what is wanted, what is applied, what an earlier process left
//	drain.go      the end of connections to real servers that are no longer wanted
//	apply.go      Add, Remove, Tick and Intact, and what happens when the kernel has something else than the engine knows
//	settings.go   timeouts, synchronization daemons and sysctls
//	adopt.go      virtual servers of another Service proxy, whose place Verdict takes
//	probe.go      which schedulers the kernel has
//	status.go     what the kernel has, for display
//
// Package wire has the values that the kernel knows, and exchanges the netlink messages about them, with
// github.com/moby/ipvs as far as that library goes.
//
// The package knows nothing of Kubernetes or nftables. It starts no process except modprobe,
// when it first opens a socket, and works without modprobe as well.
//
// # The mark
//
// IPVS stores no comment and no owner with a virtual server. But it stores flag bits that it does not know, and returns
// them. So the engine sets the uppermost byte of the flags of each virtual server to 0x76. ipvsadm does not show it.
// After a restart the engine recognizes its virtual servers by this mark. It does not touch any others: neither those
// for packet marks nor those that another tool made, even at an address that the engine uses. When another tool has a
// key that the engine needs, the engine leaves it alone and reports ErrForeign.
//
// Another bit, 0x00800000, marks virtual servers that Adopt took over from another Service proxy. They drain until
// their last connection has ended.
//
// "ipvsadm -E" takes the mark away. Intact notices that, and from then on the virtual server belongs to the tool that
// changed it. Before the engine deletes a virtual server or ends a drain, it checks that the mark is still there.
//
// In excluded ranges (Options.Exclude) the engine makes nothing. What carries the mark there comes from an earlier
// process that did not exclude the range. The engine takes it over as everywhere else, drains it and deletes it.
//
// # Local addresses
//
// An address becomes local by a route in table local with the protocol number 118, which marks it:
//
//	ip route add local 10.96.0.1 dev lo table local proto 118 metric 1024
//
// In IPv6, the host would go to a local address from any address of its own, and source ranges may not have that one. So the route
// has the source (src) from which the host went there before.
//
// kube-proxy adds the addresses to a device instead, kube-ipvs0. The cost of that grows with the number of addresses,
// and the addresses appear among those of the host and are mistaken for them. Microseconds to add or delete one
// address, and kernel memory for each (go test -run '^$' -bench Addresses -benchtime 100x ./ipvsctl/; Linux 6.18, 2
// cores):
//
//	                        100 addresses   10,000 addresses   listing 10,000   memory
//	route, IPv4                     11 µs              11 µs            23 ms    180 B
//	route, IPv6                     13 µs              10 µs            38 ms    390 B
//	device, IPv4                    18 µs             228 µs            23 ms
//	device, IPv6                   160 µs             961 µs            59 ms   1030 B
//
// The engine lists the routes once, at start.
//
// A local address exposes every process that listens on all addresses of the host, so the caller guards it with nft.
// The guard must exist before the address is local, and as long as it is. Coming names the addresses to guard before
// the next Add. Result.Released names those whose guards can go.
//
// # Order
//
// IPVS has no transactions. In each pass the caller calls Add before the nft transaction: a new virtual server has all
// its real servers before its address becomes local and before nft lets packets reach it. The caller calls Remove after
// the nft transaction: when no rule leads to a virtual server any more, it drains and goes. Within one virtual server,
// operations that add come before those that take away.
//
// # Takeover of an earlier process
//
// Open finds what carries the mark. A virtual server of an earlier process does not change until Set claims it or the
// first Remove gives it up. So call Remove only when everything wanted has been Set. The states of a virtual server:
//
//	       Open finds the mark
//	                |
//	                v
//	         +-------------+
//	         |  inherited  |  Coming names its address; Tick does nothing
//	         +-------------+
//	Set, Add   |         |    first Remove, unless Set has claimed it
//	           v         |
//	    +----------+     |
//	    |  wanted  |     |
//	    +----------+     |
//	     |       ^       |
//	     | (1)   | (2)   |
//	     v       |       v
//	    +-----------------+  no connections, or period over (Tick)
//	    |    draining     |----------------------------------------> deleted
//	    +-----------------+
//
// (1) Delete, then Remove. (2) Set, then Add. A virtual server that has no connections to wait for is deleted at once:
// for UDP, without real servers, or without a graceful period.
//
// An inherited address without a virtual server stays local until the first Remove, which deletes its route. When that
// fails, each Tick tries again.
//
// # Drain
//
// A real server that is no longer wanted gets weight 0, and the engine deletes it when its connections are gone or the
// graceful period is over:
//
//	+---------+  no longer wanted  +----------+  no connections, or period over (Tick)
//	| serving |------------------->| draining |----------------------------------------> deleted
//	+---------+   (Add, Remove)    +----------+
//	     ^                              |
//	     +------------------------------+
//	            wanted again (Add)
//
// A virtual server that is no longer wanted stays in the kernel, without new connections, until its last real server
// has drained. Then the engine deletes the virtual server, but first its local route, unless another virtual server has
// the same address.
//
// A drain survives a restart: a real server of weight 0 that is not wanted is draining, and its period starts again.
//
// Some real servers are deleted at once. UDP does not drain: its flows move to other real servers. Nor does the
// scheduler dh: its table still selects real servers of weight 0, and the kernel would refuse their clients. The
// tables of sh and mh do the same, but these schedulers have a flag that sends such clients elsewhere, and the engine
// always sets it.
//
// # Cost
//
// A pass looks only at the virtual servers of service ports that were Set or Deleted. It never lists the kernel. Median
// time to replace one of ten endpoints (e2e/ipvskernel/test.sh ./ipvsctl -- -test.run '^$' -test.bench Change
// -test.benchtime 1000x -test.count 5; Linux 6.12, emulated): 441 µs with 100 virtual servers, 376 µs with 5,000.
//
// The engine reads the kernel at start, for draining real servers (Tick), for some virtual servers in each Intact, before
// it deletes a virtual server, and after an error, because it then does not know whether the kernel took the operation.
package ipvsctl
