// Package probe has what this node asks an endpoint, and what the endpoint answers. Package prober asks; packages checks and
// suspicion decide who is asked, and what the answers mean.
//
// The files:
//
//	probe.go  questions and answers
package probe
