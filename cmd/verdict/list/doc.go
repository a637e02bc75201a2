// Package list has the commands "verdict list", "verdict get" and "verdict top". They print what package snapshot reads;
// the table of list looks like the output of "ipvsadm -Ln".
//
//	command.go   the command "list": its help text and its flags
//	text.go      its output: the full table, one line for each frontend, or JSON
//	get.go       the command "get": one thing by its key
//	top.go       the command "top": connections per second, again and again
//
// The commands need neither the daemon, which may be down, nor the API server. They change nothing.
package list
