// Package program builds verdict for tests that run it as a process.
//
//	program.go    builds it, or takes the one that the environment names
//	plain.go      without the race detector; race.go: with it, when the test has it
package program
