// Package outlier decides which endpoints get no new connections because they are dead. It decides only: it has no
// clock, makes no connections, and does not know the kernel. Its caller tells it what was observed and asks endpoints
// on its behalf.
//
//	kernel: connections      Suspect       two bad answers in a row         Eject: at most some of a pool
//	without a reply      --------------> suspected ------------------> failed ---------------------------> ejected
//	                                         |                           |
//	                                         | a good answer             | good answers, or its EndpointSlice
//	                                         v                           v says something new about it
//	                                        calm <-----------------------+
//
// A suspicion alone never ejects: clients can make suspicions, by forged packets or because a firewall drops theirs.
// Only the answers to the node's own questions decide. They do not eject an endpoint (Hold) when
//   - its host answers at another port: it is overloaded, or a firewall drops the question;
//   - it never answered this node before: a network policy may keep the node away from it;
//   - no witness answers, which are endpoints of other Services on other nodes: then this node has lost its network;
//   - endpoints of the Service on several nodes, and on half of its nodes, fell at the same time.
//
// Eject keeps a part of each pool, and never takes the last endpoint.
//
// The files:
//
//	detector.go  suspicions, questions and answers
//	queue.go     who is asked next
//	endpoint.go  what is known of one endpoint
//	witness.go   whether this node has lost its network
//	limits.go    which failed endpoints of a pool are ejected
//	status.go    what is told: the present state, and notes of what happened
package outlier
