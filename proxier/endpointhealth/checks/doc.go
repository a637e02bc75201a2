// Package checks decides who is asked when, and what the answers mean. It asks nobody: the caller asks what Due returns, and reports
// each answer. One machine, the Checker, has all checks. They have three purposes:
//
//	a Service asks for checks       -- fall bad answers --> failing
//	the kernel noticed something    -- two bad answers ---> failed (Detector)
//	a Service ejects: a first look  -- a good answer -----> this node is not kept away from the endpoint
//
// Services of one namespace that ask an endpoint the same question share the check. Other questions to the same endpoint
// take turns, so that a namespace never asks an endpoint more often than once in the interval.
//
// A suspicion alone changes nothing: clients can make suspicions, by forged packets or because a firewall drops theirs. Only
// answers to the node's own questions decide. A silent endpoint may be held (Hold), and gets connections all the same. Its witnesses are
// API servers, and endpoints on other nodes: if they do not answer, this node has lost its network.
//
// The files:
//
//	checker.go    the machine: checks begin, wait, ask, count answers, turn, and end
//	suspicion.go  endpoints come under suspicion and leave it; what their silence means, and that of witnesses
//	pool.go       what all this means for the pool of a Service, and what is reported about it
package checks
