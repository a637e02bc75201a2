// Package wire exchanges the messages about real servers and synchronization daemons with IPVS (generic netlink, include/uapi/linux/ip_vs.h).
// github.com/moby/ipvs has no attributes for tunnels, neither when it writes nor when it reads, and no daemons.
//
//	forwarding.go  how packets reach a real server: as a value, as text, and as options of ipvsadm
//	real.go        a real server as a value, and its attributes
//	daemon.go      a synchronization daemon, and the commands for it
//	socket.go      the socket, with one method for each command
package wire
