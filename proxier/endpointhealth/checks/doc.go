// Package checks decides who is checked when, and which endpoints fail the checks of their Services. It asks nobody: the
// caller asks what Due returns, and reports each answer.
//
// Services of one namespace that ask an endpoint the same question share the check. Other questions to the same endpoint
// take turns, so that a namespace never asks an endpoint more often than once in the interval.
//
// The files:
//
//	checker.go  which checks there are, how many there can be, who waits for room, when they are asked, what the answers mean
package checks
