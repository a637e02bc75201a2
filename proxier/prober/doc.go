// Package prober asks endpoints whether they serve. It decides nothing.
//
//	prober.go  one question, and what it costs; the one after clients got no answer: several connections, and the host
//	socket.go  the socket of a question; its flow is forgotten when it is closed
//	web.go     http, https and dns
package prober
