// Package ipvsctl keeps virtual servers of IPVS, with their real servers, equal to values that it is given, and makes
// their addresses local to the host.
//
// The flow:
//
//	VirtualServer values -> Engine.Set/Delete -> Operations (values that print themselves as ipvsadm commands)
//	                     -> Add, Remove, Tick -> generic netlink, one message for each operation
//
// The files, in the order in which a reader wants them:
//
//	types.go      the values that callers hand in
//	scheduler.go  schedulers and their flags
//	operation.go  one step, printable
//	diff.go       from what the kernel has to what is wanted (pure)
//	engine.go     all virtual servers: what is wanted, what is applied, what was found at start
//	apply.go      doing it, and what happens when the kernel has something else than we thought
//	drain.go      ending connections of what is no longer wanted
//	conn.go       the netlink socket; hides github.com/moby/ipvs
//	address.go    local addresses
//	probe.go      which schedulers the kernel has
//	settings.go   timeouts and sysctls
//	status.go     reading back, for people
//
// It knows nothing of Kubernetes and nothing of nftables. It forwards by NAT only. It starts no process but modprobe, when
// it first opens a socket, and does not mind when there is none.
//
// # What is ours
//
// IPVS keeps no comment and no owner. But it keeps flag bits that have no meaning to it and gives them back, so every
// virtual server of ours carries 0x76 in the uppermost byte of its flags. ipvsadm does not show it. After a restart those
// with the mark are ours, and nothing else is: neither virtual servers for packet marks nor any that another tool has made,
// be it on an address of ours. When one that is not ours has a key that we need, it stays and the failure is ErrForeign.
// (An edit with "ipvsadm -E" takes the mark away; while we run it is noticed by Intact and then belongs to whoever made
// the edit. What drains or is given up is looked at right before, and left alone when the mark is gone.) In ranges that are excluded nothing is made. What carries our mark or our route protocol there is of an earlier
// process without that exclusion: it is taken over at start as everywhere else, and removed when it has drained.
//
// Local addresses are routes in table local with a protocol number of ours, 118:
//
//	ip route add local 10.96.0.1 dev lo table local proto 118 metric 1024
//
// An address of a device, as kube-proxy has them on kube-ipvs0, would be the other way. It costs more with every address
// that exists, shows up among the host's addresses, and is mistaken for one of them. Microseconds for adding or deleting one
// address, and kernel memory for each (go test -run '^$' -bench Addresses -benchtime 100x ./ipvsctl/; Linux 6.18, 2 cores):
//
//	                        100 addresses   10,000 addresses   listing 10,000   memory
//	route, IPv4                     11 µs              11 µs            23 ms    180 B
//	route, IPv6                     13 µs              10 µs            38 ms    390 B
//	device, IPv4                    18 µs             228 µs            23 ms
//	device, IPv6                   160 µs             961 µs            59 ms   1030 B
//
// Listing happens once, at start.
//
// # Order
//
// There are no transactions. Add belongs before the nft transaction of a pass: a new virtual server has all its real
// servers before its address becomes local and before nft lets packets through to it. Remove belongs after it: when
// nothing leads to a virtual server any more it drains and goes. Within one virtual server what adds comes before what
// takes away.
//
// # Cost
//
// A pass looks at the virtual servers of the service ports that were Set or Deleted, at nothing else, and never lists the
// kernel. Median for one of ten endpoints replaced (e2e/ipvskernel/test.sh ./ipvsctl -- -test.run '^$' -test.bench Change
// -test.benchtime 1000x -test.count 5; Linux 6.12, emulated): 441 µs with 100 virtual servers, 376 µs with 5,000.
// The kernel is read at start, for draining real servers (Tick), by Intact (three virtual servers), for a virtual server
// that is given up, and for one at which something went wrong. After an error it is not known what the kernel has, so it is read before the next try.
//
// # Drain
//
// A real server that is no longer wanted gets weight 0 and goes when its connections are gone or the graceful period is
// over. This survives a restart: a real server of weight 0 that nobody wants is draining, and its period begins anew. UDP
// is not drained: a flow moves on. Nor is dh, whose table leads to real servers of weight 0 as well, which would refuse
// every client; for the same reason sh and mh always have their fallback flag. A virtual server that is no longer wanted
// stays, taking no new connections, until its real servers have drained.
package ipvsctl
