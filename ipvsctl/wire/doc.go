// Package wire exchanges messages with IPVS (generic netlink, include/uapi/linux/ip_vs.h). It has the values of IPVS, as messages and
// as options of ipvsadm.
//
//	server.go      a virtual server as the kernel has it, what names it, the commands for it, the flags of schedulers, timeouts of connections
//	real.go        a real server, how packets reach it, and the commands for it
//	daemon.go      a synchronization daemon, and the commands for it
//	socket.go      the sockets, and attributes of the messages that this package writes itself
//
// The messages about virtual servers and timeouts are those of github.com/moby/ipvs, whose types stay inside this package.
// That library has no tunnels and no 64-bit counters of real servers, and no synchronization daemons, so real.go and
// daemon.go have messages of their own. It looks up the number of the family IPVS once: if the module ip_vs is unloaded
// and loaded again, the process must start again.
package wire
