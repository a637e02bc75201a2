// Package wire exchanges messages with IPVS (generic netlink, include/uapi/linux/ip_vs.h). It has the values of IPVS, as messages and
// as options of ipvsadm.
//
//	key.go         what names a virtual server
//	flags.go       the flags of schedulers
//	forwarding.go  how packets reach a real server
//	server.go      a virtual server as the kernel has it, and the commands for it
//	real.go        a real server, and the commands for it
//	daemon.go      a synchronization daemon, and the commands for it
//	timeouts.go    the timeouts of connections
//	socket.go      the socket
//	attribute.go   attributes of messages
package wire
