// Package endpointhealth finds out which endpoints serve, and writes it into the store. Package plan decides which endpoints
// of a pool get connections.
//
//	kernel: connections       suspects.go        two bad answers
//	without a reply       ---------------> suspected ----------> failed --+
//	                                                                      |  publish.go
//	Services that ask for     checks.go          fall bad answers         +-----------> state.Store.SetHealth
//	active checks         ---------------> checked -----------> failing --+
//
// A suspicion alone changes nothing: clients can make suspicions, by forged packets or because a firewall drops theirs.
// Only answers to the node's own questions decide. A silent endpoint is held (Hold), and gets connections all the same, when
//   - its host answers at another port: it is overloaded, or a firewall drops the question;
//   - it never answered this node: a network policy may keep the node away from it;
//   - no witness answers, which are endpoints of other Services on other nodes: then this node has lost its network;
//   - endpoints of the Service on several nodes, and on half of its nodes, fell at the same time.
//
// Services of one namespace that ask an endpoint the same question share the check. Other questions to the same endpoint
// take turns, so that a namespace never asks an endpoint more often than once in the interval. Questions have a cost, and
// the node and each namespace have a rate (ask.go): what comes beyond it is late.
//
// The files:
//
//	monitor.go   the parts, and what the loop reports of plans
//	question.go  questions and answers
//	suspects.go  endpoints that clients have doubts about; endpoint.go: what is known of one
//	doubt.go     whether the fault is with this node's network
//	checks.go    active checks: which there are, and what their answers mean
//	ask.go       who is asked when, and how much that may cost; first looks at endpoints
//	permit.go    who may be asked
//	walk.go      what walks over all slices: the Services of an endpoint, other endpoints of its node, witnesses
//	publish.go   when the store is written
//	memory.go    what outlives the process
//	status.go    the state for commands and the page; report.go: log lines, metrics and Events
package endpointhealth
