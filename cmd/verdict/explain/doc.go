// Package explain is the command "verdict explain". It says what the rules of this node do with a connection, step by
// step, with the element or rule beside each step.
//
//	command.go      the command, its flags and its help text; answers for the page of the daemon
//	sources.go      names of sources, such as "node", and frontends of a Service
//	explain.go      from answers of the kernel to an explanation, step by step; flows that exist
//	refusal.go      what happens to packets that no pool takes: IPVS, refusals, routing
//	endpoints.go    which endpoint gets the connection, and why others do not, which the daemon knows
//	frontend.go     whose frontend the destination is
//	others.go       what other tables do with the packet
//	path.go         one connection; which way the packet takes, and which rule of Verdict acts
//	trace.go        "--trace": what the kernel says about the packets of this flow
//	explanation.go  what the command says: values, text and JSON
//	kernel.go       the kernel part: keyed look-ups
//
// The command asks the kernel, and the daemon only for the reasons why endpoints are left out. It changes nothing, except
// that --trace adds a table of its own for a moment.
package explain
