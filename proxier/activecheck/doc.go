// Package activecheck decides which endpoints fail the checks that their Services ask for, and when each of them is
// asked. It decides only: it has no clock, makes no connections, and does not know the kernel.
//
//	Set: endpoints of a Service      Due: whom to ask at this time      Answered: what the endpoint said
//	-----------------------> check --------------------------------> asking ---------------------------+
//	                           ^                                                                        |
//	                           +--------- passing or failing, after rise or fall answers in a row <-----+
//
// Until an endpoint has passed once, each answer decides: nothing good is known of it.
//
// Services of one namespace that ask an endpoint the same question share the check. Other questions to the same
// endpoint take turns, so that a namespace never asks an endpoint more often than once in the interval, however many
// Services it writes.
//
// The files:
//
//	checker.go  which checks there are
//	turns.go    when each of them is asked, and what its answers mean
//	status.go   what is told: notes of what happened, and numbers
package activecheck
