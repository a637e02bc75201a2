// Package explain is the command "verdict explain". It says what the rules of this node do with a connection, step by
// step, with the element or rule beside each step.
//
//	command.go      the command, its flags and its help text
//	question.go     the arguments; sources.go: names of sources, such as "node", and frontends of a Service
//	explanation.go  what the command says, and its JSON form; text.go: as text
//	explain.go      the pure part: from answers of the kernel to an explanation
//	path.go         which way the packet takes, and which rule of Verdict acts
//	connection.go   flows that exist
//	frontend.go     whose frontend the destination is
//	endpoints.go    which endpoint gets the connection; leftout.go: why others do not, which the daemon knows
//	refusal.go      what happens to packets that no pool takes: IPVS, refusals, routing
//	others.go       what other tables do with the packet
//	kernel.go       the kernel part: keyed look-ups
//	answer.go       answers for the page of the daemon
//	trace.go        "--trace": what the kernel says about the packets of this flow
//
// The command asks the kernel, and the daemon only for the reasons why endpoints are left out. It changes nothing, except
// that --trace adds a table of its own for a moment.
package explain
