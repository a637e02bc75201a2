// Package convert is the command "verdict convert": what ipvsadm and keepalived balance, in the short form of Verdict. What
// has no counterpart is named, with its line, and never dropped in silence.
//
//	command.go     the command, and which of the two formats a file has
//	balancers.go   what both formats become: balancers, notes, the text that is written
//	statements.go  the statements of both formats, and what becomes of them
//	ipvsadm.go     the output of "ipvsadm -Sn"
//	blocks.go      the statements and blocks of a file of keepalived
//	keepalived.go  from the blocks virtual_server, virtual_server_group and real_server to balancers
//	check.go       from the checkers of keepalived to an active check
package convert
