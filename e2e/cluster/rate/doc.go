// Package rate connects to Services at a fixed rate and records every connection. A connection is the handshake, a request,
// the whole answer, and the end. A slow connection does not delay those to others.
//
//	attempt.go   one connection, and how it ended
//	target.go    what a client connects to
//	client.go    makes connections at a rate
//	server.go    answers each connection once
//	report.go    serves the records of a client over HTTP, and fetches them
package rate
