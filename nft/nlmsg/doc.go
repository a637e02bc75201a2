// Package nlmsg writes and reads the netlink messages of netfilter: what nf_tables and connection tracking exchange
// with user space.
//
// A message is a header (struct nlmsghdr), a netfilter header (struct nfgenmsg: family, version, resource) and
// attributes. An attribute (struct nlattr) has a length, a type and a value; the value may be attributes again.
// Messages and attributes begin at multiples of four bytes. Headers are in the byte order of the host, values that are
// numbers in network byte order.
//
//	writer.go   Writer appends messages to one buffer that is used again and again
//	reader.go   Messages walks over the messages of a datagram,
//	            Attributes walks over attributes,
//	            Ack is the kernel's answer to a request: success, or an error and the attribute at fault
//	socket.go   Conn is a socket: requests, their answers, and messages of a group
//
// The package knows no message types but two of netlink itself: NLMSG_ERROR and NLMSG_DONE.
// Reading never panics, whatever the bytes are. A message or attribute that is cut short ends the walk.
package nlmsg
