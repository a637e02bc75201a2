// Package suspicion decides which endpoints have failed among those that clients have doubts about. It asks nobody: the caller
// asks what Due returns, and reports each answer.
//
//	kernel: connections                     two bad answers
//	without a reply       ---> suspected -------------------> failed
//
// Answers are counted as those of a check are (checks.Record). A suspicion alone changes nothing: clients can make suspicions, by forged
// packets or because a firewall drops theirs. Only answers to the node's own questions decide. A silent endpoint may be held (Hold), and
// gets connections all the same. Its witnesses are API servers, and endpoints on other nodes: if they do not answer, this node has lost
// its network.
//
// The files:
//
//	detector.go   endpoints come under suspicion and leave it
//	questions.go  who is asked when, and what the answers of endpoints and witnesses mean
//	endpoint.go   what is known of one endpoint, which endpoints of a Service have failed, and what happened
package suspicion
