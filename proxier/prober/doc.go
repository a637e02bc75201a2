// Package prober asks endpoints whether they serve. It decides nothing.
//
//	prober.go   a question to an endpoint under suspicion: several connections, and its host
//	check.go    an active check: tcp, http, https or dns
//	connect.go  TCP connections for many checks
package prober
