// Package socket is the daemon's answer to questions that the kernel cannot answer: why an endpoint is left out, what
// cannot be honored, which changes wait, and what the latest passes did.
//
//	protocol.go  the questions and answers
//	outlier.go   what people read about endpoints that do not answer, fail their checks, or are backups
//	fastpath.go  which connections take the fast path
//	journal.go   what the daemon notes while it runs
//	daemon.go    the answers
//	server.go    the socket of the daemon
//	client.go    the side of the commands
//
// The protocol is HTTP with JSON over an abstract Unix socket. Its name exists once in each network namespace, so the
// commands find the daemon of their namespace, and nothing is left in the file system. Only root, and the user of the
// daemon, get answers: the kernel tells both sides who the other one is. The commands ask a process of another user only if it
// has the capability NET_ADMIN.
package socket
