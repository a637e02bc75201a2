// Package checks decides who is asked when, and what the answers mean. It asks nobody: the caller asks what Due returns, and reports
// each answer. There are two reasons to ask an endpoint, a check that its Service asks for, and a suspicion. Both count answers
// (Record), wait in a schedule.Line, and begin where an earlier process left off (Restored).
//
//	a Service asks for checks: Checker ---- bad answers ---> failing
//	the kernel noticed something: Detector -- two of them --> failed
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
//	checker.go    checks, their answers, and what both reasons share
//	detector.go   endpoints come under suspicion and leave it
//	questions.go  suspicions: who is asked when, and what the answers of endpoints and witnesses mean
//	suspect.go    what is known of an endpoint under suspicion, which of a Service have failed, and what happened
package checks
